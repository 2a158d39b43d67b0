"""Enrichment: prices orders with a price list that every subtask has and that can change at runtime.

Shows:    broadcast state. Orders that arrive before the price of their item are buffered in keyed state.
Change:   PRICES and ORDERS to your own sources, for example prices to a small table that is polled every minute.
Run:      python examples/enrichment.py

Expected output:

    order 1: 2 x apple = 0.80
    order 2: 5 x apple = 2.00
    order 3: 1 x pear = 0.60
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from millstream.datastream import KeyedBroadcastProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.state import ListState, ListStateDescriptor, MapStateDescriptor


class Order(NamedTuple):
    number: int
    item: str
    pieces: int


class Price(NamedTuple):
    item: str
    cents: int


PRICES = [Price("apple", 40), Price("pear", 60)]
ORDERS = [Order(1, "apple", 2), Order(2, "apple", 5), Order(3, "pear", 1)]

# The broadcast side writes this state and the other side reads it, both with this descriptor.
PRICE_LIST = MapStateDescriptor("prices")
BUFFERED = ListStateDescriptor("buffered")


def priced(order: Order, cents: int) -> str:
    return f"order {order.number}: {order.pieces} x {order.item} = {order.pieces * cents / 100:.2f}"


class Enrich(KeyedBroadcastProcessFunction[str, Order, Price, str]):
    """Prices orders and buffers those without a price, because the order between the two streams is undefined."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.buffered = runtime_context.get_list_state(BUFFERED)

    def process_element(self, value: Order, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterator[str]:
        cents: int | None = ctx.get_broadcast_state(PRICE_LIST).get(value.item)
        if cents is None:
            self.buffered.add(value)
        else:
            yield priced(value, cents)

    def process_broadcast_element(self, value: Price, ctx: KeyedBroadcastProcessFunction.Context) -> Iterator[str]:
        # Every subtask receives every price and must handle it identically, so that the state is the same everywhere.
        ctx.get_broadcast_state(PRICE_LIST).put(value.item, value.cents)
        released: list[str] = []

        def release(item: Any, buffered: ListState) -> None:
            if item == value.item:
                released.extend(priced(order, value.cents) for order in buffered.get())
                buffered.clear()

        # The broadcast side has no current key, so this visits all keys of the subtask.
        ctx.apply_to_keyed_state(BUFFERED, release)
        yield from released


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    prices = env.from_collection(PRICES).broadcast(PRICE_LIST)
    orders = env.from_collection(ORDERS).key_by(lambda order: order.item)
    orders.connect(prices).process(Enrich()).name("enrich").uid("enrich").print()
    env.execute("enrichment")


if __name__ == "__main__":
    main()
