"""Sessions: groups a visitor's clicks until there is none for ten minutes.

Shows:    event-time session windows, which grow and merge with clicks out of order; an AggregateFunction with one
          small accumulator per session; a ProcessWindowFunction with access to the window.
Change:   GAP; the contents of the accumulator; CLICKS to your own source.
Run:      python examples/sessions.py

Expected output:

    ann: 3 clicks in 9 minutes, from / to /cart
    ann: 2 clicks in 3 minutes, from /help to /contact
    bob: 1 click in 0 minutes, from / to /
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import EventTimeSessionWindows, TimeWindow

MINUTE = 60_000
GAP = Time.minutes(10)


class Click(NamedTuple):
    visitor: str
    page: str
    time: int


CLICKS = [
    Click("ann", "/", 0 * MINUTE),
    Click("ann", "/cart", 9 * MINUTE),
    # Out of order: between ann's first two clicks.
    Click("ann", "/shoes", 4 * MINUTE),
    Click("ann", "/help", 30 * MINUTE),
    Click("ann", "/contact", 33 * MINUTE),
    Click("bob", "/", 34 * MINUTE),
]


class Session(NamedTuple):
    clicks: int
    first: Click
    last: Click


class Visit(AggregateFunction[Click, Session | None, Session]):
    """Counts clicks and stores only the first and the last."""

    def create_accumulator(self) -> Session | None:
        return None

    def add(self, value: Click, accumulator: Session | None) -> Session | None:
        return self.merge(accumulator, Session(1, value, value))

    def get_result(self, accumulator: Session | None) -> Session:
        assert accumulator is not None  # a window has at least one click
        return accumulator

    def merge(self, acc_a: Session | None, acc_b: Session | None) -> Session | None:
        # Called when a click between two sessions merges them.
        if acc_a is None or acc_b is None:
            return acc_a or acc_b
        first = min(acc_a.first, acc_b.first, key=lambda click: click.time)
        last = max(acc_a.last, acc_b.last, key=lambda click: click.time)
        return Session(acc_a.clicks + acc_b.clicks, first, last)


class Describe(ProcessWindowFunction[Session, str, str, TimeWindow]):
    """Formats the result of the aggregate with the window."""

    def process(self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Session]) -> Iterator[str]:
        for clicks, first, last in elements:
            # A session window ends one gap after its last click.
            minutes = (context.window().end - GAP.to_milliseconds() - context.window().start) // MINUTE
            plural = "" if clicks == 1 else "s"
            yield f"{key}: {clicks} click{plural} in {minutes} minutes, from {first.page} to {last.page}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(5)).with_timestamp_assigner(
        lambda click, _: click.time
    )
    clicks = env.from_collection(CLICKS).assign_timestamps_and_watermarks(by_time)
    visits = clicks.key_by(lambda click: click.visitor).window(EventTimeSessionWindows.with_gap(GAP))
    visits.aggregate(Visit(), Describe()).name("visits").print()
    env.execute("sessions")


if __name__ == "__main__":
    main()
