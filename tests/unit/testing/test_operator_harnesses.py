"""Harnesses run functions like a job: loops, state files, timers, copies and errors are the real ones."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError, MillstreamError
from millstream.common.time import Time
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    TimeDomain,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import CountTrigger, EventTimeSessionWindows, TumblingEventTimeWindows
from millstream.testing import (
    BroadcastHarness,
    KeyedBroadcastHarness,
    KeyedOneInputHarness,
    KeyedTwoInputHarness,
    ManualClock,
    OneInputHarness,
    Record,
    StreamHarness,
    TwoInputHarness,
    WindowHarness,
)

# --- functions of one input


class Double(MapFunction):
    def map(self, value: int) -> int:
        return value * 2


class Words(FlatMapFunction):
    def flat_map(self, value: str) -> list[str]:
        return value.split()


class Odd(FilterFunction):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


ODD = OutputTag("odd")


class Part(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield (ODD, value) if value % 2 else (value, ctx.timestamp())


class Add(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class Parity(KeySelector):
    def get_key(self, value: int) -> str:
        return "odd" if value % 2 else "even"


@pytest.mark.parametrize(
    ("function", "operation", "values", "expected"),
    [
        (Double(), None, [1, 2], [2, 4]),
        (lambda x: x + 1, "map", [1, 2], [2, 3]),
        (Words(), None, ["to be", "or"], ["to", "be", "or"]),
        (Odd(), None, [1, 2, 3], [1, 3]),
    ],
)
def test_one_input_harness_runs_stateless_functions(
    function: Any, operation: str | None, values: list[Any], expected: list[Any]
) -> None:
    with OneInputHarness(function, operation) as harness:
        for value in values:
            harness.process_element(value)
        assert harness.output() == harness.extract_output_values() == expected
    with OneInputHarness(function, operation) as at_once:
        at_once.process_elements(values)
        assert at_once.output() == expected


def test_keyed_harness_runs_reduce_with_a_key_selector() -> None:
    with KeyedOneInputHarness(Add(), Parity()) as harness:
        for value in range(1, 6):
            harness.process_element(value)
        assert harness.output() == [1, 2, 4, 6, 9]


def test_harness_records_carry_timestamps() -> None:
    with OneInputHarness(Double()) as harness:
        harness.process_element(1, timestamp=7)
        harness.process_element(2)
        assert harness.records() == [Record(2, 7), Record(4, None)]


def test_harness_collects_side_outputs() -> None:
    with OneInputHarness(Part(), side_outputs=[ODD]) as harness:
        harness.process_element(1, 10)
        harness.process_element(2, 20)
        harness.process_element(4)
        assert harness.output() == [(2, 20), (4, MIN_WATERMARK)]
        assert harness.side_output(ODD) == [1]
        assert harness.side_records(ODD) == [Record(1, 10)]
        harness.clear_output()
        assert harness.output() == harness.side_output(ODD) == []


def test_harness_rejects_an_undeclared_side_output() -> None:
    with OneInputHarness(Part()) as harness, pytest.raises(InvalidProgramError, match="side_outputs"):
        harness.side_output(ODD)


def test_harness_take_output_clears_it() -> None:
    with OneInputHarness(Double()) as harness:
        harness.process_element(1)
        assert harness.take_output() == [2]
        harness.process_element(2)
        assert harness.take_output() == [4]


# --- keyed state and timers


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        runtime_context.get_metrics_group().gauge("subtask", runtime_context.get_index_of_this_subtask)
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value == "bad":
            self.count.update(99)
            raise ZeroDivisionError("a bad record")
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        self.seen.inc()
        yield ctx.get_current_key(), n


class TimerFunction(KeyedProcessFunction):
    """Registers timers of both kinds 10 ms ahead."""

    def process_element(self, value: Any, ctx: Any) -> None:
        service = ctx.timer_service()
        if value.endswith("delete"):
            service.delete_event_time_timer(ctx.timestamp() + 10)
            return
        service.register_event_time_timer(ctx.timestamp() + 10)
        service.register_processing_time_timer(service.current_processing_time() + 10)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        domain = "event" if ctx.time_domain() is TimeDomain.EVENT_TIME else "processing"
        service = ctx.timer_service()
        yield domain, ctx.get_current_key(), timestamp, service.current_watermark(), service.current_processing_time()


def first(value: Any) -> Any:
    return value[0]


def test_harness_event_time_timers() -> None:
    with KeyedOneInputHarness(TimerFunction(), first) as harness:
        harness.process_element("b", 7)
        harness.process_element("a", 5)
        harness.process_element("a", 5)
        assert harness.event_timers() == [(15, "a"), (17, "b")]
        assert harness.event_timers("b") == [(17, "b")]
        harness.process_watermark(14)
        assert (harness.output(), harness.watermark) == ([], 14)
        harness.process_watermark(16)
        assert harness.records() == [Record(("event", "a", 15, 16, 0), 15)]
        harness.process_element("b delete", 7)
        assert harness.event_timers() == []
        harness.process_element("b", 7)
        harness.clear_output()
        harness.end_input()
        assert harness.output() == [("event", "b", 17, MAX_WATERMARK, 0)]
        assert (harness.event_timers(), harness.watermark) == ([], MAX_WATERMARK)


def test_harness_processing_time_timers() -> None:
    clock = ManualClock(100)
    with KeyedOneInputHarness(TimerFunction(), first, clock=clock) as harness:
        harness.process_element("a", 0)
        harness.advance_processing_time(9)
        assert (harness.output(), harness.processing_timers()) == ([], [(110, "a")])
        harness.set_processing_time(110)
        assert harness.records() == [Record(("processing", "a", 110, MIN_WATERMARK, 110), None)]
        assert (harness.processing_timers(), clock()) == ([], 110)


class Everything(KeyedProcessFunction):
    """All kinds of keyed state."""

    def __init__(self, ttl: StateTtlConfig | None = None) -> None:
        self.ttl = ttl

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptors: list[Any] = [
            ValueStateDescriptor("value"),
            ListStateDescriptor("list"),
            MapStateDescriptor("map"),
            ReducingStateDescriptor("sum", lambda a, b: a + b),
            AggregatingStateDescriptor("mean", Mean()),
        ]
        for descriptor in descriptors:
            if self.ttl is not None:
                descriptor.enable_time_to_live(self.ttl)
        value, listed, mapped, reducing, aggregating = descriptors
        self.value, self.list = runtime_context.get_state(value), runtime_context.get_list_state(listed)
        self.map, self.sum = runtime_context.get_map_state(mapped), runtime_context.get_reducing_state(reducing)
        self.mean = runtime_context.get_aggregating_state(aggregating)

    def process_element(self, value: Any, ctx: Any) -> None:
        _, number = value
        self.value.update({"last": number})
        self.list.add(number)
        self.map.put(str(number), number)
        self.sum.add(number)
        self.mean.add(number)


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


NAMES = ["value", "list", "map", "sum", "mean"]


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize("ttl", [None, StateTtlConfig.new_builder(Time.milliseconds(100)).build()])
def test_harness_state_equals_the_state_of_functions(ttl: StateTtlConfig | None, backend: str) -> None:
    config = Configuration.from_dict({"state.backend.type": backend})
    with KeyedOneInputHarness(Everything(ttl), first, config=config) as harness:
        for value in [("a", 1), ("b", 5), ("a", 2)]:
            harness.process_element(value)
        assert [harness.state(n, "a") for n in NAMES] == [{"last": 2}, [1, 2], {"1": 1, "2": 2}, 3, 1.5]
        assert [harness.state(n, "unknown") for n in NAMES] == [None, [], {}, None, None]
        assert [sorted(harness.state_keys(n)) for n in NAMES] == [["a", "b"]] * 5
        assert harness.num_keyed_state_entries() == 10
        harness.set_processing_time(100)
        left = {None: (10, {"last": 2})}.get(ttl, (0, None))  # type: ignore[arg-type]
        assert (harness.num_keyed_state_entries(), harness.state("value", "a")) == left


def test_harness_state_does_not_renew_ttl() -> None:
    ttl = (
        StateTtlConfig.new_builder(Time.milliseconds(100))
        .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)  # type: ignore[attr-defined]
        .build()
    )
    with KeyedOneInputHarness(Everything(ttl), first) as harness:
        harness.process_element(("a", 1))
        harness.set_processing_time(90)
        assert harness.state("value", "a") == {"last": 1}
        harness.state("value", "a")["last"] = 7
        assert harness.state("value", "a") == {"last": 1}
        harness.set_processing_time(101)
        assert harness.state("value", "a") is None


def test_harness_state_of_list_keys() -> None:
    with KeyedOneInputHarness(Count(), lambda v: [v, {"k": v}]) as harness:
        harness.process_element("a")
        assert harness.state("count", ["a", {"k": "a"}]) == 1
        assert harness.state_keys("count") == [["a", {"k": "a"}]]


def test_harness_state_error_lists_known_states() -> None:
    with KeyedOneInputHarness(Count(), first) as harness, pytest.raises(InvalidProgramError, match="are: 'count'"):
        harness.state("counts", "a")


def test_harness_metrics_and_job_parameters() -> None:
    with KeyedOneInputHarness(Count(), first, parallelism=2) as harness:
        harness.process_elements(["a", "b", "c"])
        assert harness.metrics()["KEYED PROCESS.seen"] == 3
    config = Configuration.from_dict({"greeting": "hello"})
    with OneInputHarness(Greet(), config=config) as harness:
        harness.process_element("you")
        assert harness.output() == ["hello you"]


class Greet(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.greeting = runtime_context.get_job_parameter("greeting", "")

    def map(self, value: str) -> str:
        return f"{self.greeting} {value}"


# --- two inputs


class Sides(CoMapFunction):
    def map1(self, value: Any) -> str:
        return f"1:{value}"

    def map2(self, value: Any) -> str:
        return f"2:{value}"


class FlatSides(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> list[Any]:
        return [value] * 1

    def flat_map2(self, value: Any) -> list[Any]:
        return [value] * 2


class ProcessSides(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield 1, value, ctx.timestamp()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield 2, value, ctx.timestamp()


@pytest.mark.parametrize(
    ("function", "expected"),
    [(Sides(), ["1:a", "2:b"]), (FlatSides(), ["a", "b", "b"]), (ProcessSides(), [(1, "a", 4), (2, "b", 5)])],
)
def test_two_input_harness(function: Any, expected: list[Any]) -> None:
    with TwoInputHarness(function) as harness:
        harness.process_element1("a", 4)
        harness.process_element2("b", 5)
        assert harness.output() == expected


class Match(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left"))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.left.add(value)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.left.get(), value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.left.clear()
        yield "over", ctx.get_current_key()


def test_keyed_two_input_harness_watermarks() -> None:
    with KeyedTwoInputHarness(Match(), first, lambda v: v[-1]) as harness:
        harness.process_element1("ax", 0)
        harness.process_element2("xa")
        assert harness.take_output() == [(["ax"], "xa")]
        assert harness.state("left", "a") == ["ax"]
        harness.process_watermark1(50)
        assert (harness.output(), harness.watermark) == ([], MIN_WATERMARK)
        harness.process_watermark2(10)
        assert (harness.output(), harness.watermark) == ([("over", "a")], 10)
        assert harness.num_keyed_state_entries() == 0
        harness.end_input(2)
        assert harness.watermark == 50
        harness.process_element1("bx", 60)
        harness.end_input(1)
        assert harness.output()[-1] == ("over", "b")


# --- broadcast

RULES = MapStateDescriptor("rules")


class Translate(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_broadcast_state(RULES).get(value)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(*value)


class KeyedRules(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value, sorted(ctx.get_broadcast_state(RULES).keys())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(value, True)
        counts = []
        ctx.apply_to_keyed_state(ValueStateDescriptor("count"), lambda key, state: counts.append((key, state.value())))
        yield "all", sorted(counts)


def test_broadcast_harness_reaches_every_subtask() -> None:
    with BroadcastHarness(Translate(), [RULES], parallelism=3) as harness:
        harness.process_broadcast_element(("a", 1))
        harness.process_elements(["a", "b", "a", "a"])
        assert sorted(harness.output(), key=str) == [1, 1, 1, None]
        assert [harness.broadcast_state("rules", i) for i in range(3)] == [{"a": 1}] * 3


def test_keyed_broadcast_harness() -> None:
    with KeyedBroadcastHarness(KeyedRules(), first, [RULES]) as harness:
        harness.process_element("apple")
        harness.process_broadcast_element("r1")
        harness.process_element("axe")
        assert harness.output() == [("apple", []), ("all", [("a", 1)]), ("axe", ["r1"])]
        assert harness.state("count", "a") == 2
        assert harness.broadcast_state("rules") == {"r1": True}


# --- windows and other pieces


class Show(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield key, context.window().start, [v for _, v in elements]


def pair_sum(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def test_window_harness_fires_late_data_and_clears_state() -> None:
    late = OutputTag("late")
    windows = TumblingEventTimeWindows.of(10)
    with WindowHarness(windows, Show(), first, allowed_lateness=5, late_tag=late) as harness:
        harness.process_element(("a", 1), 3)
        harness.process_element(("a", 2), 12)
        harness.process_watermark(9)
        assert harness.take_output() == [("a", 0, [1])]
        harness.process_element(("a", 3), 4)
        assert harness.take_output() == [("a", 0, [1, 3])]
        harness.process_watermark(14)
        harness.process_element(("a", 4), 5)
        assert (harness.take_output(), harness.side_output(late)) == ([], [("a", 4)])
        harness.process_watermark(100)
        assert harness.take_output() == [("a", 10, [2])]
        assert harness.num_keyed_state_entries() == 0


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows.of(10), EventTimeSessionWindows.with_gap(10)])
def test_window_harness_with_merging_leaves_no_state(assigner: Any) -> None:
    with WindowHarness(assigner, pair_sum, first, "reduce") as harness:
        harness.process_element(("a", 1), 1)
        harness.process_element(("b", 1), 1)
        harness.process_element(("a", 2), 2)
        assert harness.num_keyed_state_entries() == 2
        harness.process_watermark(100)
        assert sorted(harness.output()) == [("a", 3), ("b", 1)]
        assert harness.num_keyed_state_entries() == 0


def test_window_harness_window_all_with_a_trigger() -> None:
    windows = TumblingEventTimeWindows.of(10)
    with WindowHarness(windows, Mean(), trigger=CountTrigger.of(2), parallelism=2) as harness:
        for value in (1, 2, 6):
            harness.process_element(value, 1)
        assert harness.output() == [1.5]


def test_stream_harness_runs_a_subgraph() -> None:
    def piece(left: Any, right: Any) -> Any:
        return left.union(right).map(lambda x: x % 3).key_by(lambda x: x).process(Count())

    harness = StreamHarness(piece, 2, parallelism=2)
    for i in range(6):
        harness.process_element(i, input=1 + i % 2)
    assert sorted(harness.output()) == [(k, n) for k in range(3) for n in (1, 2)]


# --- snapshots


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_harness_snapshot_restores_at_any_parallelism(before: int, after: int) -> None:
    keys = [chr(97 + i) for i in range(8)]
    with KeyedOneInputHarness(Count(), first, parallelism=before) as harness:
        for key in keys:
            harness.process_element(key)
        snapshot = pickle.loads(pickle.dumps(harness.snapshot()))
        # The snapshot excludes later changes.
        harness.process_element("a")
    with KeyedOneInputHarness(Count(), first, parallelism=after, snapshot=snapshot) as again:
        assert again.output() == []
        again.process_elements(keys)
        assert sorted(again.output()) == [(k, 2) for k in keys]
        assert sorted(again.state_keys("count")) == keys
        second = again.snapshot()
    with KeyedOneInputHarness(Count(), first, parallelism=before, snapshot=second) as third:
        third.process_element("a")
        assert third.output() == [("a", 3)]


@pytest.mark.parametrize("after", [1, 3])
def test_harness_snapshot_includes_timers_watermark_and_clock(after: int) -> None:
    with KeyedOneInputHarness(TimerFunction(), first) as harness:
        harness.set_processing_time(1000)
        harness.process_element("a", 5)
        harness.process_watermark(12)
        snapshot = harness.snapshot()
    with KeyedOneInputHarness(TimerFunction(), first, snapshot=snapshot, parallelism=after) as again:
        assert (again.watermark, again.clock()) == (12, 1000)
        assert (again.event_timers(), again.processing_timers()) == ([(15, "a")], [(1010, "a")])
        again.process_watermark(15)
        again.advance_processing_time(10)
        assert [o[:3] for o in again.output()] == [("event", "a", 15), ("processing", "a", 1010)]


def test_harness_snapshot_restores_broadcast_state_in_new_subtasks() -> None:
    with BroadcastHarness(Translate(), [RULES]) as harness:
        harness.process_broadcast_element(("a", 1))
        snapshot = harness.snapshot()
    with BroadcastHarness(Translate(), [RULES], parallelism=2, snapshot=snapshot) as again:
        again.process_elements(["a", "a"])
        assert again.output() == [1, 1]


class Buffered(MapFunction, CheckpointedFunction):
    """Collects its input in an attribute; stores it when requested."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen"))
        self.seen = list(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.seen)

    def map(self, value: Any) -> list[Any]:
        self.seen.append(value)
        return sorted(self.seen)


