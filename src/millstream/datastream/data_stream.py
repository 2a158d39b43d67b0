"""DataStream and CachedDataStream: a method that processes records adds one operator.

It returns the operator's output stream. `key_by` adds no operator: it sets the partitioner of the edge to the next one.
All other partitioning and sinks (`sink_to`, `execute_and_collect`) are in the base class, in `stream_outputs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn, Union, overload

from millstream.common.aliases import KEY, OUT, Key, R, T_co, UserCode, Value, W
from millstream.common.errors import InvalidProgramError
from millstream.common.scalar_types import check_type
from millstream.common.typeinfo import (
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream.cached_stream import Cache
from millstream.datastream.collect import CloseableIterator
from millstream.datastream.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from millstream.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from millstream.datastream.joined_streams import CoGroupedStreams, JoinedStreams
from millstream.datastream.program_lint import warn_of_no_result, warn_of_yields
from millstream.datastream.stream_base import declared_type, ends_of
from millstream.datastream.stream_functions import as_rich_function, as_user_function, key_of
from millstream.datastream.stream_outputs import DataStreamSink, StreamOutputs
from millstream.datastream.windowed_stream import AllWindowedStream, WindowedStream
from millstream.graph.transformations import Transformation, UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.functions.output_tag import OutputTag, check_tag
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.process import ProcessOperator
from millstream.operators.reducers import check_position
from millstream.operators.runtime.partitioners import (
    KeyPartitioner,
    Partitioner,
)
from millstream.operators.stateless import FilterOperator, FlatMapOperator, MapOperator
from millstream.operators.watermarks import WatermarkOperator
from millstream.operators.windows.assigners import WindowAssigner
from millstream.operators.windows.count_windows import count_assigner
from millstream.operators.windows.windows import CountWindow

if TYPE_CHECKING:
    from millstream.common.execution_config import ExecutionConfig
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


class DataStream(StreamOutputs[T_co]):
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
            if not name.startswith("_") and name in vars(KeyedStream):
                text = f"{kind} has no {name}(), which works on the records of a key: call key_by(...) first"
            raise AttributeError(text, name=name, obj=self)

    # --- properties

    def get_type(self) -> TypeInformation:
        """Return the declared type of the records; without one, that of any Python object.

        Example:
            >>> from millstream.common import Types
            >>> env.from_collection([1, 2], Types.LONG()).get_type(), env.from_collection([1, 2]).get_type()
            (Long, PickledByteArrayTypeInfo)
        """
        return (self._type() or Types.PICKLED_BYTE_ARRAY()).named()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to.

        Example:
            >>> env.from_collection([1]).get_execution_environment() is env
            True
        """
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """Return the environment's settings in Flink's older form.

        Example:
            >>> env.from_collection([1]).get_execution_config().get_parallelism()
            1
        """
        return self._environment.get_config()

    def _repr_svg_(self) -> str:
        """Draw the program up to this stream, for notebooks."""
        return self._builder.draw([end.source for end in self._ends])

    def _without_key(self) -> DataStream[T_co]:
        return self

    def _unkeyed_input(self) -> DataStream[Value]:
        return self

    def force_non_parallel(self) -> DataStream[T_co]:
        """Fix the operator's parallelism at one: it has one subtask, whatever the parallelism of the job.

        Example:
            >>> _ = env.set_parallelism(4)
            >>> results = env.from_collection([1, 2, 3]).rebalance().map(lambda x: x * 10).force_non_parallel()
            >>> list(results.execute_and_collect())
            [10, 20, 30]
        """
        operator = self._set("Set force non-parallel for")
        operator.set_parallelism(1)
        operator.non_parallel = True
        return self

    # --- one record at a time

    @overload
    def map(
        self, func: Callable[[T_co], Value] | MapFunction[T_co, Value], output_type: RowTypeInfo
    ) -> DataStream[Row]: ...

    @overload
    def map(
        self, func: Callable[[T_co], OUT] | MapFunction[T_co, OUT], output_type: TypeInformation | None = None
    ) -> DataStream[OUT]: ...

    def map(self, func: object, output_type: TypeInformation | None = None) -> DataStream[Value]:
        """Turn every record into another.

        Args:
            func: a function of the record, or a MapFunction.
            output_type: the type of the results, which are coerced to it; by default any Python object.

        Example:
            >>> list(env.from_collection([1, 2, 3]).map(lambda x: x * 2).execute_and_collect())
            [2, 4, 6]
        """
        function = as_user_function(func, "map", "map")
        warn_of_yields(function.call, "map")
        return self._add_operator("Map", MapOperator(function, self._keyed), output_type)

    @overload
    def flat_map(
        self, func: Callable[[T_co], Iterable[Value] | None] | FlatMapFunction[T_co, Value], output_type: RowTypeInfo
    ) -> DataStream[Row]: ...

    @overload
    def flat_map(
        self,
        func: Callable[[T_co], Iterable[OUT] | None] | FlatMapFunction[T_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]: ...

    def flat_map(self, func: object, output_type: TypeInformation | None = None) -> DataStream[Value]:
        """Turn every record into any number of others.

        Args:
            func: a function that returns or yields the results of a record, or a FlatMapFunction; None is no result.
            output_type: the type of the results, which are coerced to it; by default any Python object.

        Example:
            >>> lines = env.from_collection(["to be", "or"])
            >>> list(lines.flat_map(lambda line: line.split()).execute_and_collect())
            ['to', 'be', 'or']
        """
        function = as_user_function(func, "flat_map", "flat_map")
        return self._add_operator("FlatMap", FlatMapOperator(function, self._keyed), output_type)

    def filter(self, func: Callable[[T_co], object] | FilterFunction[T_co]) -> DataStream[T_co]:
        """Emit only the records for which the function is true.

        Example:
            >>> list(env.from_collection([1, 2, 3]).filter(lambda x: x % 2 == 1).execute_and_collect())
            [1, 3]
        """
        function = as_user_function(func, "filter", "filter")
        warn_of_yields(function.call, "filter")
        warn_of_no_result(function.call)
        return self._add_operator("Filter", FilterOperator(function, self._keyed), self._type())

    @overload
    def process(self, func: ProcessFunction[T_co, Value], output_type: RowTypeInfo) -> DataStream[Row]: ...

    @overload
    def process(
        self, func: ProcessFunction[T_co, OUT], output_type: TypeInformation | None = None
    ) -> DataStream[OUT]: ...

    def process(self, func: object, output_type: TypeInformation | None = None) -> DataStream[Value]:
        """Process every record with its context; the function yields results and `(OutputTag, value)` pairs.

        Args:
            func: a ProcessFunction; on a keyed stream also a KeyedProcessFunction, with state and timers of the key.
            output_type: the type of the results, which are coerced to it; by default any Python object.

        Example:
            >>> from millstream.datastream import ProcessFunction
            >>> class Halves(ProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         if value % 2 == 0:
            ...             yield value // 2
            >>> list(env.from_collection([1, 2, 3, 4]).process(Halves()).execute_and_collect())
            [1, 2]
        """
        function = as_rich_function(func, ("process_element",), "process")
        return self._add_operator(
            "KEYED PROCESS" if self._keyed else "PROCESS", ProcessOperator(function, self._keyed), output_type
        )

    def project(self, *field_indexes: int) -> DataStream[tuple[Value, ...]]:
        """Select fields of a tuple by index, in this order; the records must be tuples, rows or lists.

        Example:
            >>> list(env.from_collection([(1, 2, 3), (4, 5, 6)]).project(2, 0).execute_and_collect())
            [(3, 1), (6, 4)]
        """
        if not field_indexes or not all(isinstance(i, int) for i in field_indexes):
            raise InvalidProgramError(f"project() takes the indexes of the fields to keep, not {field_indexes!r}.")
        declared = self._type()
        output_type: TypeInformation | None = None
        if isinstance(declared, (TupleTypeInfo, RowTypeInfo)):
            types = declared.get_field_types()
            for index in field_indexes:
                self._check_field("project", index)
            output_type = Types.TUPLE([types[i] for i in field_indexes])
        getter = itemgetter(*field_indexes)
        one = len(field_indexes) == 1
        function: Callable[[Value], Value] = (lambda v: (getter(v),)) if one else getter
        operator = MapOperator(UserFunction(function, None))
        # Field indexes refer to the declared type.
        operator.encodes_input = True
        return self._add_operator("Projection", operator, output_type)

    def _check_field(self, operation: str, field: int | str) -> None:
        """Raise an error if the stream's declared type lacks a field."""
        check_position(field, operation)
        declared = self._type()
        if declared is not None and not declared.has_field(field):
            raise InvalidProgramError(
                f"{operation}({field!r}): the stream's type {declared} has no field {field!r}. "
                "Give the index or the name of a field it has."
            )

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

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream[T_co]:
        """Assign timestamps and generate watermarks with a strategy: event-time windows and timers need both.

        Example:
            >>> from millstream.common import Duration, WatermarkStrategy
            >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
            >>> strategy = strategy.with_timestamp_assigner(lambda event, _: event["millis"])
            >>> events = env.from_collection([{"millis": 7_000}]).assign_timestamps_and_watermarks(strategy)
            >>> list(events.execute_and_collect())
            [{'millis': 7000}]
        """
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise InvalidProgramError(
                f"assign_timestamps_and_watermarks() takes a WatermarkStrategy, not {watermark_strategy!r}."
            )
        operator = WatermarkOperator(watermark_strategy)
        # Records are unchanged, so they conform to their type already.
        operator.produced_type = self._type()
        return self._add_operator("Timestamps/Watermarks", operator, operator.produced_type)

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
        assert self._transformation.cache is not None
        self._cache = self._transformation.cache


def _constant_key(value: Value) -> int:
    return 0


# KeyedStream extends DataStream, and key_by() returns one.
from millstream.datastream.keyed_stream import KeyedStream  # noqa: E402
