"""Deduplication: emits each order once, however often it is sent; order numbers expire after an hour.

Shows:    keyed state with a time to live, so that state does not grow forever.
Change:   SEEN_FOR to the longest delay of a duplicate, in processing time.
Run:      python examples/deduplication.py

Expected output:

    order 1: 12.50
    order 2: 8.00
    order 3: 12.50
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millstream.common import Time
from millstream.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.state import StateTtlConfig, ValueStateDescriptor

SEEN_FOR = Time.hours(1)


class Order(NamedTuple):
    number: int
    amount: float


# The first order is sent three times, the second twice; the third is another order that costs the same as the first.
ORDERS = [Order(1, 12.50), Order(2, 8.00), Order(1, 12.50), Order(1, 12.50), Order(3, 12.50), Order(2, 8.00)]


class Deduplicate(KeyedProcessFunction[int, Order, Order]):
    """Emits the first order of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen")
        # The hour begins when the value is written. With update_ttl_on_read_and_write() every duplicate would restart
        # it, and a number that arrives all the time would never expire.
        descriptor.enable_time_to_live(
            StateTtlConfig.new_builder(SEEN_FOR).update_ttl_on_create_and_write().never_return_expired().build()
        )
        # One flag per order number. A set in self would grow forever, and would be lost in a failure.
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Order, ctx: KeyedProcessFunction.Context) -> Iterator[Order]:
        if self.seen.value() is None:
            self.seen.update(True)
            yield value


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = env.from_collection(ORDERS)
    # Records with equal keys are duplicates.
    unique = orders.key_by(lambda order: order.number).process(Deduplicate()).name("deduplicate").uid("deduplicate")
    unique.map(lambda order: f"order {order.number}: {order.amount:.2f}").print()
    env.execute("deduplication")


if __name__ == "__main__":
    main()
