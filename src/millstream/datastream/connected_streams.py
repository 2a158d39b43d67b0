"""Two streams side by side: ConnectedStreams, and a stream beside a broadcast one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions import as_rich_function
from millstream.operators.base import Operator
from millstream.operators.broadcast import BroadcastProcessOperator
from millstream.operators.process import CoFlatMapOperator, CoMapOperator, ProcessOperator
from millstream.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream

__all__ = ["BroadcastConnectedStream", "BroadcastStream", "ConnectedStreams"]


class BroadcastStream:
    """A stream that reaches every subtask, and the states it fills there."""

    def __init__(self, stream: DataStream, descriptors: list[MapStateDescriptor]) -> None:
        self._stream = stream
        self._descriptors = descriptors


class BroadcastConnectedStream:
    """A stream beside a broadcast one."""

    def __init__(self, stream: DataStream, broadcast: BroadcastStream) -> None:
        stream._check_same_program(broadcast._stream, "connect")
        self._first = stream
        self._broadcast = broadcast

    def process(self, func: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Process both with a BroadcastProcessFunction; if the first is keyed, a KeyedBroadcastProcessFunction."""
        function = as_rich_function(func, ("process_element", "process_broadcast_element"), "process")
        names = [d.name for d in self._broadcast._descriptors]
        operator = BroadcastProcessOperator(function, self._first._keyed, names)
        return self._first._then("Co-Process-Broadcast", operator, output_type, self._broadcast._stream)


class ConnectedStreams:
    """Two streams side by side."""

    def __init__(self, first: DataStream, second: DataStream) -> None:
        if first._keyed != second._keyed:
            raise InvalidProgramError("connect(): either both streams are keyed or neither is.")
        self.stream1 = first
        self.stream2 = second

    @property
    def _keyed(self) -> bool:
        return self.stream1._keyed

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: TypeInformation | None = None
    ) -> ConnectedStreams:
        """Partition both streams, each by its own selector; equal keys share state."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Call `map1` for the first stream's records and `map2` for the second's."""
        function = as_rich_function(func, CoMapOperator.METHODS, "map")
        return self._then("Co-Map", CoMapOperator(function, self._keyed), output_type)

    def flat_map(self, func: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Call `flat_map1` for the first stream's records and `flat_map2` for the second's."""
        function = as_rich_function(func, CoFlatMapOperator.METHODS, "flat_map")
        return self._then("Co-Flat Map", CoFlatMapOperator(function, self._keyed), output_type)

    def process(self, func: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Call `process_element1` for the first stream's records and `process_element2` for the second's."""
        methods = ("process_element1", "process_element2")
        operator = ProcessOperator(as_rich_function(func, methods, "process"), self._keyed, methods)
        return self._then("Co-Process", operator, output_type)

    def _then(self, name: str, operator: Operator, output_type: TypeInformation | None) -> DataStream:
        return self.stream1._then(name, operator, output_type, self.stream2)
