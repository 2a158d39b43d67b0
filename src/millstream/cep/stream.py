"""CEP: looks for patterns in streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, overload

from millstream.cep.functions import (
    Handler,
    MatchContext,
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    flat_selecting,
    processing,
    selecting,
)
from millstream.cep.matcher import Comparator, EventComparator
from millstream.cep.pattern import Pattern, check_pattern
from millstream.common.aliases import OUT, T_co, UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.data_stream import DataStream, KeyedStream
from millstream.operators.cep.cep_operator import CepOperator
from millstream.operators.cep.dynamic_cep import DynamicCepOperator
from millstream.operators.functions.output_tag import OutputTag

__all__ = ["CEP", "PatternStream"]


class CEP:
    """Looks for patterns in streams. Not in PyFlink; named as in Flink's CEP library for Java.

    Example:
        >>> from millstream.cep import CEP, Pattern
        >>> from millstream.common import WatermarkStrategy
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
        >>> sales = env.from_collection([("ann", 1, 0.5), ("ann", 2, 900.0)]).assign_timestamps_and_watermarks(by_time)
        >>> pattern = Pattern.begin("small").where(lambda e: e[2] < 1).next("large").where(lambda e: e[2] > 500)
        >>> matches = CEP.pattern(sales.key_by(lambda e: e[0]), pattern.within(10))
        >>> list(matches.select(lambda match: (match["small"][0], match["large"][0])).execute_and_collect())
        [(('ann', 1, 0.5), ('ann', 2, 900.0))]
    """

    @staticmethod
    def pattern(
        stream: DataStream[T_co], pattern: Pattern, comparator: Comparator | EventComparator | None = None
    ) -> PatternStream[T_co]:
        """Look for a pattern: among the events of each key in a keyed stream, else among all of them.

        Args:
            stream: the events.
            pattern: the pattern to match.
            comparator: orders events of the same timestamp: a function of two events that returns
                a number below 0, 0 or above 0; without it, in the order of their arrival.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("up").where(lambda e: e[1] > 0).next("down").where(lambda e: e[1] < 0)
            >>> moves = env.from_collection([("tea", 1), ("pie", -1), ("tea", -2)]).key_by(lambda e: e[0])
            >>> list(CEP.pattern(moves, pattern).in_processing_time().select(dict).execute_and_collect())
            [{'up': [('tea', 1)], 'down': [('tea', -2)]}]
        """
        if not isinstance(stream, DataStream):
            raise InvalidProgramError(f"CEP.pattern(stream, pattern) takes a stream first, not {stream!r}.")
        # Report an invalid pattern here, not in the job.
        check_pattern(pattern)
        return PatternStream(stream, pattern, _compare(comparator))

    @staticmethod
    def dynamic_patterns(
        stream: DataStream,
        pattern_stream: DataStream,
        comparator: Comparator | EventComparator | None = None,
        *,
        late_data_output_tag: OutputTag | None = None,
        processing_time: bool = False,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Match patterns that are added, replaced and removed while the job runs.

        Each pattern is matched separately. A higher version replaces a pattern: partial matches of the old one are
        dropped, and pending events go to the new one. The watermark is the minimum of both streams: assign watermarks
        or an idle timeout to the stream of patterns unless it ends.

        Args:
            stream: the events.
            pattern_stream: carries PatternProcessor(id, version, pattern, function) and Removed(id); it reaches
                every subtask.
            comparator: orders events of the same timestamp.
            late_data_output_tag: a side output for late events; by default they are dropped and counted.
            processing_time: whether to follow the wall clock.
            output_type: the type of the results.

        Example:
            >>> from millstream.cep import CEP, Pattern, PatternProcessor
            >>> from millstream.testing import StreamHarness
            >>> harness = StreamHarness(CEP.dynamic_patterns, 2)
            >>> pairs = Pattern.begin("a").where(lambda e: e == "a").next("b").where(lambda e: e == "b")
            >>> found = lambda match, ctx: [f"pair at {ctx.timestamp()}"]
            >>> harness.process_element(PatternProcessor("pairs", 1, pairs, found), timestamp=0, input=2)
            >>> for time, event in enumerate("cab"):
            ...     harness.process_element(event, timestamp=time)
            >>> harness.process_watermark(5)
            >>> harness.output()
            ['pair at 2']
        """
        if late_data_output_tag is not None:
            _checked_tag(late_data_output_tag, "dynamic_patterns")
        operator = DynamicCepOperator(_compare(comparator), late_data_output_tag, processing_time)
        patterns = pattern_stream.broadcast()
        if isinstance(stream, KeyedStream):
            return stream._add_operator("DynamicCepOperator", operator, output_type, patterns)
        single_key = stream.key_by(_constant_key)
        return single_key._add_operator("DynamicCepOperator", operator, output_type, patterns).force_non_parallel()


