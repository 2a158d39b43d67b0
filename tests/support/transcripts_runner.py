"""Reads transcripts (tests/transcripts/*.yaml) and builds the programs they describe.

A case's steps become the records of a scripted source. Elements and watermarks pass through in order; a step that sets
the clock begins a new epoch, because processing-time timers fire then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from millstream.common import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from millstream.datastream import window as w
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing import CollectSink
from tests.support.paths import TESTS

FOLDER = TESTS / "transcripts"
LATE = OutputTag("late")
LATE_LEFT, LATE_RIGHT = OutputTag("late-left"), OutputTag("late-right")


@dataclass
class Case:
    name: str
    spec: dict[str, Any]

    @property
    def steps(self) -> list[Any]:
        return list(self.spec["steps"])

    @property
    def uses_clock(self) -> bool:
        by_clock = "processing" in str(self.spec.get("window")) or re.search("now|preg|regboth", str(self.steps))
        return bool(by_clock) or any(isinstance(s, str) and s.startswith("time ") for s in self.steps)

    @property
    def has_sides_in_order(self) -> bool:
        """Whether the outcome depends on the order between two inputs, which separate inputs do not guarantee."""
        return bool(self.spec.get("sides_in_order"))

    def expected(self) -> list[str]:
        """Return the expected outputs of all steps."""
        return sorted(line for s in self.steps if isinstance(s, dict) for line in s["expect"])


def cases() -> list[Case]:
    collected = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for spec in yaml.safe_load(path.read_text()):
            collected.append(Case(f"{path.stem}: {spec['name']}", spec))
    return collected


# --- the source

ELEMENT = re.compile(r"(?:(?P<side>[LR]) )?(?P<key>\S+) (?P<value>\S+)(?: @ (?P<time>-?\d+))?")


@dataclass
class Item:
    """One step of a script: an element, a watermark, or (between epochs) a time of the clock."""

    kind: str
    key: str = ""
    value: Any = None
    time: int = 0
    side: str = ""


def parse(step: str) -> Item | None:
    if step == "end":
        return None
    if step.startswith("wm "):
        return Item("wm", time=int(step[3:]))
    if step.startswith("time "):
        return Item("clock", time=int(step[5:]))
    match = ELEMENT.fullmatch(step)
    assert match is not None, step
    value: Any = match["value"]
    value = int(value) if re.fullmatch(r"-?\d+", value) else value
    time = MIN_WATERMARK + 1 if match["time"] is None else int(match["time"])
    return Item("element", match["key"], value, time, match["side"] or "")


class FileClock:
    """A clock in a file, so that all processes of a job read the same time."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> int:
        try:
            return int(Path(self.path).read_text() or 0)
        except FileNotFoundError:
            return 0

    def set(self, millis: int) -> None:
        temporary = f"{self.path}.new"
        Path(temporary).write_text(str(millis))
        os.replace(temporary, self.path)


class ScriptSource(Source):
    """Plays a script in one subtask; sets the clock before the following epoch."""

    name = "Script"

    def __init__(self, items: list[Item], clock: Any = None, epoch: int = 1 << 30) -> None:
        self.items = items
        self.clock = clock
        self.epoch = epoch

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Script(self)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _ScriptReader()


class _Script(SplitEnumerator):
    def __init__(self, source: ScriptSource) -> None:
        self.left = list(source.items)
        self.source = source

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self.left[0].kind == "clock":
            self.source.clock.set(self.left.pop(0).time)
            return SplitAssignment({0: [[]]}, limited=True)
        split_range: list[Any] = []
        while self.left[0].kind not in ("clock", "end") and len(split_range) < min(budget, self.source.epoch):
            split_range.append(self.left.pop(0))
        if self.left[0].kind == "end" and not split_range:
            self.left.pop()
        return SplitAssignment({0: [split_range]}, limited=True)

    def is_finished(self) -> bool:
        return not self.left

    def snapshot(self) -> list[Item]:
        return list(self.left)


class _ScriptReader(SourceReader):
    def read(self, split_range: list[Item]) -> Iterator[list[Item]]:
        yield split_range


class ScriptedWatermarks(WatermarkGenerator):
    """Emits the script's watermarks at their positions."""

    def on_event(self, event: Item, event_timestamp: int, output: WatermarkOutput) -> None:
        if event.kind == "wm":
            output.emit_watermark(Watermark(event.time))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


# --- the programs


def pane(window: Any) -> str:
    if isinstance(window, w.TimeWindow):
        return f"{window.start}-{window.end}"
    return f"#{window.id}" if isinstance(window, w.CountWindow) else "global"


