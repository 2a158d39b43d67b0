"""Fraud detection: a small payment, then a large one from the same account within a minute of event time.

Shows:    a KeyedProcessFunction with keyed state and event-time timers; a side output.
Change:   SMALL, LARGE and WITHIN; PAYMENTS to your own source; alerts.print() to a sink.
Run:      python examples/fraud_detection.py

Expected output:

    ALERT ann: 0.50 at 10:00:00, then 900.00 at 10:00:40
    quiet> bob: nothing large followed 0.80 at 10:00:10
    quiet> cat: nothing large followed 0.20 at 10:00:50
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from millstream.common import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

SMALL, LARGE, WITHIN = 1.00, 500.00, 60_000
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


class Detector(KeyedProcessFunction[str, Payment, str]):
    """Stores an account's last small payment for a minute."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # One value per account. State must be in a descriptor, not in self, to survive a failure.
        self.small = runtime_context.get_state(ValueStateDescriptor("small"))

    def process_element(self, value: Payment, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        small: Payment | None = self.small.value()
        # Compare the times, because a timer fires only when the watermark passes it, which is some time after later
        # records. The timer alone would raise an alert for bob.
        if value.amount >= LARGE and small is not None and value.time - small.time <= WITHIN:
            yield f"ALERT {value.account}: {shown(small)}, then {shown(value)}"
            ctx.timer_service().delete_event_time_timer(small.time + WITHIN)
            self.small.clear()
        elif value.amount <= SMALL:
            if small is not None:
                ctx.timer_service().delete_event_time_timer(small.time + WITHIN)
            self.small.update(value)
            # Without the timer the state of an account without further payments would stay forever.
            ctx.timer_service().register_event_time_timer(value.time + WITHIN)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield QUIET, f"{ctx.get_current_key()}: nothing large followed {shown(self.small.value())}"
        self.small.clear()


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.time)
    payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(by_time)
    alerts = payments.key_by(lambda payment: payment.account).process(Detector()).name("detector").uid("detector")
    alerts.print()
    alerts.get_side_output(QUIET).print("quiet")
    env.execute("fraud detection")


if __name__ == "__main__":
    main()