def test_harness_snapshot_redistributes_operator_state() -> None:
    with OneInputHarness(Buffered()) as harness:
        harness.process_elements([1, 2, 3, 4])
        assert harness.operator_state("seen") == [1, 2, 3, 4]
        snapshot = harness.snapshot()
    with OneInputHarness(Buffered(), parallelism=2, snapshot=snapshot) as again:
        assert sorted(again.operator_state("seen")) == [1, 2, 3, 4]
        again.process_elements([5, 5])
        assert sorted(len(seen) for seen in again.output()) == [3, 3]


def test_harness_snapshot_with_unmatched_state_is_rejected() -> None:
    with KeyedOneInputHarness(Count(), first) as harness:
        harness.process_element("a")
        snapshot = harness.snapshot()
    with pytest.raises(InvalidProgramError, match="'KEYED PROCESS'.*matches no operator"):
        OneInputHarness(Double(), snapshot=snapshot)


# --- errors that otherwise only a cluster finds


class Keep(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("kept"))
        self.map = runtime_context.get_map_state(MapStateDescriptor("by-lock"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value == "lock as value":
            self.value.update({"lock": threading.Lock()})
        if value == "lock as key":
            self.map.put(threading.Lock(), 1)
        yield value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("lock as value", r"self\.value\.update.*cannot pickle.*in operator 'KEYED PROCESS'"),
        (
            "lock as key",
            r"State 'by-lock' holds an object that cannot be pickled.*cannot pickle.*in operator 'KEYED PROCESS'",
        ),
    ],
)
def test_harness_rejects_state_that_cannot_be_pickled(value: str, message: str) -> None:
    with KeyedOneInputHarness(Keep(), first) as harness:
        with pytest.raises(JobExecutionError, match=f"(?s){message}"):
            harness.process_element(value)
        harness.process_element("fine")
        assert harness.output() == ["fine"]


