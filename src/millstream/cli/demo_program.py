"""The program of `millstream demo`: orders that arrive out of order, in SQL windows by city."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from millstream.common.aliases import Value
from millstream.common.configuration import Configuration
from millstream.common.time import Duration
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.collection import DriverSink
from millstream.connectors.datagen.source import DataGeneratorSource
from millstream.datastream.collect import LocalJobClient
from millstream.datastream.functions import ProcessFunction
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.jobmaster.job import JobMaster
from millstream.operators.process import ProcessContext
from millstream.table import Schema, StreamTableEnvironment

CITIES = ["Ghent", "Porto", "Graz", "Turku"]
PRODUCTS = ["bread", "cheese", "olives", "wine"]
# Orders per second. Event time passes ten times as fast as the clock.
RATE = 200
STEP_MS = 10_000 // RATE
START_MS = 1_750_000_000_000
# Orders that are later than this are too late for their window.
LATENESS_MS = 5_000
LATE = OutputTag("late")

BY_CITY = """\
SELECT window_end, city, COUNT(*) AS orders, SUM(amount) AS total
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, city"""
BY_PRODUCT = """\
SELECT window_end, product, COUNT(*) AS orders, MAX(amount) AS largest
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ordered_at), INTERVAL '30' SECOND))
GROUP BY window_start, window_end, product"""


class Order(NamedTuple):
    """An order; its time is in milliseconds since 1970."""

    id: int
    city: str
    product: str
    amount: int
    ordered_at: int


def make_order(number: int) -> Order:
    """Return an order; most arrive up to 4 s late, few a minute."""
    dice = random.Random(number)
    delay = dice.choice([0] * 50 + [1_000, 2_000, 4_000] * 16 + [60_000] * 2)
    created = START_MS + number * STEP_MS - delay
    return Order(number, dice.choice(CITIES), dice.choice(PRODUCTS), dice.randint(5, 200), created)


class SplitLate(ProcessFunction[Order, Row]):
    """Emits orders as rows, and those behind the watermark to a side output.

    Args:
        failure: a file; while it exists, the function fails and deletes it.
    """

    def __init__(self, failure: str) -> None:
        self._failure = failure

    def process_element(self, value: Order, ctx: ProcessContext) -> Iterator[Value]:
        if os.path.exists(self._failure):
            os.remove(self._failure)
            raise RuntimeError(f"the tour lets the function fail at order {value.id}")
        if value.ordered_at <= ctx.timer_service().current_watermark():
            yield LATE, value
        else:
            yield Row(*value)


@dataclass
class Results:
    """What the jobs have written; the sinks add to it, on other threads.

    Attributes:
        windows: rows of BY_CITY: orders and total by end of the window and city.
        products: rows of BY_PRODUCT: orders and largest amount by end of the window and product.
        late: the orders that were too late, by id.
        repeated: the number of rows and orders that were written again.
    """

    windows: dict[tuple[Value, str], tuple[int, int]]
    products: dict[tuple[Value, str], tuple[int, int]]
    late: dict[int, Order]
    repeated: int
    lock: threading.Lock

    @classmethod
    def empty(cls) -> Results:
        return cls({}, {}, {}, 0, threading.Lock())

    def add_windows(self, rows: list[Row]) -> None:
        self._add_rows(self.windows, rows)

    def add_products(self, rows: list[Row]) -> None:
        self._add_rows(self.products, rows)

    def _add_rows(self, target: dict[tuple[Value, str], tuple[int, int]], rows: list[Row]) -> None:
        with self.lock:
            for end, name, orders, amount in rows:
                self.repeated += (end, name) in target
                target[end, name] = orders, amount

    def add_late(self, orders: list[Order]) -> None:
        with self.lock:
            for order in orders:
                self.repeated += order.id in self.late
                self.late[order.id] = order


def expected_totals(count: int) -> dict[str, tuple[int, int]]:
    """Return orders and total of each city among the first orders of the generator."""
    totals = dict.fromkeys(CITIES, (0, 0))
    for order in map(make_order, range(count)):
        orders, total = totals[order.city]
        totals[order.city] = orders + 1, total + order.amount
    return totals


def written_totals(results: Results) -> dict[str, tuple[int, int]]:
    """Return orders and total of each city in all windows and among the late orders."""
    totals = dict.fromkeys(CITIES, (0, 0))
    parts = [(city, *written) for (_, city), written in results.windows.items()]
    parts += [(order.city, 1, order.amount) for order in results.late.values()]
    for city, orders, amount in parts:
        before = totals[city]
        totals[city] = before[0] + orders, before[1] + amount
    return totals


def start(settings: dict[str, str], results: Results, failure: str, with_products: bool) -> JobMaster:
    """Start the job.

    Args:
        settings: the settings of the job.
        results: receives its output.
        failure: a file that lets a function fail once it exists.
        with_products: whether the program also has the second query.
    """
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    t_env = StreamTableEnvironment.create(env)
    by_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(LATENESS_MS))
    source = DataGeneratorSource(make_order, rate_per_second=RATE)
    generated = env.from_source(source, by_time.with_timestamp_assigner(_time_of), "orders").uid("orders")
    types = [Types.LONG(), Types.STRING(), Types.STRING(), Types.INT(), Types.LONG()]
    in_time = generated.process(SplitLate(failure), Types.ROW_NAMED(list(Order._fields), types))
    in_time.name("split late orders").uid("split")
    schema = (
        Schema.new_builder()
        .column("city", "STRING")
        .column("product", "STRING")
        .column("amount", "INT")
        .column_by_metadata("ordered_at", "TIMESTAMP_LTZ(3)", "rowtime")
        .watermark("ordered_at", "SOURCE_WATERMARK()")
        .build()
    )
    t_env.create_temporary_view("orders", t_env.from_data_stream(in_time, schema))
    t_env.to_data_stream(t_env.sql_query(BY_CITY)).sink_to(DriverSink(results.add_windows)).name("by city")
    in_time.get_side_output(LATE).sink_to(DriverSink(results.add_late)).name("late orders")
    if with_products:
        t_env.to_data_stream(t_env.sql_query(BY_PRODUCT)).sink_to(DriverSink(results.add_products)).name("by product")
    client = env.execute_async("demo")
    assert isinstance(client, LocalJobClient)
    return client.job


def _time_of(order: Order, _: int) -> int:
    return order.ordered_at
