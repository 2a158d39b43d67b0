"""Fraud detection with a pattern: a small payment, then a large one from the same account within a minute.

Shows:    CEP.pattern on a keyed stream; a time window; timed-out partial matches in a side output.
Change:   the conditions and the window; PAYMENTS to your own source; alerts.print() to a sink.
Run:      python examples/fraud_patterns.py

Expected output:

    ALERT ann: 0.50 at 10:00:00, then 900.00 at 10:00:40
    quiet> bob: nothing large followed 0.80 at 10:00:10
    quiet> cat: nothing large followed 0.20 at 10:00:50
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from millstream.cep import CEP, Pattern
from millstream.common import Duration, WatermarkStrategy
from millstream.datastream import OutputTag, StreamExecutionEnvironment

QUIET = OutputTag("quiet")


class Payment(NamedTuple):
    account: str
    amount: float
    time: int  # milliseconds since 1970


def millis(minute: int, second: int) -> int:
    return int(datetime(2026, 3, 1, 10, minute, second, tzinfo=UTC).timestamp() * 1000)


PAYMENTS = [
    Payment("ann", 0.50, millis(0, 0)),
    Payment("bob", 0.80, millis(0, 10)),
    Payment("ann", 900.00, millis(0, 40)),  # 40 s after the small one
    Payment("cat", 0.20, millis(0, 50)),
    Payment("cat", 20.00, millis(0, 55)),  # not large
    Payment("bob", 700.00, millis(2, 0)),  # large, but 110 s after the small one
]


def shown(payment: Payment) -> str:
    return f"{payment.amount:.2f} at {datetime.fromtimestamp(payment.time / 1000, UTC):%H:%M:%S}"


def alert(match: dict[str, list[Payment]]) -> str:
    small, large = match["small"][0], match["large"][0]
    return f"ALERT {small.account}: {shown(small)}, then {shown(large)}"


def nothing_large(match: dict[str, list[Payment]], time: int) -> str:
    small = match["small"][0]
    return f"{small.account}: nothing large followed {shown(small)}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.time)
    payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(by_time)

    # `followed_by` allows other payments between the two; `next` does not.
    pattern = (
        Pattern.begin("small")
        .where(lambda p: p.amount < 1.00)
        .followed_by("large")
        .where(lambda p: p.amount > 500.00)
        .within(Duration.of_minutes(1))
    )
    matches = CEP.pattern(payments.key_by(lambda p: p.account), pattern)
    alerts = matches.select(QUIET, nothing_large, alert).name("detector").uid("detector")
    alerts.print()
    alerts.get_side_output(QUIET).print("quiet")
    env.execute("fraud patterns")


if __name__ == "__main__":
    main()
