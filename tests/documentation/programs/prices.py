"""A function that fails for one order and restarts, for a picture of the page."""

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource

PRICES = {"apples": 3, "pears": 4}


def priced(order: tuple[str, int]) -> tuple[str, int]:
    item, count = order
    return item, count * PRICES[item]


def order(i: int) -> tuple[str, int]:
    return ("plums" if i == 40 else ("apples", "pears")[i % 2], i % 5 + 1)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.enable_checkpointing(500)
orders = env.from_source(DataGeneratorSource(order, rate_per_second=100), WatermarkStrategy.no_watermarks(), "orders")
orders.map(priced).name("prices").uid("prices").print()
env.execute("prices")
