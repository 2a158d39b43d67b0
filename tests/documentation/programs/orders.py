"""Orders by city, for pictures of the page: one vertex is slow, one city has most orders, and some orders are late."""

import random
import time
from typing import NamedTuple

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.window import TumblingEventTimeWindows

CITIES = ["Porto"] * 12 + ["Ghent", "Graz", "Turku"]


class Order(NamedTuple):
    city: str
    amount: int
    at: int


def order(i: int) -> Order:
    dice = random.Random(i)
    late = 8000 if i % 90 == 89 else dice.choice([0, 100, 500])
    return Order(dice.choice(CITIES), dice.randint(5, 200), int(time.time() * 1000) - late)


def in_euros(total: Order) -> Order:
    time.sleep(0.014)
    return total._replace(amount=total.amount * 9 // 10)


def add(a: Order, b: Order) -> Order:
    return Order(a.city, a.amount + b.amount, max(a.at, b.at))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(1000)
by_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_assigner(
    lambda o, _: o.at
)
orders = env.from_source(DataGeneratorSource(order, rate_per_second=60), by_time, "orders").uid("orders")
large = orders.filter(lambda o: o.amount > 10).name("large enough")
cities = large.key_by(lambda o: o.city)
windows = cities.window(TumblingEventTimeWindows.of(Time.seconds(5))).reduce(add).name("totals by city").uid("totals")
always = cities.reduce(add).name("all time").uid("all")
windows.union(always).map(in_euros).name("price in euros").add_sink(lambda o: None).name("to nowhere")
env.execute("orders by city")