def test_harness_rejects_records_that_cannot_be_pickled() -> None:
    with OneInputHarness(Double()) as harness, pytest.raises(MillstreamError, match="cannot be pickled"):
        harness.process_element(threading.Lock())


def test_harness_pickles_functions() -> None:
    class Counting(MapFunction):
        calls = 0

        def map(self, value: Any) -> Any:
            self.calls += 1
            return self.calls

    function = Counting()
    with OneInputHarness(function) as harness:
        harness.process_element(1)
        assert harness.output() == [1]
    assert function.calls == 0


class Append(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.last: list[Any] = []

    def map(self, value: list[Any]) -> list[Any]:
        value.append("seen")
        self.last.append(value)
        for previous in self.last:
            previous.append("again")
        return value


def test_harness_does_not_share_mutable_values() -> None:
    value = ["mine"]
    with OneInputHarness(Append()) as harness:
        harness.process_element(value)
        assert value == ["mine"]
        harness.process_element(value)
        # The function has mutated its first record since, but after it was sent.
        assert harness.output() == [["mine", "seen", "again"]] * 2
    with OneInputHarness(Append()) as at_once:
        at_once.process_elements([value, value])
        assert at_once.output() == [["mine", "seen", "again"]] * 2


class KeepList(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("kept"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        values = self.state.value() or []
        values.append(value)
        if len(values) == 1:
            self.state.update(values)
        yield values


def test_harness_state_changes_only_by_update() -> None:
    with KeyedOneInputHarness(KeepList(), first) as harness:
        for value in ("a1", "a2", "a3"):
            harness.process_element(value)
        assert harness.output() == [["a1"], ["a1", "a2"], ["a1", "a3"]]
        assert harness.state("kept", "a") == ["a1"]


# --- errors and lifecycle


def test_harness_error_names_operator_and_record_then_restarts() -> None:
    with KeyedOneInputHarness(Count(), lambda v: v[0]) as harness:
        harness.process_element("b")
        with pytest.raises(JobExecutionError, match=r"(?s)a bad record.*in operator 'KEYED PROCESS'.*'bad'") as raised:
            harness.process_element("bad")
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert "millstream/operators" not in str(raised.value)
        harness.process_element("b")
        assert harness.output() == [("b", 1), ("b", 2)]


class AttributeMap(MapFunction):
    """Keeps a value in an attribute instead of state."""

    def __init__(self) -> None:
        self.seen = 0

    def map(self, value: int) -> int:
        self.seen += 1 // value
        return self.seen


def test_harness_failure_discards_attributes() -> None:
    with OneInputHarness(AttributeMap()) as harness:
        harness.process_elements([1, 1])
        with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
            harness.process_element(0)
        harness.process_element(1)
        assert harness.output() == [1, 2, 1]


class Diary(MapFunction):
    pages: list[str] = []

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def open(self, runtime_context: RuntimeContext) -> None:
        Diary.pages.append("open")
        if self.fails:
            raise OSError("no database")

    def map(self, value: Any) -> Any:
        Diary.pages.append("map")
        return value

    def close(self) -> None:
        Diary.pages.append("close")


def test_harness_opens_and_closes_functions_once() -> None:
    Diary.pages.clear()
    with OneInputHarness(Diary()) as harness:
        assert Diary.pages == ["open"]
        harness.process_element(1)
    harness.close()
    assert Diary.pages == ["open", "map", "close"]
    assert harness.output() == [1]
    with pytest.raises(MillstreamError, match="closed"):
        harness.process_element(1)


def test_harness_end_input_closes_functions() -> None:
    Diary.pages.clear()
    with OneInputHarness(Diary()) as harness:
        harness.end_input()
        assert Diary.pages == ["open", "close"]
        with pytest.raises(MillstreamError, match="has ended"):
            harness.process_element(1)
    assert Diary.pages == ["open", "close"]


def test_harness_reports_a_function_that_fails_to_open() -> None:
    with pytest.raises(JobExecutionError, match=r"(?s)no database.*in operator 'Map'"):
        OneInputHarness(Diary(fails=True))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: OneInputHarness(lambda x: x), "operation= to one of process, flat_map, map, filter, reduce"),
        (lambda: OneInputHarness(Add()), r"reduce\(\) needs a keyed stream"),
        (lambda: TwoInputHarness(Double()), "operation="),
        (lambda: OneInputHarness(Double), "give it an instance"),
    ],
)
def test_harness_rejects_misuse(build: Any, message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        build()
