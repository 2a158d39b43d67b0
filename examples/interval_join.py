"""Interval join: the advertisements that were clicked within thirty seconds of being shown, with the delay.

Shows:    two keyed streams joined by key and an event-time interval. There are no window boundaries: an ad shown at
          59 s and clicked at 61 s matches.
Change:   the bounds in between(); a negative lower bound also matches clicks before their view.
Run:      python examples/interval_join.py

Expected output:

    view 1 was clicked after 2 s
    view 2 was clicked after 12 s
    view 2 was clicked after 30 s
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.datastream import DataStream, ProcessJoinFunction, StreamExecutionEnvironment


class View(NamedTuple):
    number: int
    time: int


class Click(NamedTuple):
    view: int
    time: int


VIEWS = [View(1, 59_000), View(2, 70_000), View(3, 75_000), View(4, 80_000)]
CLICKS = [
    Click(1, 61_000),
    Click(2, 82_000),
    Click(3, 120_000),  # after 45 s: too late to count
    Click(2, 100_000),  # after 30 s: bounds are inclusive; arrives out of order
]  # view 4 is never clicked


class Clicked(ProcessJoinFunction[View, Click, str]):
    """Processes every matching pair."""

    def process_element(self, left: View, right: Click, ctx: ProcessJoinFunction.Context) -> Iterator[str]:
        seconds = (ctx.get_right_timestamp() - ctx.get_left_timestamp()) // 1000
        yield f"view {left.number} was clicked after {seconds} s"


def timed(stream: DataStream) -> DataStream:
    # Both sides need timestamps. Records are buffered until the watermark rules out further matches.
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda record, _: record.time))


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    views = timed(env.from_collection(VIEWS)).key_by(lambda view: view.number)
    clicks = timed(env.from_collection(CLICKS)).key_by(lambda click: click.view)
    joined = views.interval_join(clicks).between(Time.seconds(0), Time.seconds(30))
    joined.process(Clicked()).name("clicked").print()
    env.execute("interval join")


if __name__ == "__main__":
    main()
