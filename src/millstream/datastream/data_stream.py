"""DataStream, KeyedStream and CachedDataStream: a method that processes records adds one operator.

It returns the operator's output stream. `key_by` adds no operator: it sets the partitioner of the edge to the next one.
Base classes have the operations on one record (`map`, `process`), in `stream_operations.py`, and all other partitioning
and sinks (`sink_to`, `execute_and_collect`), in `stream_outputs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Generic, NoReturn, Union, cast, overload

from millstream.common.aliases import KEY, OUT, Key, KEY_co, R, T_co, UserCode, Value, W
from millstream.common.errors import InvalidProgramError
from millstream.common.scalar_types import check_type
from millstream.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.base import Sink
from millstream.datastream.cached_stream import Cache
from millstream.datastream.collect import CloseableIterator
from millstream.datastream.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from millstream.datastream.functions import (
    KeyedProcessFunction,
    KeySelector,
    ProcessFunction,
    SinkFunction,
)
from millstream.datastream.joined_streams import CoGroupedStreams, IntervalJoin, JoinedStreams
from millstream.datastream.live_view import MAX_ROWS, LiveView
from millstream.datastream.stream_base import add_operator, declared_type, ends_of, transformation_of
from millstream.datastream.stream_functions import key_of
from millstream.datastream.stream_operations import KeyedAggregates, StreamOperations
from millstream.datastream.stream_outputs import DataStreamSink, StreamOutputs
from millstream.datastream.windowed_stream import AllWindowedStream, WindowedStream
from millstream.graph.transformations import Transformation, UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.functions.output_tag import OutputTag, check_tag
from millstream.operators.runtime.partitioners import KeyPartitioner, Partitioner
from millstream.operators.stateless import MapOperator
from millstream.operators.windows.assigners import WindowAssigner
from millstream.operators.windows.count_windows import count_assigner
from millstream.operators.windows.windows import CountWindow

if TYPE_CHECKING:
    from millstream.datastream.program_builder import ProgramBuilder
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]

# Flink's state name for the records of a window.
WINDOW_STATE_NAME = "window-contents"


class DataStream(StreamOperations[T_co], StreamOutputs[T_co]):
    """A stream of records, built by a source or an operator of a StreamExecutionEnvironment.

    Every method that processes records adds an operator and returns its output as a new stream; nothing runs before
    `execute()` or `execute_and_collect()`. Functions may be plain callables or objects such as a MapFunction.

    Example:
        >>> words = env.from_collection(["to be", "or not"]).flat_map(lambda line: line.split())
        >>> list(words.filter(lambda word: len(word) == 2).map(str.upper).execute_and_collect())
        ['TO', 'BE', 'OR']
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            text = f"'{kind}' object has no attribute '{name}'"
            if not name.startswith("_") and hasattr(KeyedStream, name):
                text = f"{kind} has no {name}(), which works on the records of a key: call key_by(...) first"
            raise AttributeError(text, name=name, obj=self)

    # --- properties

    def _repr_svg_(self) -> str:
        """Draw the program up to this stream, for notebooks."""
        return self._builder.draw([end.source for end in self._ends])

    def _without_key(self) -> DataStream[T_co]:
        return self

    def _unkeyed_input(self) -> DataStream[Value]:
        return self

    # --- several streams

    def union(self, *streams: DataStream[T_co]) -> DataStream[T_co]:
        """Return one stream of the records of all, in no particular order; the streams have the same type.

        Example:
            >>> small, large = env.from_collection([1, 2]), env.from_collection([100, 200])
            >>> sorted(small.union(large).execute_and_collect())
            [1, 2, 100, 200]
        """
        for stream in streams:
            self._check_same_program(stream, "union")
        inputs = [s._without_key() for s in (self, *streams)]
        for stream in inputs:
            if declared_type(stream) != declared_type(inputs[0]):
                raise InvalidProgramError(
                    f"Cannot union streams of different types: {inputs[0].get_type()} and {stream.get_type()}."
                )
        return DataStream(self._environment, self._builder, [e for s in inputs for e in ends_of(s)])

    @overload
    def connect(self, ds: DataStream[R]) -> ConnectedStreams[T_co, R]: ...

    @overload
    def connect(self, ds: BroadcastStream[R]) -> BroadcastConnectedStream[T_co, R]: ...

    def connect(
        self, ds: Union[DataStream[R], BroadcastStream[R]]
    ) -> Union[ConnectedStreams[T_co, R], BroadcastConnectedStream[T_co, R]]:
        """Connect two streams of any types, for functions that see both; with a BroadcastStream, for broadcast state.

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
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds)
        self._check_same_program(ds, "connect")
        return ConnectedStreams(self, ds)

    def join(self, other: DataStream[R]) -> JoinedStreams[T_co, R]:
        """Join with another stream: every pair of records with equal keys in the same window. Not in PyFlink.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
            >>> orders = env.from_collection([("tea", 1), ("pie", 2)]).assign_timestamps_and_watermarks(by_time)
            >>> prices = env.from_collection([("tea", 3), ("tea", 12)]).assign_timestamps_and_watermarks(by_time)
            >>> joined = orders.join(prices).where(lambda e: e[0]).equal_to(lambda e: e[0])
            >>> pairs = joined.window(TumblingEventTimeWindows.of(10)).apply(lambda order, price: (order, price))
            >>> list(pairs.execute_and_collect())
            [(('tea', 1), ('tea', 3))]
        """
        self._check_same_program(other, "join")
        return JoinedStreams(self, other)

    def co_group(self, other: DataStream[R]) -> CoGroupedStreams[T_co, R]:
        """Group with another stream: a function sees both sides of a key's window together, also if one is empty.

        Not in PyFlink; named as in Flink's Java API.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
            >>> orders = env.from_collection([("tea", 1), ("pie", 2)]).assign_timestamps_and_watermarks(by_time)
            >>> prices = env.from_collection([("tea", 3)]).assign_timestamps_and_watermarks(by_time)
            >>> sides = orders.co_group(prices).where(lambda e: e[0]).equal_to(lambda e: e[0])
            >>> windows = sides.window(TumblingEventTimeWindows.of(10))
            >>> counts = windows.apply(lambda left, right: [(len(left), len(right))])
            >>> sorted(counts.execute_and_collect())
            [(1, 0), (1, 1)]
        """
        self._check_same_program(other, "co_group")
        return CoGroupedStreams(self, other)

    # --- partitioning

    @overload
    def key_by(
        self, key_selector: Callable[[T_co], KEY] | KeySelector[T_co, KEY], key_type: TypeInformation | None = None
    ) -> KeyedStream[T_co, KEY]: ...

    @overload
    def key_by(self, key_selector: int | str, key_type: TypeInformation | None = None) -> KeyedStream[T_co, Key]: ...

    def key_by(self, key_selector: UserCode, key_type: TypeInformation | None = None) -> KeyedStream[T_co, Key]:
        """Partition the stream by a key: one subtask processes all records of a key, with its own keyed state.

        A key may be a list or dict, and keys are equal as in Python: 0 and 0.0 share state. PyFlink compares pickles.

        Args:
            key_selector: a function of the record, a KeySelector, or the index or name of a field.
            key_type: the type of the key, which is coerced to it; by default any Python object.

        Example:
            >>> pairs = env.from_collection([("a", 1), ("b", 5), ("a", 2)])
            >>> list(pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect())
            [('a', 1), ('b', 5), ('a', 3)]
        """
        if isinstance(key_selector, (int, str)):
            self._check_field("key_by", key_selector)
        check_type(key_type, "The key type of key_by()")
        by_key = KeyPartitioner(key_of(key_selector), key_type)
        ends = [UpstreamEdge(e.source, by_key, e.tag) for e in self._ends]
        unkeyed = DataStream(self._environment, self._builder, self._ends)
        return KeyedStream(self._environment, self._builder, ends, by_key.select, key_type, unkeyed)

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T_co]:
        ends = [UpstreamEdge(e.source, partitioner, e.tag) for e in self._ends]
        return DataStream(self._environment, self._builder, ends)

    # --- ends

    def cache(self) -> CachedDataStream[T_co]:
        """Cache the records of a bounded stream, so that the next execute() does not compute them again.

        Example:
            >>> squares = env.from_collection([1, 2, 3]).map(lambda x: x * x).cache()
            >>> list(squares.execute_and_collect()), list(squares.map(lambda x: -x).execute_and_collect())
            ([1, 4, 9], [-1, -4, -9])
        """
        self._transformation.cache = cache = Cache()
        return CachedDataStream(self._environment, self._builder, self._ends, cache)

    def window_all(self, window_assigner: WindowAssigner[Value, W]) -> AllWindowedStream[T_co, W]:
        """Assign all records to windows, in one subtask.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)
            >>> times = env.from_collection([1, 4, 11]).assign_timestamps_and_watermarks(by_time)
            >>> windows = times.window_all(TumblingEventTimeWindows.of(10))
            >>> list(windows.apply(lambda window, inputs: [(window.start, list(inputs))]).execute_and_collect())
            [(0, [1, 4]), (10, [11])]
        """
        return AllWindowedStream(self.key_by(_constant_key), window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[T_co, CountWindow]:
        """Assign all records to windows of `size` records, in one subtask; only full windows fire. Not in PyFlink.

        Args:
            size: the number of records in a window.
            slide: how many records after one window the next begins; 0 for windows without overlap.

        Example:
            >>> list(env.from_collection([1, 2, 3, 4, 5]).count_window_all(2).reduce(max).execute_and_collect())
            [2, 4]
        """
        return self.window_all(count_assigner(size, slide))

    def get_side_output(self, output_tag: OutputTag[R]) -> DataStream[R]:
        """Return the records that the operator before yielded for a tag, as a stream of its own.

        Example:
            >>> from millstream.datastream import OutputTag, ProcessFunction
            >>> rejected = OutputTag("rejected")
            >>> class Parse(ProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         yield int(value) if value.isdigit() else (rejected, value)
            >>> numbers = env.from_collection(["1", "two", "3"]).process(Parse())
            >>> list(numbers.get_side_output(rejected).execute_and_collect())
            ['two']
        """
        check_tag(output_tag, "get_side_output")
        # Bad records of a source bypass its watermark operator.
        tagging = self._transformation.source or self._transformation
        if not tagging.operator.tags_outputs:
            raise InvalidProgramError(
                f"Operator {tagging.label} has no side outputs: only process functions do, and sources with "
                "on_bad_records(BadRecords.to(tag))."
            )
        return DataStream(self._environment, self._builder, [UpstreamEdge(tagging, None, output_tag)])

    def _add_operator(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None,
        second: DataStream[Value] | None = None,
    ) -> DataStream[Value]:
        check_type(output_type, f"The output type of '{name}'")
        ends = list(self._ends)
        if second is not None:
            ends += [UpstreamEdge(e.source, e.partitioner, e.tag, 1) for e in ends_of(second)]
        transformation = self._builder.program.add(name, operator, ends, output_type)
        return DataStream(self._environment, self._builder, [UpstreamEdge(transformation)])


class CachedDataStream(DataStream[T_co]):
    """A stream whose records are cached for the next execute(), created by `DataStream.cache()`."""

    def __init__(
        self, environment: StreamExecutionEnvironment, builder: ProgramBuilder, ends: list[UpstreamEdge], cache: Cache
    ) -> None:
        super().__init__(environment, builder, ends)
        self._cache = cache

    def _set(self, action: str) -> Transformation:
        raise InvalidProgramError(f"{action} CachedDataStream is not supported.")

    def cache(self) -> CachedDataStream[T_co]:
        """Raise an error, as in PyFlink: the stream is cached already."""
        raise InvalidProgramError("Cache for CachedDataStream is not supported.")

    def invalidate(self) -> None:
        """Discard the records: the next execute() computes and caches them again.

        Example:
            >>> import random
            >>> numbers = env.from_collection([0]).map(lambda _: random.random()).cache()
            >>> first, second = list(numbers.execute_and_collect()), list(numbers.execute_and_collect())
            >>> numbers.invalidate()
            >>> first == second, second == list(numbers.execute_and_collect())
            (True, False)
        """
        self._cache.invalidate(self._transformation)
        cache = self._transformation.cache
        assert isinstance(cache, Cache)
        self._cache = cache


def _constant_key(value: Value) -> int:
    return 0


class KeyedStream(KeyedAggregates[T_co], DataStream[T_co], Generic[T_co, KEY_co]):
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

    def sink_to(self, sink: Sink[T_co]) -> DataStreamSink:
        return self._unkeyed.sink_to(sink)

    def add_sink(
        self,
        sink_func: Callable[[T_co], object] | Callable[[T_co, None], object] | SinkFunction[T_co] | Sink[T_co],
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

    def show_live(self, max_rows: int = MAX_ROWS) -> LiveView[Value]:
        """Run the program and show the last `Row(key, value)` in a notebook."""
        return self._pairs().show_live(max_rows)

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
