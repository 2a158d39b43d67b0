"""WindowedStream and AllWindowedStream: a windowed stream, to which a window function is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce as fold
from typing import TYPE_CHECKING, Generic, Self, overload

from millstream.common.aliases import OUT, Key, KEY_co, R, T_co, UserCode, Value, W_co
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.datastream.stream_base import add_operator, declared_type, without_key
from millstream.datastream.stream_functions import as_user_function
from millstream.operators.functions.output_tag import OutputTag, check_tag
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.reducers import choose_by_field, combine_field
from millstream.operators.windows.assigners import WindowAssigner
from millstream.operators.windows.contents import (
    Aggregated,
    Combining,
    Contents,
    Listed,
    PassThrough,
    Reduced,
    Result,
    Stamped,
    WindowFunctionKind,
)
from millstream.operators.windows.evictors import Evictor
from millstream.operators.windows.triggers import Trigger
from millstream.operators.windows.window_operator import ProcessWindowContext, WindowOperator

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream, KeyedStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["AllWindowedStream", "WindowedStream"]


class _Windowed(Generic[T_co, W_co]):
    """The base of windows over keyed and unkeyed streams."""

    _KEYED = True

    def __init__(self, stream: KeyedStream[T_co, Key], assigner: WindowAssigner[Value, W_co]) -> None:
        if not isinstance(assigner, WindowAssigner):
            raise InvalidProgramError(f"window() takes a WindowAssigner, not {assigner!r}.")
        self._stream = stream
        self._assigner = assigner
        self._trigger: Trigger[Value, W_co] = assigner.get_default_trigger(None)
        self._lateness = 0
        self._late_tag: OutputTag[T_co] | None = None
        self._evictor: Evictor | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to.

        Example:
            >>> env.from_collection([1]).count_window_all(2).get_execution_environment() is env
            True
        """
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the type of the windows' input.

        Example:
            >>> from millstream.common import Types
            >>> env.from_collection([1], Types.LONG()).count_window_all(2).get_input_type()
            Long
        """
        return without_key(self._stream).get_type()

    def trigger(self, trigger: Trigger[Value, W_co]) -> Self:
        """Set the trigger, which decides when windows fire, in place of the assigner's own.

        Example:
            >>> from millstream.datastream.window import CountTrigger, GlobalWindows
            >>> windows = env.from_collection([1, 2, 3, 4]).window_all(GlobalWindows.create())
            >>> list(windows.trigger(CountTrigger.of(2)).reduce(lambda a, b: a + b).execute_and_collect())
            [3, 10]
        """
        if not isinstance(trigger, Trigger):
            raise InvalidProgramError(f"trigger() takes a Trigger, not {trigger!r}.")
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor) -> Self:
        """Set an evictor, which removes records when a window fires; windows retain all records until then.

        Not in PyFlink; named as in Flink's Java API.

        Example:
            >>> from millstream.datastream.window import CountEvictor
            >>> windows = env.from_collection([1, 2, 3, 4, 5, 6]).count_window_all(3).evictor(CountEvictor.of(2))
            >>> list(windows.reduce(lambda a, b: a + b).execute_and_collect())
            [5, 11]
        """
        if not isinstance(evictor, Evictor):
            raise InvalidProgramError(f"evictor() takes an Evictor, not {evictor!r}.")
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int | Time | Duration) -> Self:
        """Retain windows for some time after their end; each late record fires its window again.

        Example:
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> from millstream.testing import StreamHarness
            >>> windows = TumblingEventTimeWindows.of(10)
            >>> harness = StreamHarness(lambda stream: stream.window_all(windows).allowed_lateness(5).reduce(max))
            >>> harness.process_element(3, timestamp=3)
            >>> harness.process_watermark(12)
            >>> harness.process_element(8, timestamp=8)
            >>> harness.output()
            [3, 8]
        """
        lateness = to_millis(time_ms)
        if lateness < 0:
            raise InvalidProgramError(f"The allowed lateness must not be negative, it is {lateness} ms.")
        self._lateness = lateness
        return self

    def side_output_late_data(self, output_tag: OutputTag[T_co]) -> Self:
        """Send late records to a side output instead of dropping them.

        Example:
            >>> from millstream.datastream import OutputTag
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> from millstream.testing import StreamHarness
            >>> late, windows = OutputTag("late"), TumblingEventTimeWindows.of(10)
            >>> build = lambda stream: stream.window_all(windows).side_output_late_data(late).reduce(max)
            >>> harness = StreamHarness(build, side_outputs=[late])
            >>> harness.process_watermark(9)
            >>> harness.process_element(5, timestamp=5)
            >>> harness.side_output(late)
            [5]
        """
        check_tag(output_tag, "side_output_late_data")
        self._late_tag = output_tag
        return self

    # --- results

    def reduce(
        self, reduce_function: UserCode, window_function: UserCode = None, output_type: TypeInformation | None = None
    ) -> DataStream[Value]:
        """Reduce a window's records as they arrive: the window's state is one record.

        Args:
            reduce_function: combines two records into one: a function, or a ReduceFunction.
            window_function: receives the one result when the window fires, with the window; by default it is emitted.
            output_type: the type of the results.

        Example:
            >>> windows = env.from_collection([1, 2, 3, 4]).count_window_all(2)
            >>> list(windows.reduce(lambda a, b: a + b).execute_and_collect())
            [3, 7]
        """
        call = as_user_function(reduce_function, "reduce", "reduce").call
        if window_function is None:
            output_type = output_type or declared_type(self._stream)
        return self._combined(Reduced(call), lambda records: fold(call, records), window_function, output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Value, Value, Value],
        window_function: UserCode = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream[Value]:
        """Aggregate a window's records as they arrive: the window's state is one accumulator.

        Args:
            aggregate_function: an AggregateFunction.
            window_function: receives the one result when the window fires, with the window; by default it is emitted.
            accumulator_type: the type of the accumulator.
            output_type: the type of the results.

        Example:
            >>> from millstream.datastream import AggregateFunction
            >>> class Average(AggregateFunction):
            ...     create_accumulator = lambda self: (0, 0)
            ...     add = lambda self, value, acc: (acc[0] + value, acc[1] + 1)
            ...     get_result = lambda self, acc: acc[0] / acc[1]
            ...     merge = lambda self, a, b: (a[0] + b[0], a[1] + b[1])
            >>> list(env.from_collection([1, 2, 5, 8]).count_window_all(2).aggregate(Average()).execute_and_collect())
            [1.5, 6.5]
        """
        missing = [m for m in ("create_accumulator", "add", "get_result") if not hasattr(aggregate_function, m)]
        if missing or isinstance(aggregate_function, type):
            raise InvalidProgramError(
                f"aggregate() takes an AggregateFunction object; {aggregate_function!r} lacks {', '.join(missing)}."
            )

        def aggregate(records: list[Value]) -> Value:
            accumulator = aggregate_function.create_accumulator()
            for record in records:
                accumulator = aggregate_function.add(record, accumulator)
            return aggregate_function.get_result(accumulator)

        return self._combined(Aggregated(aggregate_function), aggregate, window_function, output_type)

    def process(
        self, process_window_function: UserCode, output_type: TypeInformation | None = None
    ) -> DataStream[Value]:
        """Pass all records of a window that fires to a function, with a context; it yields results.

        Args:
            process_window_function: a ProcessWindowFunction, or a function of the key, the context and the records;
                without keys, a ProcessAllWindowFunction, or a function of the context and the records.
            output_type: the type of the results.

        Example:
            >>> from millstream.datastream import ProcessWindowFunction
            >>> class Median(ProcessWindowFunction):
            ...     def process(self, key, context, elements):
            ...         yield key, sorted(elements)[1]
            >>> numbers = env.from_collection([9, 1, 5, 2, 4, 8])
            >>> list(numbers.key_by(lambda x: x % 2).count_window(3).process(Median()).execute_and_collect())
            [(1, 5), (0, 4)]
        """
        return self._all(self._function(process_window_function, False, "process"), output_type)

    def apply(self, window_function: UserCode, output_type: TypeInformation | None = None) -> DataStream[Value]:
        """Pass all records of a window that fires to a function, with the window; it returns or yields results.

        Args:
            window_function: a WindowFunction, or a function of the key, the window and the records; without keys, an
                AllWindowFunction, or a function of the window and the records.
            output_type: the type of the results.

        Example:
            >>> numbers = env.from_collection([9, 1, 5, 2, 4, 8])
            >>> windows = numbers.key_by(lambda x: x % 2).count_window(3)
            >>> list(windows.apply(lambda key, window, inputs: [(key, sorted(inputs))]).execute_and_collect())
            [(1, [1, 5, 9]), (0, [2, 4, 8])]
        """
        return self._all(self._function(window_function, False, "apply"), output_type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T_co]:
        """Emit the window's first record with this field summed up.

        Example:
            >>> sales = env.from_collection([("tea", 3), ("tea", 4)])
            >>> list(sales.key_by(lambda sale: sale[0]).count_window(2).sum(1).execute_and_collect())
            [('tea', 7)]
        """
        return self._by_field(combine_field(position_to_sum, "sum", lambda a, b: a + b))

    def min(self, position_to_min: int | str = 0) -> DataStream[T_co]:
        """Emit the window's first record with this field at its minimum.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 2, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).count_window(2).min(1).execute_and_collect())
            [('tea', 2, 'monday')]
        """
        return self._by_field(combine_field(position_to_min, "min", lambda a, b: b if b < a else a))

    def max(self, position_to_max: int | str = 0) -> DataStream[T_co]:
        """Emit the window's first record with this field at its maximum.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 4, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).count_window(2).max(1).execute_and_collect())
            [('tea', 4, 'monday')]
        """
        return self._by_field(combine_field(position_to_max, "max", lambda a, b: b if b > a else a))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T_co]:
        """Emit the window's record with the minimum of this field.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 2, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).count_window(2).min_by(1).execute_and_collect())
            [('tea', 2, 'friday')]
        """
        return self._by_field(choose_by_field(position_to_min_by, "min_by", lambda a, b: a < b))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T_co]:
        """Emit the window's record with the maximum of this field.

        Example:
            >>> prices = env.from_collection([("tea", 3, "monday"), ("tea", 4, "friday")])
            >>> list(prices.key_by(lambda price: price[0]).count_window(2).max_by(1).execute_and_collect())
            [('tea', 4, 'friday')]
        """
        return self._by_field(choose_by_field(position_to_max_by, "max_by", lambda a, b: a > b))

    # --- how

    def _by_field(self, reducer: Callable[[Value, Value], Value]) -> DataStream[T_co]:
        return self.reduce(reducer)

    def _combined(
        self,
        contents: Contents,
        combine: Callable[[list[Value]], Value],
        window_function: UserCode,
        output_type: TypeInformation | None,
    ) -> DataStream[Value]:
        result: WindowFunctionKind | PassThrough = PassThrough()
        if window_function is not None:
            result = self._function(window_function, True, None)
        if self._evictor is not None:
            return self._add(Stamped(), Combining(combine, result), output_type)
        return self._add(contents, result, output_type)

    def _all(self, result: WindowFunctionKind, output_type: TypeInformation | None) -> DataStream[Value]:
        return self._add(Stamped() if self._evictor is not None else Listed(), result, output_type)

    def _function(self, function: UserCode, one_value: bool, method: str | None) -> WindowFunctionKind:
        method = method or ("process" if hasattr(function, "process") else "apply")
        if isinstance(function, type) or not (hasattr(function, method) or callable(function)):
            raise InvalidProgramError(f"{method}() takes a window function with a method {method}(), not {function!r}.")
        return WindowFunctionKind(UserFunction(function, method), method, self._KEYED, one_value)

    def _add(self, contents: Contents, result: Result, output_type: TypeInformation | None) -> DataStream[Value]:
        operator = WindowOperator(
            self._assigner, self._trigger, contents, result, self._lateness, self._late_tag, self._evictor
        )
        return add_operator(self._stream, type(self._assigner).__name__, operator, output_type)


class WindowedStream(_Windowed[T_co, W_co], Generic[T_co, KEY_co, W_co]):
    """A keyed stream in windows, created by `window()` or `count_window()`.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
        >>> events = env.from_collection([("a", 1), ("a", 4), ("a", 11)]).assign_timestamps_and_watermarks(by_time)
        >>> counts = events.map(lambda e: (e[0], 1)).key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(10))
        >>> list(counts.sum(1).execute_and_collect())
        [('a', 2), ('a', 1)]
    """

    if TYPE_CHECKING:
        # The signatures of this kind's window functions; the methods are the same for both kinds.
        @overload
        def reduce(
            self,
            reduce_function: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co],
            window_function: None = None,
            output_type: TypeInformation | None = None,
        ) -> DataStream[T_co]: ...

        @overload
        def reduce(
            self,
            reduce_function: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co],
            window_function: Callable[[KEY_co, W_co, Iterable[T_co]], Iterable[OUT] | None]
            | WindowFunction[T_co, OUT, KEY_co, W_co]
            | ProcessWindowFunction[T_co, OUT, KEY_co, W_co],
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        def reduce(self, *args: object, **kwargs: object) -> DataStream[Value]: ...

        @overload
        def aggregate(
            self,
            aggregate_function: AggregateFunction[T_co, Value, OUT],
            window_function: None = None,
            accumulator_type: TypeInformation | None = None,
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        @overload
        def aggregate(
            self,
            aggregate_function: AggregateFunction[T_co, Value, R],
            window_function: Callable[[KEY_co, W_co, Iterable[R]], Iterable[OUT] | None]
            | WindowFunction[R, OUT, KEY_co, W_co]
            | ProcessWindowFunction[R, OUT, KEY_co, W_co],
            accumulator_type: TypeInformation | None = None,
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        def aggregate(self, *args: object, **kwargs: object) -> DataStream[Value]: ...

        def process(
            self,
            process_window_function: Callable[[KEY_co, ProcessWindowContext, Iterable[T_co]], Iterable[OUT] | None]
            | ProcessWindowFunction[T_co, OUT, KEY_co, W_co],
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        def apply(
            self,
            window_function: Callable[[KEY_co, W_co, Iterable[T_co]], Iterable[OUT] | None]
            | WindowFunction[T_co, OUT, KEY_co, W_co],
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...


class AllWindowedStream(_Windowed[T_co, W_co]):
    """All records of a stream in windows, in one subtask, created by `window_all()` or `count_window_all()`.

    Example:
        >>> windows = env.from_collection([3, 1, 4, 1, 5]).count_window_all(2)
        >>> list(windows.apply(lambda window, inputs: [sum(inputs)]).execute_and_collect())
        [4, 5]
    """

    _KEYED = False

    if TYPE_CHECKING:
        # The signatures of this kind's window functions; the methods are the same for both kinds.
        @overload
        def reduce(
            self,
            reduce_function: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co],
            window_function: None = None,
            output_type: TypeInformation | None = None,
        ) -> DataStream[T_co]: ...

        @overload
        def reduce(
            self,
            reduce_function: Callable[[T_co, T_co], T_co] | ReduceFunction[T_co],
            window_function: Callable[[W_co, Iterable[T_co]], Iterable[OUT] | None]
            | AllWindowFunction[T_co, OUT, W_co]
            | ProcessAllWindowFunction[T_co, OUT, W_co],
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        def reduce(self, *args: object, **kwargs: object) -> DataStream[Value]: ...

        @overload
        def aggregate(
            self,
            aggregate_function: AggregateFunction[T_co, Value, OUT],
            window_function: None = None,
            accumulator_type: TypeInformation | None = None,
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        @overload
        def aggregate(
            self,
            aggregate_function: AggregateFunction[T_co, Value, R],
            window_function: Callable[[W_co, Iterable[R]], Iterable[OUT] | None]
            | AllWindowFunction[R, OUT, W_co]
            | ProcessAllWindowFunction[R, OUT, W_co],
            accumulator_type: TypeInformation | None = None,
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        def aggregate(self, *args: object, **kwargs: object) -> DataStream[Value]: ...

        def process(
            self,
            process_window_function: Callable[[ProcessWindowContext, Iterable[T_co]], Iterable[OUT] | None]
            | ProcessAllWindowFunction[T_co, OUT, W_co],
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

        def apply(
            self,
            window_function: Callable[[W_co, Iterable[T_co]], Iterable[OUT] | None]
            | AllWindowFunction[T_co, OUT, W_co],
            output_type: TypeInformation | None = None,
        ) -> DataStream[OUT]: ...

    def _add(self, contents: Contents, result: Result, output_type: TypeInformation | None) -> DataStream[Value]:
        return super()._add(contents, result, output_type).force_non_parallel()
