"""Top N: the two best-selling items of the last hour, every half hour.

Shows:    two consecutive windows. The first counts per item, in parallel; the second ranks the counts. The first
          slides; the second tumbles by the slide, so that it contains the counts of one window of the first only.
Change:   N; SIZE and SLIDE. If they are equal, the first window tumbles too: the best of every hour.
Run:      python examples/top_n.py

Expected output:

    until 0:30  1. pears (3)  2. apples (2)
    until 1:00  1. pears (3)  2. apples (2)
    until 1:30  1. apples (1)  2. plums (1)
    until 2:00  1. plums (2)  2. apples (1)
    until 2:30  1. plums (1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import SlidingEventTimeWindows, TimeWindow, TumblingEventTimeWindows

N = 2
SIZE, SLIDE = Time.hours(1), Time.minutes(30)


class Sale(NamedTuple):
    item: str
    minute: int


class Count(NamedTuple):
    item: str
    sold: int


SALES = [Sale(item, minute) for minute, item in enumerate(["apples", "pears", "plums", "pears", "apples", "pears"])]
SALES += [Sale("plums", 61), Sale("apples", 75), Sale("plums", 119)]


class Counter(AggregateFunction[Any, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithItem(ProcessWindowFunction[int, Count, str, TimeWindow]):
    """Adds the item to its count: an aggregate has no access to its key."""

    def process(self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[int]) -> Iterator[Count]:
        for sold in elements:
            yield Count(key, sold)


class Top(ProcessAllWindowFunction[Count, str, TimeWindow]):
    """Ranks the counts of one window."""

    def process(self, context: ProcessAllWindowFunction.Context, elements: Iterable[Count]) -> Iterator[str]:
        # Equal counts are ordered by name, so that the result does not depend on arrival order.
        best = sorted(elements, key=lambda count: (-count.sold, count.item))[:N]
        ranks = "  ".join(f"{rank}. {item} ({sold})" for rank, (item, sold) in enumerate(best, 1))
        hours, minutes = divmod(context.window().end // 60_000, 60)
        yield f"until {hours}:{minutes:02}  {ranks}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1)).with_timestamp_assigner(
        lambda sale, _: sale.minute * 60_000
    )
    sales = env.from_collection(SALES).assign_timestamps_and_watermarks(by_time)
    windows = sales.key_by(lambda sale: sale.item).window(SlidingEventTimeWindows.of(SIZE, SLIDE))
    counts = windows.aggregate(Counter(), WithItem())
    # A window's results have the timestamp of its end. If the second window slid too, it would mix several windows.
    counts.window_all(TumblingEventTimeWindows.of(SLIDE)).process(Top()).name("top").print()
    env.execute("top n")


if __name__ == "__main__":
    main()
