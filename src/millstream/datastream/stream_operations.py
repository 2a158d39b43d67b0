"""Operations of a stream on one record at a time, and on the records of a key: each adds one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Self, Union, overload

from millstream.common.aliases import OUT, T_co, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from millstream.datastream.program_lint import warn_of_no_result, warn_of_yields
from millstream.datastream.stream_base import StreamBase
from millstream.datastream.stream_functions import as_rich_function, as_user_function
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.process import ProcessOperator
from millstream.operators.reduce import ReduceOperator
from millstream.operators.reducers import check_position, choose_by_field, combine_field
from millstream.operators.stateless import FilterOperator, FlatMapOperator, MapOperator
from millstream.operators.watermarks import WatermarkOperator

if TYPE_CHECKING:
    from millstream.common.execution_config import ExecutionConfig
    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment


class StreamOperations(StreamBase[T_co]):
    """The part of DataStream that processes one record at a time."""

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

    def force_non_parallel(self) -> Self:
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


class KeyedAggregates(StreamOperations[T_co]):
    """The part of KeyedStream that combines the records of a key."""

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
