"""The demo: a small shop's orders, arriving out of order, added up by city as they come.

Run it with `make demo`, or `millstream run examples/demo.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from millstream.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor

CITIES = ["Ghent", "Porto", "Graz", "Turku"]
ORDERS, PER_SECOND = 1_200, 100


class Order(NamedTuple):
    """An order, with the time (in ms) at which it was made: up to five seconds before it arrives."""

    city: str
    amount: int
    made_at: int


def make_order(i: int) -> Order:
    dice = random.Random(i)
    late = dice.choice([0, 0, 0, 100, 1000, 5000])
    return Order(dice.choice(CITIES), dice.randint(5, 200), 1_700_000_000_000 + i * 1000 // PER_SECOND - late)


class RunningTotals(KeyedProcessFunction[str, Order, str]):
    """Keeps a city's sum, count and most recent order; reports every 50th order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_state(ValueStateDescriptor("totals"))

    def process_element(self, value: Order, ctx: Any) -> Iterator[str]:
        count, total, latest, late = self.totals.value() or (0, 0, 0, 0)
        late += value.made_at < latest
        count, total, latest = count + 1, total + value.amount, max(latest, value.made_at)
        self.totals.update((count, total, latest, late))
        if count % 50 == 0:
            clock = time.strftime("%H:%M:%S", time.gmtime(latest / 1000))
            yield f"{ctx.get_current_key():6} {count:4} orders {total:7} EUR  up to {clock}  ({late} came late)"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = env.from_source(DataGeneratorSource(make_order, ORDERS, PER_SECOND), source_name="orders")
    print(f"{ORDERS} orders will arrive at {PER_SECOND} a second; totals by city as they come:")
    orders.key_by(lambda order: order.city).process(RunningTotals()).name("totals").print()
    result = env.execute("demo")
    print(result)
    print("Next: change examples/demo.py and run it again, or see its plan: .venv/bin/millstream info examples/demo.py")


if __name__ == "__main__":
    main()
