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
    as_rich_function,
)
from millstream.datastream.stream_base import add_operator, check_same_program, is_keyed, unkeyed_input
from millstream.operators.base import Operator
from millstream.operators.broadcast import BroadcastProcessOperator
from millstream.operators.process import CoFlatMapOperator, CoMapOperator, ProcessOperator
from millstream.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream

__all__ = ["BroadcastConnectedStream", "BroadcastStream", "ConnectedStreams"]


class BroadcastStream(Generic[T_co]):
    """A stream that is sent to every subtask, with its broadcast state descriptors."""

    def __init__(self, input_stream: DataStream[T_co], broadcast_state_descriptors: list[MapStateDescriptor]) -> None:
        self._stream = input_stream
        self._descriptors = broadcast_state_descriptors


class BroadcastConnectedStream(Generic[A_co, B_co]):
    """A stream connected with a broadcast stream."""

    def __init__(self, stream: DataStream[A_co], broadcast: BroadcastStream[B_co]) -> None:
        check_same_program(stream, broadcast._stream, "connect")
        self._first = stream
        self._broadcast = broadcast

    def process(
        self,
        func: BroadcastProcessFunction[A_co, B_co, OUT] | KeyedBroadcastProcessFunction[Key, A_co, B_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Process both with a BroadcastProcessFunction; if the first is keyed, a KeyedBroadcastProcessFunction."""
        function = as_rich_function(func, ("process_element", "process_broadcast_element"), "process")
        names = [d.name for d in self._broadcast._descriptors]
        keyed = is_keyed(self._first)
        operator = BroadcastProcessOperator(function, keyed, names)
        name = "Keyed-Co-Process-Broadcast" if keyed else "Co-Process-Broadcast"
        return add_operator(self._first, name, operator, output_type, self._broadcast._stream)


class ConnectedStreams(Generic[A_co, B_co]):
    """Two streams side by side."""

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
        """Partition both streams, each by its selector; equal keys share state."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction[A_co, B_co, OUT], output_type: TypeInformation | None = None) -> DataStream[OUT]:
        """Call `map1` for the first stream's records and `map2` for the second's."""
        function = as_rich_function(func, CoMapOperator.METHODS, "map")
        return self._add_operator("Co-Map", CoMapOperator(function, self._keyed), output_type)

    def flat_map(
        self, func: CoFlatMapFunction[A_co, B_co, OUT], output_type: TypeInformation | None = None
    ) -> DataStream[OUT]:
        """Call `flat_map1` for the first stream's records and `flat_map2` for the second's."""
        function = as_rich_function(func, CoFlatMapOperator.METHODS, "flat_map")
        return self._add_operator("Co-Flat Map", CoFlatMapOperator(function, self._keyed), output_type)

    def process(
        self,
        func: CoProcessFunction[A_co, B_co, OUT] | KeyedCoProcessFunction[Key, A_co, B_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Call `process_element1` for the first stream's records and `process_element2` for the second's."""
        methods = ("process_element1", "process_element2")
        operator = ProcessOperator(as_rich_function(func, methods, "process"), self._keyed, methods)
        return self._add_operator("Keyed Co-Process" if self._keyed else "Co-Process", operator, output_type)

    def _add_operator(self, name: str, operator: Operator, output_type: TypeInformation | None) -> DataStream[Value]:
        first, second = self.stream1, self.stream2
        if not self._keyed:
            first, second = unkeyed_input(first), unkeyed_input(second)
        return add_operator(first, name, operator, output_type, second)
