"""Interval join: which advertisement was clicked within thirty seconds of being shown, and how long did it take?

Shows:    two keyed streams joined by key and nearness in event time. There are no windows, so no edges either: an ad
          shown at 59 s and clicked at 61 s is found too.
Change:   the bounds in between(); a negative lower bound also finds clicks that are before their view.
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
    at: int


class Click(NamedTuple):
    view: int
    at: int


VIEWS = [View(1, 59_000), View(2, 70_000), View(3, 75_000), View(4, 80_000)]
CLICKS = [
    Click(1, 61_000),
    Click(2, 82_000),
    Click(3, 120_000),  # after 45 s: too late to count
    Click(2, 100_000),  # after 30 s: the bounds are included. It comes out of order
]  # view 4 is never clicked


class Clicked(ProcessJoinFunction[View, Click, str]):
    """Is called for every pair."""

    def process_element(self, left: View, right: Click, ctx: ProcessJoinFunction.Context) -> Iterator[str]:
        seconds = (ctx.get_right_timestamp() - ctx.get_left_timestamp()) // 1000
        yield f"view {left.number} was clicked after {seconds} s"


def timed(stream: DataStream) -> DataStream:
    # Both sides need timestamps. A side's records are kept only until the watermark says that no partner can come.
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda record, _: record.at))


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
