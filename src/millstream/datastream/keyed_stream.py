"""KeyedStream: a stream partitioned by key, with state, windows, joins and aggregates of each key."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Union, cast, overload

from millstream.common.aliases import KEY, OUT, Key, KEY_co, R, T_co, UserCode, Value, W
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.base import Sink
from millstream.datastream.collect import CloseableIterator
from millstream.datastream.data_stream import CachedDataStream, DataStream
from millstream.datastream.functions import (
    KeyedProcessFunction,
    KeySelector,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from millstream.datastream.joined_streams import IntervalJoin
from millstream.datastream.stream_base import add_operator, ends_of, transformation_of
from millstream.datastream.stream_functions import as_user_function, key_of
from millstream.datastream.stream_outputs import DataStreamSink
from millstream.datastream.windowed_stream import WindowedStream
from millstream.graph.transformations import Transformation, UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.reduce import ReduceOperator
from millstream.operators.reducers import choose_by_field, combine_field
from millstream.operators.runtime.partitioners import KeyPartitioner, Partitioner
from millstream.operators.stateless import MapOperator
from millstream.operators.windows.assigners import WindowAssigner
from millstream.operators.windows.count_windows import count_assigner
from millstream.operators.windows.windows import CountWindow

if TYPE_CHECKING:
    from millstream.datastream.program_builder import ProgramBuilder
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["KeyedStream"]


class KeyedStream(DataStream[T_co], Generic[T_co, KEY_co]):
    """A stream partitioned by key, created by `key_by()`: its functions have state and timers of the current key.

    Example:
        >>> words = env.from_collection(["to", "be", "or", "not", "to", "be"])
        >>> counts = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1)
        >>> list(counts.execute_and_collect())[-1]
        ('be', 2)
    """

    class AccumulateType(Enum):
        """The kind of a field's aggregate."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        builder: ProgramBuilder,
        ends: list[UpstreamEdge],
        select: Callable[[Value], Value],
        key_type: TypeInformation | None,
        unkeyed: DataStream[T_co],
    ) -> None:
        super().__init__(environment, builder, ends)
        self._select = select
        self._key_type = key_type
        self._unkeyed = unkeyed

    if TYPE_CHECKING:
        # The same as without keys, for functions that know their key.
        @overload
        def process(
            self,
            func: ProcessFunction[T_co, Value] | KeyedProcessFunction[KEY_co, T_co, Value],
            output_type: RowTypeInfo,
        ) -> DataStream[Row]: ...

        @overload
        def process(
            self,
            func: ProcessFunction[T_co, OUT] | KeyedProcessFunction[KEY_co, T_co, OUT],
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        def process(self, func: object, output_type: TypeInformation | None = None) -> DataStream[Value]: ...

    @property
    def _keyed(self) -> bool:
        return True

    def _set(self, action: str) -> Transformation:
        raise InvalidProgramError(f"{action} KeyedStream is not supported.")

    def cache(self) -> CachedDataStream[T_co]:
        """Raise an error, as in PyFlink: cache the stream before `key_by()`."""
        raise InvalidProgramError("Cache for KeyedStream is not supported.")

    def get_type(self) -> TypeInformation:
        """Return the type of the keyed stream, as in PyFlink: a row of the key and the record.

        Example:
            >>> from millstream.common import Types
            >>> pairs = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
            >>> pairs.key_by(lambda pair: pair[0], Types.STRING()).get_type()
            RowTypeInfo(f0: String, f1: TupleTypeInfo(String, Long))
        """
        return Types.ROW([self._key_type or PickledBytesTypeInfo(), super().get_type()]).named()

    @overload
    def key_by(
        self, key_selector: Callable[[T_co], KEY] | KeySelector[T_co, KEY], key_type: TypeInformation | None = None
    ) -> KeyedStream[T_co, KEY]: ...

    @overload
    def key_by(self, key_selector: int | str, key_type: TypeInformation | None = None) -> KeyedStream[T_co, Key]: ...

    def key_by(self, key_selector: UserCode, key_type: TypeInformation | None = None) -> KeyedStream[T_co, Key]:
        """Partition the records by another key, in place of this one.

        Example:
            >>> pairs = env.from_collection([("a", 1), ("b", 1)])
            >>> by_second = pairs.key_by(lambda pair: pair[0]).key_by(lambda pair: pair[1])
            >>> list(by_second.sum(1).execute_and_collect())
            [('a', 1), ('a', 2)]
        """
        return self._unkeyed.key_by(key_selector, key_type)

    def window(self, window_assigner: WindowAssigner[Value, W]) -> WindowedStream[T_co, KEY_co, W]:
        """Group each key's records into windows.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
            >>> events = env.from_collection([("a", 1), ("a", 4), ("a", 11)]).assign_timestamps_and_watermarks(by_time)
            >>> windows = events.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(10))
            >>> list(windows.reduce(lambda a, b: (a[0], a[1] + b[1])).execute_and_collect())
            [('a', 5), ('a', 11)]
        """
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T_co, KEY_co, CountWindow]:
        """Assign each key's records to windows of `size` records; only full windows fire.

        Args:
            size: the number of records in a window.
            slide: how many records after one window the next begins; 0 for windows without overlap.

        Example:
            >>> sales = env.from_collection([("tea", 3), ("pie", 5), ("tea", 4), ("tea", 9)])
            >>> list(sales.key_by(lambda sale: sale[0]).count_window(2).sum(1).execute_and_collect())
            [('tea', 7)]
        """
        return WindowedStream(self, count_assigner(size, slide))

    def interval_join(self, other: KeyedStream[R, Key]) -> IntervalJoin[T_co, R]:
        """Join with another keyed stream: pairs of equal keys within a bounded distance in event time.

        Not in PyFlink; named as in Flink's Java API.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
            >>> orders = env.from_collection([("ann", 100), ("bob", 200)]).assign_timestamps_and_watermarks(by_time)
            >>> clicks = env.from_collection([("ann", 95), ("bob", 120)]).assign_timestamps_and_watermarks(by_time)
            >>> keyed = orders.key_by(lambda e: e[0]), clicks.key_by(lambda e: e[0])
            >>> joined = keyed[0].interval_join(keyed[1]).between(-10, 0)
            >>> pairs = joined.process(lambda left, right, ctx: [(left, right)])
            >>> list(pairs.execute_and_collect())
            [(('ann', 100), ('ann', 95))]
        """
        self._check_same_program(other, "interval_join")
        if not isinstance(other, KeyedStream):
            raise InvalidProgramError("interval_join() needs another keyed stream: call key_by(...) on it.")
        return IntervalJoin(self, other)

    def reduce(self, func: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co]) -> DataStream[T_co]:
        """Combine each record with the key's value so far, and emit the new value.

        In BATCH only the last value of each key is emitted.

        Example:
            >>> sales = env.from_collection([("tea", 3), ("pie", 5), ("tea", 4)])
            >>> totals = sales.key_by(lambda sale: sale[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
            >>> list(totals.execute_and_collect())
            [('tea', 3), ('pie', 5), ('tea', 7)]
        """
        return self._reduced(as_user_function(func, "reduce", "reduce"))

    def sum(self, position_to_sum: Union[int, str] = 0) -> DataStream[T_co]:
        """Emit the key's first record with this field summed up.

        Example:
            >>> sales = env.from_collection([("tea", 3), ("pie", 5), ("tea", 4)])
            >>> list(sales.key_by(lambda sale: sale[0]).sum(1).execute_and_collect())
            [('tea', 3), ('pie', 5), ('tea', 7)]
        """
        return self._combined("sum", position_to_sum, lambda a, b: a + b)

    def min(self, position_to_min: Union[int, str] = 0) -> DataStream[T_co]:
        """Emit the key's first record with this field at its minimum so far.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 2, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).min(1).execute_and_collect())
            [('tea', 3, 'monday'), ('tea', 2, 'monday')]
        """
        return self._combined("min", position_to_min, lambda a, b: b if b < a else a)

    def max(self, position_to_max: Union[int, str] = 0) -> DataStream[T_co]:
        """Emit the key's first record with this field at its maximum so far.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 4, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).max(1).execute_and_collect())
            [('tea', 3, 'monday'), ('tea', 4, 'monday')]
        """
        return self._combined("max", position_to_max, lambda a, b: b if b > a else a)

    def min_by(self, position_to_min_by: Union[int, str] = 0) -> DataStream[T_co]:
        """Emit the key's record with the minimum of this field so far.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 2, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).min_by(1).execute_and_collect())
            [('tea', 3, 'monday'), ('tea', 2, 'friday')]
        """
        return self._chosen("min_by", position_to_min_by, lambda a, b: a < b)

    def max_by(self, position_to_max_by: Union[int, str] = 0) -> DataStream[T_co]:
        """Emit the key's record with the maximum of this field so far.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 4, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).max_by(1).execute_and_collect())
            [('tea', 3, 'monday'), ('tea', 4, 'friday')]
        """
        return self._chosen("max_by", position_to_max_by, lambda a, b: a > b)

    def _combined(
        self, operation: str, field: Union[int, str], combine: Callable[[Value, Value], Value]
    ) -> DataStream[T_co]:
        self._check_field(operation, field)
        return self._reduced(combine_field(field, operation, combine))

    def _chosen(
        self, operation: str, field: Union[int, str], better: Callable[[Value, Value], bool]
    ) -> DataStream[T_co]:
        self._check_field(operation, field)
        return self._reduced(choose_by_field(field, operation, better))

    def _reduced(self, function: Union[UserFunction, Callable[[Value, Value], Value]]) -> DataStream[T_co]:
        wrapped = function if isinstance(function, UserFunction) else UserFunction(function, None)
        return self._add_operator("Reduce", ReduceOperator(wrapped), self._type())

    def sink_to(self, sink: Sink[T_co]) -> DataStreamSink:
        return self._unkeyed.sink_to(sink)

    def add_sink(
        self,
        sink_func: Callable[[T_co], object] | Callable[[T_co, Any], object] | SinkFunction[T_co] | Sink[T_co],
    ) -> DataStreamSink:
        return self._unkeyed.add_sink(sink_func)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        return self._unkeyed.print(sink_identifier)

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[Value]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Value]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Value]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> Union[CloseableIterator[Value], list[Value]]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> Union[CloseableIterator[Value], list[Value]]:
        """Run the program and iterate over `Row(key, value)`, as in PyFlink.

        Example:
            >>> words = env.from_collection(["tea", "pie"]).key_by(lambda word: word[0])
            >>> list(words.execute_and_collect())
            [Row(f0='t', f1='tea'), Row(f0='p', f1='pie')]
        """
        return self._pairs().execute_and_collect(job_execution_name, limit)

    def _pairs(self) -> DataStream[Row]:
        """Return the stream as rows of key and value, as PyFlink does for operations without keys."""
        key, values = self._select, cast("DataStream[Value]", self._unkeyed)
        pairs: DataStream[Row] = values.map(lambda value: Row(f0=key(value), f1=value)).name("Key and Value")
        transformation_of(pairs).parallelism = ends_of(values)[0].source.parallelism
        return pairs

    def _without_key(self) -> DataStream[T_co]:
        return self._unkeyed

    def _unkeyed_input(self) -> DataStream[Row]:
        """Return the rows of key and value, partitioned by key, to connect with an unkeyed stream."""
        by_key = KeyPartitioner(key_of(0))
        ends = [UpstreamEdge(e.source, by_key, e.tag) for e in ends_of(self._pairs())]
        return DataStream(self._environment, self._builder, ends)

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T_co]:
        raise InvalidProgramError("Cannot override partitioning for KeyedStream.")

    def _add_operator(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None,
        second: DataStream[Value] | None = None,
    ) -> DataStream[Value]:
        if isinstance(operator, MapOperator) and not operator.keyed:
            return add_operator(self._unkeyed, name, operator, output_type, second)
        return super()._add_operator(name, operator, output_type, second)
