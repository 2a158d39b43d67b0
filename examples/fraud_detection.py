"""Fraud detection: a small payment, then a large one from the same account within a minute of event time.

Shows:    a KeyedProcessFunction with keyed state and event-time timers; a side output.
Change:   SMALL, LARGE and WITHIN; PAYMENTS to a source of your own; alerts.print() to a sink.
Run:      python examples/fraud_detection.py

Expected output:

    ALERT ann: 0.50 at 10:00:00, then 900.00 at 10:00:40
    quiet> bob: nothing large followed 0.80 at 10:00:10
    quiet> cat: nothing large followed 0.20 at 10:00:50
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from millstream.common import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

SMALL, LARGE, WITHIN = 1.00, 500.00, 60_000
QUIET = OutputTag("quiet")


class Payment(NamedTuple):
    account: str
    amount: float
    at: int  # milliseconds since 1970


def at(minute: int, second: int) -> int:
    return int(datetime(2026, 3, 1, 10, minute, second, tzinfo=UTC).timestamp() * 1000)


PAYMENTS = [
    Payment("ann", 0.50, at(0, 0)),
    Payment("bob", 0.80, at(0, 10)),
    Payment("ann", 900.00, at(0, 40)),  # 40 s after the small one
    Payment("cat", 0.20, at(0, 50)),
    Payment("cat", 20.00, at(0, 55)),  # not large
    Payment("bob", 700.00, at(2, 0)),  # large, but 110 s after the small one
]


def shown(payment: Payment) -> str:
    return f"{payment.amount:.2f} at {datetime.fromtimestamp(payment.at / 1000, UTC):%H:%M:%S}"


class Detector(KeyedProcessFunction[str, Payment, str]):
    """Remembers an account's last small payment for a minute."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # One value for each account. State belongs into a descriptor, not into self: only so it survives a failure.
        self.small = runtime_context.get_state(ValueStateDescriptor("small"))

    def process_element(self, value: Payment, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        small: Payment | None = self.small.value()
        # The times are compared, because a timer fires only when the watermark has passed it, and that is some time
        # after records that are already later. The timer alone would raise an alert for bob.
        if value.amount >= LARGE and small is not None and value.at - small.at <= WITHIN:
            yield f"ALERT {value.account}: {shown(small)}, then {shown(value)}"
            ctx.timer_service().delete_event_time_timer(small.at + WITHIN)
            self.small.clear()
        elif value.amount <= SMALL:
            if small is not None:
                ctx.timer_service().delete_event_time_timer(small.at + WITHIN)
            self.small.update(value)
            # Without the timer the state of an account that is never heard of again would stay for ever.
            ctx.timer_service().register_event_time_timer(value.at + WITHIN)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[OutputTag, str]]:
        yield QUIET, f"{ctx.get_current_key()}: nothing large followed {shown(self.small.value())}"
        self.small.clear()


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda payment, _: payment.at)
    payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(by_time)
    alerts = payments.key_by(lambda payment: payment.account).process(Detector()).name("detector").uid("detector")
    alerts.print()
    alerts.get_side_output(QUIET).print("quiet")
    env.execute("fraud detection")


if __name__ == "__main__":
    main()
