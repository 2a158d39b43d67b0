"""ConnectedStreams: two streams, or a stream and a broadcast stream, with one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from millstream.common.aliases import OUT, A_co, B_co, Key, T_co, Value
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from millstream.datastream.stream_base import add_operator, check_same_program, is_keyed, unkeyed_input
from millstream.datastream.stream_functions import as_rich_function
from millstream.operators.base import Operator
from millstream.operators.broadcast import BroadcastProcessOperator
from millstream.operators.process import CoFlatMapOperator, CoMapOperator, ProcessOperator
from millstream.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream

__all__ = ["BroadcastConnectedStream", "BroadcastStream", "ConnectedStreams"]


class BroadcastStream(Generic[T_co]):
    """A stream that is sent to every subtask, with the descriptors of its broadcast state, created by `broadcast()`.

    Example:
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> rates = env.from_collection([("eur", 2)]).broadcast(MapStateDescriptor("rates"))
        >>> type(env.from_collection([10]).connect(rates)).__name__
        'BroadcastConnectedStream'
    """

    def __init__(self, input_stream: DataStream[T_co], broadcast_state_descriptors: list[MapStateDescriptor]) -> None:
        self._stream = input_stream
        self._descriptors = broadcast_state_descriptors


class BroadcastConnectedStream(Generic[A_co, B_co]):
    """A stream connected with a broadcast stream, created by `connect()`.

    Example:
        >>> from millstream.datastream import BroadcastProcessFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> from millstream.testing import BroadcastHarness
        >>> rates = MapStateDescriptor("rates")
        >>> class Convert(BroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield value * ctx.get_broadcast_state(rates).get("eur")
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(rates).put(*value)
        >>> with BroadcastHarness(Convert(), [rates]) as harness:
        ...     harness.process_broadcast_element(("eur", 2))
        ...     harness.process_element(10)
        ...     harness.output()
        [20]
    """

    def __init__(self, stream: DataStream[A_co], broadcast: BroadcastStream[B_co]) -> None:
        check_same_program(stream, broadcast._stream, "connect")
        self._first = stream
        self._broadcast = broadcast

    def process(
        self,
        func: BroadcastProcessFunction[A_co, B_co, OUT] | KeyedBroadcastProcessFunction[Key, A_co, B_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Process both with a BroadcastProcessFunction; if the first is keyed, with a KeyedBroadcastProcessFunction.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> limits = MapStateDescriptor("limits")
            >>> class Log(BroadcastProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         yield f"value {value}"
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(limits).put("max", value)
            ...         yield f"limit {value}"
            >>> both = env.from_collection([7]).connect(env.from_collection([5]).broadcast(limits))
            >>> sorted(both.process(Log()).execute_and_collect())
            ['limit 5', 'value 7']
        """
        function = as_rich_function(func, ("process_element", "process_broadcast_element"), "process")
        names = [d.name for d in self._broadcast._descriptors]
        keyed = is_keyed(self._first)
        operator = BroadcastProcessOperator(function, keyed, names)
        name = "Keyed-Co-Process-Broadcast" if keyed else "Co-Process-Broadcast"
        return add_operator(self._first, name, operator, output_type, self._broadcast._stream)


class ConnectedStreams(Generic[A_co, B_co]):
    """Two streams side by side, of any types, created by `connect()`: one function sees both, and may share state.

    Example:
        >>> from millstream.datastream import CoFlatMapFunction
        >>> class Words(CoFlatMapFunction):
        ...     def flat_map1(self, value):
        ...         return value.split()
        ...     def flat_map2(self, value):
        ...         yield str(value)
        >>> both = env.from_collection(["to be"]).connect(env.from_collection([1, 2]))
        >>> sorted(both.flat_map(Words()).execute_and_collect())
        ['1', '2', 'be', 'to']
    """

    def __init__(self, stream1: DataStream[A_co], stream2: DataStream[B_co]) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    @property
    def _keyed(self) -> bool:
        """Whether functions have keyed state: as in Flink, if both streams are keyed."""
        return is_keyed(self.stream1) and is_keyed(self.stream2)

    def key_by(
        self,
        key_selector1: Callable[[A_co], Key] | KeySelector[A_co, Key] | int | str,
        key_selector2: Callable[[B_co], Key] | KeySelector[B_co, Key] | int | str,
        key_type: TypeInformation | None = None,
    ) -> ConnectedStreams[A_co, B_co]:
        """Partition both streams, each by its selector: equal keys share state.

        Args:
            key_selector1: the key of the first stream's records: a function, a KeySelector, or a field's index or name.
            key_selector2: the key of the second stream's records.
            key_type: the type of the keys, which are coerced to it.

        Example:
            >>> from millstream.datastream import KeyedCoProcessFunction
            >>> class Keys(KeyedCoProcessFunction):
            ...     def process_element1(self, value, ctx):
            ...         yield ctx.get_current_key(), "order"
            ...     process_element2 = process_element1
            >>> both = env.from_collection([("ann", 1)]).connect(env.from_collection([{"user": "ann"}]))
            >>> keyed = both.key_by(lambda order: order[0], lambda payment: payment["user"])
            >>> list(keyed.process(Keys()).execute_and_collect())
            [('ann', 'order'), ('ann', 'order')]
        """
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction[A_co, B_co, OUT], output_type: TypeInformation | None = None) -> DataStream[OUT]:
        """Call `map1` for the first stream's records and `map2` for the second's.

        Example:
            >>> from millstream.datastream import CoMapFunction
            >>> class Label(CoMapFunction):
            ...     def map1(self, value):
            ...         return f"order {value}"
            ...     def map2(self, value):
            ...         return f"payment {value}"
            >>> orders, payments = env.from_collection([1, 2]), env.from_collection([30])
            >>> sorted(orders.connect(payments).map(Label()).execute_and_collect())
            ['order 1', 'order 2', 'payment 30']
        """
        function = as_rich_function(func, CoMapOperator.METHODS, "map")
        return self._add_operator("Co-Map", CoMapOperator(function, self._keyed), output_type)

    def flat_map(
        self, func: CoFlatMapFunction[A_co, B_co, OUT], output_type: TypeInformation | None = None
    ) -> DataStream[OUT]:
        """Call `flat_map1` for the first stream's records and `flat_map2` for the second's.

        Example:
            >>> from millstream.datastream import CoFlatMapFunction
            >>> class Words(CoFlatMapFunction):
            ...     def flat_map1(self, value):
            ...         return value.split()
            ...     def flat_map2(self, value):
            ...         yield str(value)
            >>> both = env.from_collection(["to be"]).connect(env.from_collection([1, 2]))
            >>> sorted(both.flat_map(Words()).execute_and_collect())
            ['1', '2', 'be', 'to']
        """
        function = as_rich_function(func, CoFlatMapOperator.METHODS, "flat_map")
        return self._add_operator("Co-Flat Map", CoFlatMapOperator(function, self._keyed), output_type)

    def process(
        self,
        func: CoProcessFunction[A_co, B_co, OUT] | KeyedCoProcessFunction[Key, A_co, B_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Call `process_element1` for the first stream's records and `process_element2` for the second's.

        Example:
            >>> from millstream.datastream import CoProcessFunction
            >>> class Label(CoProcessFunction):
            ...     def process_element1(self, value, ctx):
            ...         yield f"order {value}"
            ...     def process_element2(self, value, ctx):
            ...         yield f"payment {value}"
            >>> orders, payments = env.from_collection([1, 2]), env.from_collection([30])
            >>> sorted(orders.connect(payments).process(Label()).execute_and_collect())
            ['order 1', 'order 2', 'payment 30']
        """
        methods = ("process_element1", "process_element2")
        operator = ProcessOperator(as_rich_function(func, methods, "process"), self._keyed, methods)
        return self._add_operator("Keyed Co-Process" if self._keyed else "Co-Process", operator, output_type)

    def _add_operator(self, name: str, operator: Operator, output_type: TypeInformation | None) -> DataStream[Value]:
        first, second = self.stream1, self.stream2
        if not self._keyed:
            first, second = unkeyed_input(first), unkeyed_input(second)
        return add_operator(first, name, operator, output_type, second)