class ShowList(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[str]:
        yield f"{key} {pane(context.window())} {[e.value for e in elements]}"


class ShowSum(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[str]:
        [item] = elements
        yield f"{key} {pane(context.window())} {item.value}"


class CountFires(ProcessWindowFunction):
    def __init__(self) -> None:
        self.here = ValueStateDescriptor("fires")

    def process(self, key: str, context: Any, elements: Any) -> Iterator[str]:
        here, total = context.window_state().get_state(self.here), context.global_state().get_state(self.here)
        here.update((here.value() or 0) + 1)
        total.update((total.value() or 0) + 1)
        yield f"{key} {pane(context.window())} fire={here.value()} total={total.value()}"

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.here).clear()


class Whole(ProcessAllWindowFunction):
    """Any of the functions above for a window over the whole stream."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def process(self, context: Any, elements: Any) -> Any:
        return self.inner.process("*", context, elements)

    def clear(self, context: Any) -> None:
        if hasattr(self.inner, "clear"):
            self.inner.clear(context)


class Average(AggregateFunction):
    def create_accumulator(self) -> tuple[str, int, int]:
        return ("", 0, 0)

    def add(self, value: Item, accumulator: tuple[str, int, int]) -> tuple[str, int, int]:
        return (value.key, accumulator[1] + value.value, accumulator[2] + 1)

    def get_result(self, accumulator: tuple[str, int, int]) -> str:
        return f"{accumulator[0]} {accumulator[1] / accumulator[2]:.1f}"

    def merge(self, acc_a: tuple[str, int, int], acc_b: tuple[str, int, int]) -> tuple[str, int, int]:
        return (acc_a[0] or acc_b[0], acc_a[1] + acc_b[1], acc_a[2] + acc_b[2])


def add(a: Item, b: Item) -> Item:
    return Item("element", a.key, a.value + b.value)


class RunCommands(KeyedProcessFunction):
    """Runs the commands in the records: register and delete timers, emit the time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.chain = runtime_context.get_state(ValueStateDescriptor("chain"))
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Item, ctx: Any) -> Iterator[str]:
        service = ctx.timer_service()
        command, *arguments = str(value.value).split(":")
        numbers = [int(a) for a in arguments]
        if command in ("reg", "regboth"):
            service.register_event_time_timer(numbers[0])
        if command in ("preg", "regboth"):
            service.register_processing_time_timer(numbers[0])
        if command == "del":
            service.delete_event_time_timer(numbers[0])
        if command == "pdel":
            service.delete_processing_time_timer(numbers[0])
        if command == "chain":
            service.register_event_time_timer(numbers[0])
            self.chain.update((numbers[1], numbers[2]))
        if command == "now":
            yield f"{value.key} now wm={service.current_watermark()} time={service.current_processing_time()}"
        if command == "count":
            self.seen.update((self.seen.value() or 0) + 1)
            yield f"{value.key} count={self.seen.value()}"

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        domain = "event" if ctx.time_domain() is TimeDomain.EVENT_TIME else "processing"
        step, left = self.chain.value() or (0, 0)
        if left:
            self.chain.update((step, left - 1))
            ctx.timer_service().register_event_time_timer(timestamp + step)
        yield f"{ctx.get_current_key()} {domain} {timestamp}"


class ShowPair(ProcessJoinFunction):
    def process_element(self, left: Item, right: Item, ctx: Any) -> Iterator[str]:
        yield f"{left.key} {left.value}-{right.value}"


def assigner(spec: dict[str, Any]) -> w.WindowAssigner[Any, Any]:
    [(kind, value)] = spec.items()
    numbers = value if isinstance(value, list) else [value]
    assigners: dict[str, Any] = {
        "tumbling": lambda: w.TumblingEventTimeWindows.of(*numbers),
        "sliding": lambda: w.SlidingEventTimeWindows.of(*numbers),
        "session": lambda: w.EventTimeSessionWindows.with_gap(*numbers),
        "dynamic_session": lambda: w.EventTimeSessionWindows.with_dynamic_gap(lambda item: item.value),
        "global": w.GlobalWindows.create,
        "count": lambda: w.CountTumblingWindowAssigner.of(*numbers),
        "count_sliding": lambda: w.CountSlidingWindowAssigner.of(*numbers),
        "tumbling_processing": lambda: w.TumblingProcessingTimeWindows.of(*numbers),
        "sliding_processing": lambda: w.SlidingProcessingTimeWindows.of(*numbers),
        "session_processing": lambda: w.ProcessingTimeSessionWindows.with_gap(*numbers),
    }
    return assigners[kind]()  # type: ignore[no-any-return]


def distance(a: Item, b: Item) -> float:
    return abs(a.value - b.value)  # type: ignore[no-any-return]


def trigger(spec: Any) -> w.Trigger[Any, Any]:
    plain = {"event": w.EventTimeTrigger, "processing": w.ProcessingTimeTrigger, "never": w.NeverTrigger}
    if isinstance(spec, str):
        return plain[spec]()  # type: ignore[abstract]
    [(kind, value)] = spec.items()
    triggers: dict[str, Any] = {
        "count": lambda: w.CountTrigger.of(value),
        "continuous": lambda: w.ContinuousEventTimeTrigger.of(value),
        "continuous_processing": lambda: w.ContinuousProcessingTimeTrigger.of(value),
        "delta": lambda: w.DeltaTrigger.of(value, distance),
        "purging": lambda: w.PurgingTrigger.of(trigger(value)),
        "no_repeated": lambda: w.NoRepeatedTrigger.of(trigger(value)),
    }
    return triggers[kind]()  # type: ignore[no-any-return]