@dataclass(frozen=True)
class PatternStream(Generic[T_co]):
    """A stream with a pattern to match, created by `CEP.pattern`.

    Example:
        >>> from millstream.cep import CEP, Pattern
        >>> matches = CEP.pattern(env.from_collection("ab"), Pattern.begin("first").next("second")).in_processing_time()
        >>> list(matches.select(dict).execute_and_collect())
        [{'first': ['a'], 'second': ['b']}]
    """

    _stream: DataStream[T_co]
    _pattern: Pattern
    _comparator: Comparator | None = None
    _late_tag: OutputTag | None = None
    _processing_time: bool = False

    def side_output_late_data(self, late_data_output_tag: OutputTag) -> PatternStream[T_co]:
        """Send late events to a side output; by default they are dropped and counted.

        Example:
            >>> from millstream.datastream import OutputTag
            >>> from millstream.testing import StreamHarness
            >>> late, pattern = OutputTag("late"), Pattern.begin("any")
            >>> build = lambda stream: CEP.pattern(stream, pattern).side_output_late_data(late).select(dict)
            >>> harness = StreamHarness(build, side_outputs=[late])
            >>> harness.process_watermark(9)
            >>> harness.process_element("a", timestamp=5)
            >>> harness.side_output(late)
            ['a']
        """
        return replace(self, _late_tag=_checked_tag(late_data_output_tag, "side_output_late_data"))

    def in_event_time(self) -> PatternStream[T_co]:
        """Follow the timestamps of events (the default): they are matched in order once the watermark has passed them.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)
            >>> times = env.from_collection([2, 1]).assign_timestamps_and_watermarks(by_time)
            >>> matches = CEP.pattern(times, Pattern.begin("first").next("second")).in_event_time()
            >>> list(matches.select(dict).execute_and_collect())
            [{'first': [1], 'second': [2]}]
        """
        return replace(self, _processing_time=False)

    def in_processing_time(self) -> PatternStream[T_co]:
        """Use processing time: events are matched on arrival.

        Example:
            >>> pattern = Pattern.begin("first").next("second")
            >>> matches = CEP.pattern(env.from_collection([2, 1]), pattern).in_processing_time()
            >>> list(matches.select(dict).execute_and_collect())
            [{'first': [2], 'second': [1]}]
        """
        return replace(self, _processing_time=True)

    @overload
    def process(
        self, pattern_process_function: PatternProcessFunction[T_co, OUT], output_type: TypeInformation | None = None
    ) -> DataStream[OUT]: ...

    @overload
    def process(
        self,
        pattern_process_function: Callable[[dict[str, list[T_co]], MatchContext], Iterable[OUT] | None],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]: ...

    def process(self, pattern_process_function: UserCode, output_type: TypeInformation | None = None) -> DataStream:
        """Call a PatternProcessFunction, or a function of (match, ctx), with every match; it yields results.

        Example:
            >>> matches = CEP.pattern(env.from_collection("ab"), Pattern.begin("any")).in_processing_time()
            >>> list(matches.process(lambda match, ctx: [match["any"][0].upper()]).execute_and_collect())
            ['A', 'B']
        """
        return self._add_operator(processing(pattern_process_function), output_type)

    @overload
    def select(
        self, function: PatternSelectFunction[T_co, OUT], /, *, output_type: TypeInformation | None = None
    ) -> DataStream[OUT]: ...

    @overload
    def select(
        self, function: Callable[[dict[str, list[T_co]]], OUT], /, *, output_type: TypeInformation | None = None
    ) -> DataStream[OUT]: ...

    @overload
    def select(
        self,
        tag: OutputTag,
        timeout_function: PatternTimeoutFunction[T_co, Value] | Callable[[dict[str, list[T_co]], int], Value],
        function: PatternSelectFunction[T_co, OUT],
        /,
        *,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]: ...

    @overload
    def select(
        self,
        tag: OutputTag,
        timeout_function: PatternTimeoutFunction[T_co, Value] | Callable[[dict[str, list[T_co]], int], Value],
        function: Callable[[dict[str, list[T_co]]], OUT],
        /,
        *,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]: ...

    def select(self, *functions: UserCode, output_type: TypeInformation | None = None) -> DataStream:
        """Return one result per match: `select(function)` or `select(tag, timeout_function, function)`.

        Args:
            functions: a PatternSelectFunction or a function of the match; before it, for partial matches whose time is
                up, a side output and a PatternTimeoutFunction or a function of the match and the time.
            output_type: the type of the results.

        Example:
            >>> matches = CEP.pattern(env.from_collection("ab"), Pattern.begin("any")).in_processing_time()
            >>> list(matches.select(lambda match: match["any"][0].upper()).execute_and_collect())
            ['A', 'B']
        """
        return self._add_operator(selecting(*_arguments(functions, "select")), output_type)

    @overload
    def flat_select(
        self, function: PatternFlatSelectFunction[T_co, OUT], /, *, output_type: TypeInformation | None = None
    ) -> DataStream[OUT]: ...

    @overload
    def flat_select(
        self,
        function: Callable[[dict[str, list[T_co]]], Iterable[OUT] | None],
        /,
        *,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]: ...

    @overload
    def flat_select(
        self,
        tag: OutputTag,
        timeout_function: PatternFlatTimeoutFunction[T_co, Value]
        | Callable[[dict[str, list[T_co]], int], Iterable[Value] | None],
        function: PatternFlatSelectFunction[T_co, OUT],
        /,
        *,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]: ...

    @overload
    def flat_select(
        self,
        tag: OutputTag,
        timeout_function: PatternFlatTimeoutFunction[T_co, Value]
        | Callable[[dict[str, list[T_co]], int], Iterable[Value] | None],
        function: Callable[[dict[str, list[T_co]]], Iterable[OUT] | None],
        /,
        *,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]: ...

    def flat_select(self, *functions: UserCode, output_type: TypeInformation | None = None) -> DataStream:
        """Yield any number of results per match: `flat_select(function)`, or with a tag and a timeout function.

        Args:
            functions: as for `select`; the functions yield results.
            output_type: the type of the results.

        Example:
            >>> matches = CEP.pattern(env.from_collection("ab"), Pattern.begin("any")).in_processing_time()
            >>> list(matches.flat_select(lambda match: match["any"] * 2).execute_and_collect())
            ['a', 'a', 'b', 'b']
        """
        return self._add_operator(flat_selecting(*_arguments(functions, "flat_select")), output_type)

    def _add_operator(self, handler: Handler, output_type: TypeInformation | None) -> DataStream:
        operator = CepOperator(self._pattern, handler, self._comparator, self._late_tag, self._processing_time)
        if isinstance(self._stream, KeyedStream):
            return self._stream._add_operator("CepOperator", operator, output_type)
        single_key = self._stream.key_by(_constant_key)
        return single_key._add_operator("GlobalCepOperator", operator, output_type).force_non_parallel()


def _constant_key(value: Value) -> int:
    return 0


def _arguments(functions: tuple[UserCode, ...], method: str) -> tuple[UserCode, ...]:
    if len(functions) == 1:
        return functions
    if len(functions) == 3:
        tag, timeout, function = functions
        return function, _checked_tag(tag, method), timeout
    raise InvalidProgramError(
        f"{method}() takes a function, or a tag, a time-out function and a function; it was given {len(functions)}."
    )


def _checked_tag(tag: object, method: str) -> OutputTag:
    if not isinstance(tag, OutputTag):
        raise InvalidProgramError(f"{method}() takes an OutputTag, not {tag!r}.")
    return tag


def _compare(comparator: object) -> Comparator | None:
    if comparator is None:
        return None
    function = getattr(comparator, "compare", comparator)
    if not callable(function):
        raise InvalidProgramError(
            f"A comparator is a function of two events, or an object with compare(a, b), not {comparator!r}."
        )
    compare: Comparator = function
    return compare
