"""Enrichment: orders are priced with a list of prices that every subtask has, and that can change while the job runs.

Shows:    broadcast state. Orders that come before the price of their item wait in keyed state.
Change:   PRICES and ORDERS to sources of your own; say, prices to a small table that is read again every minute.
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

# The broadcast side writes it and the other side reads it; both find it by this descriptor.
PRICE_LIST = MapStateDescriptor("prices")
WAITING = ListStateDescriptor("waiting")


def priced(order: Order, cents: int) -> str:
    return f"order {order.number}: {order.pieces} x {order.item} = {order.pieces * cents / 100:.2f}"


class Enrich(KeyedBroadcastProcessFunction[str, Order, Price, str]):
    """Prices orders; those whose price is not there yet wait for it: the two streams do not wait for each other."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value: Order, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterator[str]:
        cents: int | None = ctx.get_broadcast_state(PRICE_LIST).get(value.item)
        if cents is None:
            self.waiting.add(value)
        else:
            yield priced(value, cents)

    def process_broadcast_element(self, value: Price, ctx: KeyedBroadcastProcessFunction.Context) -> Iterator[str]:
        # Every subtask sees every price, and must do the same with it: then the state is the same everywhere.
        ctx.get_broadcast_state(PRICE_LIST).put(value.item, value.cents)
        released: list[str] = []

        def release(item: Any, waiting: ListState) -> None:
            if item == value.item:
                released.extend(priced(order, value.cents) for order in waiting.get())
                waiting.clear()

        # On this side there is no current key, so all keys of this subtask are visited.
        ctx.apply_to_keyed_state(WAITING, release)
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