def evictor(spec: dict[str, Any]) -> w.Evictor:
    after = bool(spec.get("after", False))
    if "count" in spec:
        return w.CountEvictor.of(spec["count"], after)
    if "time" in spec:
        return w.TimeEvictor.of(spec["time"], after)
    return w.DeltaEvictor.of(spec["delta"], distance, after)


def build(env: StreamExecutionEnvironment, case: Case, clock: Any = None, epoch: int = 1 << 30) -> CollectSink:
    """Add a case's program to an environment; return the sink of its output lines."""
    items = [i for s in case.steps if isinstance(s, str) and (i := parse(s)) is not None]
    # The end of the input has its own epoch, so that its effects are separate.
    items.append(Item("end"))
    strategy = WatermarkStrategy.for_generator(ScriptedWatermarks).with_timestamp_assigner(lambda item, _: item.time)
    script = env.from_source(ScriptSource(items, clock, epoch)).set_parallelism(1)
    marked = script.assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    elements = marked.filter(lambda item: item.kind == "element").set_parallelism(1)
    sink = CollectSink()
    for lines in programs(elements, case.spec):
        lines.sink_to(sink)
    return sink


def programs(elements: DataStream, spec: dict[str, Any]) -> Iterator[DataStream]:
    keyed = elements.key_by(lambda item: item.key)
    if spec.get("timers"):
        yield keyed.process(RunCommands())
        return
    left = elements.filter(lambda item: item.side == "L").set_parallelism(1)
    right = elements.filter(lambda item: item.side == "R").set_parallelism(1)
    if "interval" in spec:
        yield from interval_join(left, right, spec["interval"])
    elif "join" in spec or "cogroup" in spec:
        yield window_join(left, right, spec)
    else:
        yield from windows(elements, keyed, spec)


def window_join(left: DataStream, right: DataStream, spec: dict[str, Any]) -> DataStream:
    window = assigner(spec["join" if "join" in spec else "cogroup"]["window"])
    key = lambda item: item.key  # noqa: E731
    if "join" in spec:
        joined = left.join(right).where(key).equal_to(key).window(window)
        return joined.apply(lambda a, b: f"{a.key} {a.value}-{b.value}")
    grouped = left.co_group(right).where(key).equal_to(key).window(window)
    return grouped.apply(lambda ls, rs: [f"{(ls or rs)[0].key} {[i.value for i in ls]} {[i.value for i in rs]}"])


def interval_join(left: DataStream, right: DataStream, spec: dict[str, Any]) -> Iterator[DataStream]:
    key = lambda item: item.key  # noqa: E731
    joining = left.key_by(key).interval_join(right.key_by(key)).between(spec["lower"], spec["upper"])
    if spec.get("lower_exclusive"):
        joining.lower_bound_exclusive()
    if spec.get("upper_exclusive"):
        joining.upper_bound_exclusive()
    if spec.get("late_output"):
        joining.side_output_left_late_data(LATE_LEFT).side_output_right_late_data(LATE_RIGHT)
    joined = joining.process(ShowPair())
    yield joined
    if spec.get("late_output"):
        for tag in (LATE_LEFT, LATE_RIGHT):
            name = tag.tag_id
            yield joined.get_side_output(tag).map(lambda i, name=name: f"{name} {i.key} {i.value} @ {i.time}")  # type: ignore[misc]


def windows(elements: DataStream, keyed: Any, spec: dict[str, Any]) -> Iterator[DataStream]:
    over_all = bool(spec.get("all"))
    windowed: Any = (
        elements.window_all(assigner(spec["window"])) if over_all else keyed.window(assigner(spec["window"]))
    )
    if "trigger" in spec:
        windowed.trigger(trigger(spec["trigger"]))
    if "evictor" in spec:
        windowed.evictor(evictor(spec["evictor"]))
    if "lateness" in spec:
        windowed.allowed_lateness(spec["lateness"])
    if spec.get("late_output"):
        windowed.side_output_late_data(LATE)
    about = (lambda f: Whole(f)) if over_all else (lambda f: f)
    function = spec["function"]
    if function == "sum":
        result = windowed.reduce(add)
    elif function == "sum_window":
        result = windowed.reduce(add, about(ShowSum()))
    elif function == "avg":
        result = windowed.aggregate(Average())
    else:
        result = windowed.process(about(ShowList() if function == "list" else CountFires()))
    mark = "*" if over_all else None
    if function == "sum":
        yield result.map(lambda item: f"{mark or item.key} {item.value}")
    elif function == "avg" and over_all:
        yield result.map(lambda line: f"* {line.split(' ', 1)[1]}")
    else:
        yield result
    if spec.get("late_output"):
        yield result.get_side_output(LATE).map(lambda item: f"late {item.key} {item.value} @ {item.time}")
