"""The demo: orders that arrive out of order, summed by city in event-time windows of two seconds.

Run it with `make demo`, or `millstream run examples/demo.py`.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from millstream.common import Configuration, Duration, Time, WatermarkStrategy
from millstream.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.window import TumblingEventTimeWindows

CITIES = ["Ghent", "Porto", "Graz", "Turku"]
# In a terminal the job runs long enough to open the page.
ORDERS, PER_SECOND = (3_000 if sys.stdin.isatty() else 1_200), 100
LATE = OutputTag("late")


class Order(NamedTuple):
    """An order and its time in ms, which is mostly up to a second before its arrival, rarely more."""

    city: str
    amount: int
    created_at: int


def make_order(i: int) -> Order:
    dice = random.Random(i)
    late = dice.choice([0] * 30 + [100, 500, 1000] * 5 + [4000])
    return Order(dice.choice(CITIES), dice.randint(5, 200), 1_700_000_000_000 + i * 1000 // PER_SECOND - late)


class Totals(ProcessWindowFunction[Order, str, str, Any]):
    """Formats the orders of a city in a window."""

    def process(self, key: str, context: Any, elements: Iterable[Order]) -> Iterator[str]:
        amounts = [order.amount for order in elements]
        until = time.strftime("%H:%M:%S", time.gmtime(context.window().end / 1000))
        yield f"{key:6} {len(amounts):4} orders {sum(amounts):6} EUR  in the two seconds until {until}"


def main() -> None:
    # A page shows the running job; the program prints its address.
    settings = {"rest.port": "auto", "execution.checkpointing.interval": "3 s"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_assigner(
        lambda order, _: order.created_at
    )
    orders = env.from_source(DataGeneratorSource(make_order, ORDERS, PER_SECOND), by_time, "orders")
    print(f"{ORDERS} orders will arrive at {PER_SECOND} a second, some late; totals by city as windows close.")
    print("Open the address below in a browser to see the job at work:", flush=True)
    windows = orders.key_by(lambda order: order.city).window(TumblingEventTimeWindows.of(Time.seconds(2)))
    totals = windows.side_output_late_data(LATE).process(Totals()).name("totals of two seconds")
    totals.print().name("print totals")
    totals.get_side_output(LATE).map(lambda order: f"too late for its window: {order}").name("too late").print()
    result = env.execute("demo")
    print(result)
    if sys.stdin.isatty():
        input("The page stays until you press Enter. ")
    print("Next: change examples/demo.py and run it again, or see its plan: .venv/bin/millstream info examples/demo.py")


if __name__ == "__main__":
    main()
