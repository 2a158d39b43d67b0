"""Harnesses for single functions: one input, two, a broadcast one, windows; each on a keyed stream or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

from millstream.common.aliases import Key, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time
from millstream.datastream.data_stream import AllWindowedStream, DataStream, WindowedStream
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeySelector,
)
from millstream.datastream.window import Evictor, Trigger, WindowAssigner
from millstream.operators.functions.output_tag import OutputTag
from millstream.state.descriptors import MapStateDescriptor
from millstream.testing.stream_harness import HarnessSettings, StreamHarness

_Function = Function | Callable[..., object]
_KeySelector = KeySelector[Value, Key] | Callable[[Value], Key] | int | str

# The operation that a function's methods imply.
_ONE_INPUT = {
    "process_element": "process",
    "flat_map": "flat_map",
    "map": "map",
    "filter": "filter",
    "reduce": "reduce",
}
_TWO_INPUTS = {"process_element1": "process", "flat_map1": "flat_map", "map1": "map"}
_WINDOW = {"create_accumulator": "aggregate", "reduce": "reduce", "process": "process", "apply": "apply"}


def _operation(function: object, operation: str | None, known: dict[str, str]) -> str:
    if operation is not None:
        return operation
    for method, candidate in known.items():
        if hasattr(function, method):
            return candidate
    choices = ", ".join(dict.fromkeys(known.values()))
    raise InvalidProgramError(f"The operation of {function!r} is unknown: set operation= to one of {choices}.")


def _apply(stream: object, operation: str, function: object) -> DataStream:
    method = getattr(stream, operation, None)
    if method is None:
        raise InvalidProgramError(f"{operation}() needs a keyed stream: use the harness of the same name with Keyed.")
    result: DataStream = method(function)
    return result


class OneInputHarness(StreamHarness):
    """Runs a function of one stream: Map, FlatMap, Filter, Process; a plain callable needs `operation`.

    Takes the other arguments of `StreamHarness`.

    Example:
        >>> with OneInputHarness(lambda line: line.split(), "flat_map") as harness:
        ...     harness.process_element("to be", timestamp=7)
        ...     harness.records()
        [Record(value='to', timestamp=7), Record(value='be', timestamp=7)]
    """

    def __init__(self, function: _Function, operation: str | None = None, **settings: Unpack[HarnessSettings]) -> None:
        chosen = _operation(function, operation, _ONE_INPUT)
        super().__init__(lambda stream: _apply(stream, chosen, function), **settings)


class KeyedOneInputHarness(StreamHarness):
    """Runs a function of a keyed stream, with keyed state and timers: KeyedProcess, Reduce, Map and the like.

    Takes the other arguments of `StreamHarness`.

    Example:
        >>> from millstream.datastream import KeyedProcessFunction
        >>> class Remind(KeyedProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        ...     def on_timer(self, timestamp, ctx):
        ...         yield f"{ctx.get_current_key()} at {timestamp}"
        >>> with KeyedOneInputHarness(Remind(), lambda value: value) as harness:
        ...     harness.process_element("a", timestamp=5)
        ...     harness.event_timers()
        ...     harness.process_watermark(15)
        ...     harness.output()
        [TimerView(timestamp=15, key='a')]
        ['a at 15']
    """

    def __init__(
        self,
        function: _Function,
        key_selector: _KeySelector,
        operation: str | None = None,
        **settings: Unpack[HarnessSettings],
    ) -> None:
        chosen = _operation(function, operation, _ONE_INPUT)
        super().__init__(lambda stream: _apply(stream.key_by(key_selector), chosen, function), **settings)


class _TwoInputs(StreamHarness):
    """The base of harnesses with two inputs."""

    def process_element1(self, value: Value, timestamp: int | None = None) -> None:
        """Process one record of the first input."""
        self.process_element(value, timestamp, 1)

    def process_element2(self, value: Value, timestamp: int | None = None) -> None:
        """Process one record of the second input."""
        self.process_element(value, timestamp, 2)

    def process_watermark1(self, timestamp: int) -> None:
        """Advance the watermark of the first input; the function's watermark is the minimum of both."""
        self.process_watermark(timestamp, 1)

    def process_watermark2(self, timestamp: int) -> None:
        """Advance the watermark of the second input."""
        self.process_watermark(timestamp, 2)


class TwoInputHarness(_TwoInputs):
    """Runs a function of two connected streams: CoMap, CoFlatMap, CoProcess.

    Takes the other arguments of `StreamHarness`.

    Example:
        >>> from millstream.datastream import CoMapFunction
        >>> class Label(CoMapFunction):
        ...     def map1(self, value):
        ...         return f"left {value}"
        ...     def map2(self, value):
        ...         return f"right {value}"
        >>> with TwoInputHarness(Label()) as harness:
        ...     harness.process_element1(1)
        ...     harness.process_element2(2)
        ...     harness.output()
        ['left 1', 'right 2']
    """

    def __init__(self, function: _Function, operation: str | None = None, **settings: Unpack[HarnessSettings]) -> None:
        chosen = _operation(function, operation, _TWO_INPUTS)
        super().__init__(lambda one, two: _apply(one.connect(two), chosen, function), 2, **settings)


class KeyedTwoInputHarness(_TwoInputs):
    """Runs a function of two connected keyed streams: KeyedCoProcess, and CoMap and CoFlatMap with keyed state.

    Takes the other arguments of `StreamHarness`.

    Example:
        >>> from millstream.datastream import KeyedCoProcessFunction
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> class Match(KeyedCoProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.order = runtime_context.get_state(ValueStateDescriptor("order"))
        ...     def process_element1(self, value, ctx):
        ...         self.order.update(value)
        ...     def process_element2(self, value, ctx):
        ...         yield self.order.value(), value
        >>> with KeyedTwoInputHarness(Match(), lambda o: o["id"], lambda p: p["id"]) as harness:
        ...     harness.process_element1({"id": 7, "item": "tea"})
        ...     harness.process_element2({"id": 7, "paid": 3})
        ...     harness.output(), harness.state("order", 7)
        ([({'id': 7, 'item': 'tea'}, {'id': 7, 'paid': 3})], {'id': 7, 'item': 'tea'})
    """

    def __init__(
        self,
        function: _Function,
        key_selector1: _KeySelector,
        key_selector2: _KeySelector,
        operation: str | None = None,
        **settings: Unpack[HarnessSettings],
    ) -> None:
        chosen = _operation(function, operation, _TWO_INPUTS)

        def build(one: DataStream, two: DataStream) -> DataStream:
            return _apply(one.connect(two).key_by(key_selector1, key_selector2), chosen, function)

        super().__init__(build, 2, **settings)


class _Broadcast(_TwoInputs):
    """The base of broadcast harnesses: the broadcast stream is the second input."""

    def process_broadcast_element(self, value: Value, timestamp: int | None = None) -> None:
        """Process one record of the broadcast stream, in every subtask."""
        self.process_element(value, timestamp, 2)

    def broadcast_state(self, name: str, subtask: int = 0) -> dict[Value, Value]:
        """Return a broadcast state as one subtask has it."""
        return self._view.broadcast(name, subtask)


class BroadcastHarness(_Broadcast):
    """Runs a BroadcastProcessFunction with the descriptors of its broadcast states.

    Takes the other arguments of `StreamHarness`.

    Example:
        >>> from millstream.datastream import BroadcastProcessFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> LIMITS = MapStateDescriptor("limits")
        >>> class Cut(BroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield min(value, ctx.get_broadcast_state(LIMITS).get("max"))
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(LIMITS).put("max", value)
        >>> with BroadcastHarness(Cut(), [LIMITS]) as harness:
        ...     harness.process_broadcast_element(10)
        ...     harness.process_element(99)
        ...     harness.output(), harness.broadcast_state("limits")
        ([10], {'max': 10})
    """

    def __init__(
        self,
        function: BroadcastProcessFunction[Value, Value, Value],
        descriptors: Sequence[MapStateDescriptor],
        **settings: Unpack[HarnessSettings],
    ) -> None:
        super().__init__(lambda one, two: one.connect(two.broadcast(*descriptors)).process(function), 2, **settings)


class KeyedBroadcastHarness(_Broadcast):
    """Runs a KeyedBroadcastProcessFunction: like `BroadcastHarness`, with keyed state and timers.

    Example:
        >>> from millstream.datastream import KeyedBroadcastProcessFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> RULES = MapStateDescriptor("rules")
        >>> class Check(KeyedBroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield ctx.get_current_key(), ctx.get_broadcast_state(RULES).contains(value)
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(RULES).put(value, True)
        >>> with KeyedBroadcastHarness(Check(), lambda word: word[0], [RULES]) as harness:
        ...     harness.process_broadcast_element("apple")
        ...     harness.process_element("apple")
        ...     harness.process_element("bread")
        ...     harness.output()
        [('a', True), ('b', False)]
    """

    def __init__(
        self,
        function: KeyedBroadcastProcessFunction[Key, Value, Value, Value],
        key_selector: _KeySelector,
        descriptors: Sequence[MapStateDescriptor],
        **settings: Unpack[HarnessSettings],
    ) -> None:
        def build(one: DataStream, two: DataStream) -> DataStream:
            return one.key_by(key_selector).connect(two.broadcast(*descriptors)).process(function)

        super().__init__(build, 2, **settings)


class WindowHarness(StreamHarness):
    """Runs a window function: Reduce, Aggregate, ProcessWindow, Window; without a key selector over all records.

    Args:
        assigner: the windows.
        function: the window function; a plain callable needs `operation`.
        key_selector: the key; None for window_all.
        operation: "reduce", "aggregate", "process" or "apply".
        trigger: as on a windowed stream.
        evictor: as on a windowed stream.
        allowed_lateness: as on a windowed stream.
        late_tag: sends late records to a side output, see `side_output`.
        settings: see `StreamHarness`.

    Example:
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> windows = TumblingEventTimeWindows.of(10)
        >>> with WindowHarness(windows, lambda a, b: (a[0], a[1] + b[1]), lambda p: p[0], "reduce") as harness:
        ...     harness.process_element(("a", 1), timestamp=3)
        ...     harness.process_element(("a", 2), timestamp=8)
        ...     harness.process_watermark(9)
        ...     harness.records()
        [Record(value=('a', 3), timestamp=9)]
    """

    def __init__(
        self,
        assigner: WindowAssigner[Value, Value],
        function: _Function,
        key_selector: _KeySelector | None = None,
        operation: str | None = None,
        *,
        trigger: Trigger[Value, Value] | None = None,
        evictor: Evictor | None = None,
        allowed_lateness: int | Time | Duration = 0,
        late_tag: OutputTag | None = None,
        **settings: Unpack[HarnessSettings],
    ) -> None:
        chosen = _operation(function, operation, _WINDOW)

        def build(stream: DataStream) -> DataStream:
            windowed: AllWindowedStream | WindowedStream
            if key_selector is None:
                windowed = stream.window_all(assigner)
            else:
                windowed = stream.key_by(key_selector).window(assigner)
            if trigger is not None:
                windowed = windowed.trigger(trigger)
            if evictor is not None:
                windowed = windowed.evictor(evictor)
            if late_tag is not None:
                windowed = windowed.side_output_late_data(late_tag)
            return _apply(windowed.allowed_lateness(allowed_lateness), chosen, function)

        if late_tag is not None:
            settings["side_outputs"] = [*settings.get("side_outputs", ()), late_tag]
        super().__init__(build, **settings)
