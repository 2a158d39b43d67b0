"""Tuples sent as their members give the same results, errors and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Configuration, Time, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import KeyedProcessFunction, ProcessFunction
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.jobmaster.local import LocalSlots
from millstream.operators.codegen import code_writer as codegen
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.testing import CollectSink, StreamHarness
from millstream.testing.local_job import LocalJob

Program = Callable[[DataStream], DataStream]


def run(program: Program, inlining: bool = True, records: int = 50) -> list[Any]:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"millstream.inlining": str(inlining).lower()})
    )
    env.set_parallelism(2)
    sink: CollectSink[Any] = CollectSink()  # type: ignore[type-arg]
    program(env.from_collection(list(range(records)))).sink_to(sink)
    LocalJob(env).run()
    return sorted(sink.results(), key=repr)


def lines_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects all lines generated from now on."""
    lines: list[str] = []
    build = codegen.CodeWriter.build

    def spy(self: codegen.CodeWriter, parameters: str) -> Any:
        function = build(self, parameters)
        lines.extend(line.strip() for line in codegen.linecache.getlines(function.__code__.co_filename))  # type: ignore[attr-defined]
        return function

    monkeypatch.setattr(codegen.CodeWriter, "build", spy)
    return lines


class Late(KeyedProcessFunction):
    """Emits from the loop and, when the stream ends, from a timer."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(1000)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), timestamp


class Sides(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value
        yield OutputTag("odd"), (value, 1)


def windowed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    stamped = stream.map(lambda x: (x % 3, x, 1)).assign_timestamps_and_watermarks(strategy)
    windows = stamped.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    return windows.reduce(lambda a, b: (a[0], max(a[1], b[1]), a[2] + b[2]))


PROGRAMS: dict[str, Program] = {
    "a constant": lambda s: s.map(lambda x: (x % 7, 1)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])),
    "all constant": lambda s: s.map(lambda x: (1, 2)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])),
    "a key of its own": lambda s: (
        s.map(lambda x: (x, x * x, 3)).key_by(lambda t: t[1] % 5).reduce(lambda a, b: (a[0] + b[0], b[1], a[2] + b[2]))
    ),
    "the whole": lambda s: s.map(lambda x: (x % 7, 1)).rebalance().map(lambda t: t),
    "the whole and its members": lambda s: s.map(lambda x: (x % 7, 1)).rebalance().map(lambda t: (t, t[0], t[1], t)),
    "beyond its end": lambda s: s.map(lambda x: (x, x)).rebalance().map(lambda t: (t[-1], t[0:1], t * 2)),
    "of a flat_map": lambda s: (
        s.flat_map(lambda x: [(w, 1) for w in (x, -x)]).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    ),
    "two ways": lambda s: (
        (m := s.map(lambda x: (x % 7, 1))).rebalance().map(lambda t: t[0]).union(m.key_by(lambda t: t[0]).map(str))
    ),
    "a window": windowed,
    "of a timer": lambda s: (
        s.key_by(lambda x: x % 7).process(Late()).map(lambda v: (v, 5)).rebalance().map(lambda t: t)
    ),
    "a side": lambda s: s.process(Sides()).get_side_output(OutputTag("odd")).rebalance().map(lambda t: t),
    "a list": lambda s: s.map(lambda x: (x, [x])).rebalance().map(lambda t: t),
    "filtered": lambda s: s.map(lambda x: (x, 1)).filter(lambda t: t[0] % 2 == 0).rebalance().map(lambda t: t),
    "reduced and sent on": lambda s: (
        s.map(lambda x: (x % 7, 1))
        .key_by(lambda t: t[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .key_by(lambda t: t[1])
        .reduce(lambda a, b: (a[0] + b[0], a[1]))
    ),
    "members that change places": lambda s: (
        s.map(lambda x: (x % 7, x)).key_by(lambda t: t[0] % 2).reduce(lambda a, b: (a[1], a[0]))
    ),
    "the value as a whole": lambda s: s.map(lambda x: (x % 9, 1)).key_by(lambda t: t[0]).reduce(lambda a, b: (a, b)),  # type: ignore[arg-type, return-value]
    "as wide as another": lambda s: s.map(lambda x: (x, 1)).key_by(lambda t: t[0] % 7).reduce(lambda a, b: (a[0],)),  # type: ignore[arg-type, return-value]
    "beside others": lambda s: (
        s.map(lambda x: (x % 7, 1))
        .union(s.map(lambda x: (abs(x) % 7, 100)))
        .key_by(lambda t: t[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    ),
    "not a number": lambda s: (
        s.map(lambda x: (float("nan"), 1))
        .map(lambda t: (t[0], t[1]))
        .key_by(lambda t: t[0])
        .reduce(lambda a, b: (0, a[1] + b[1]))
        .map(lambda t: t[1])
    ),
    "no hash": lambda s: s.map(lambda x: ([x % 3], 1)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_tuple_members_give_the_results_of_whole_records(program: Program) -> None:
    assert run(program) == run(program, inlining=False)
    assert run(program)


def test_tuple_members_and_whole_records_mix_in_an_epoch() -> None:
    """Blocks of members and blocks of whole records mix in one epoch."""
    program = PROGRAMS["beside others"]
    assert run(program, records=3000) == run(program, inlining=False, records=3000)


def test_tuple_members_omit_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_of(monkeypatch)
    run(PROGRAMS["a constant"])
    assert "for x0 in batch:" in lines
    assert not any(line.startswith("x = ") for line in lines)


def test_tuple_members_send_a_timestamp_member_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_of(monkeypatch)
    run(windowed)
    assert "for x0, x1 in zip(it, it):" in lines


def test_tuple_members_are_rebuilt_where_a_function_takes_the_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_of(monkeypatch)
    run(PROGRAMS["two ways"])
    assert lines.count("x = (x0, (1),)") == 2  # in each of two subtasks


FAILING: dict[str, tuple[Program, str]] = {
    "written out": (lambda s: s.map(lambda x: (x, 1)).rebalance().map(lambda t: 1 // (t[0] - 7)), "(7, 1)"),
    "called": (lambda s: s.map(lambda x: (x, 1)).rebalance().map(lambda t: int(1 / (t[0] - 7))), "(7, 1)"),
    "a member": (lambda s: s.map(lambda x: (x, 1 // (x - 7))).rebalance().map(lambda t: t), "7"),
    "behind a tuple": (lambda s: s.map(lambda x: (x, 1)).map(lambda t: (t[0], 1 // (t[0] - 7))), "(7, 1)"),
    "reduced": (
        lambda s: s.map(lambda x: (x, 1)).key_by(lambda t: 0).reduce(lambda a, b: (a[0], 1 // (b[0] - 7))),
        "(7, 1)",
    ),
    "a key": (lambda s: s.map(lambda x: (x, 1)).key_by(lambda t: 1 // (t[0] - 7)).map(lambda t: t), "(7, 1)"),
}


@pytest.mark.parametrize(("program", "record"), FAILING.values(), ids=FAILING)
def test_tuple_members_errors_show_the_whole_record(program: Program, record: str) -> None:
    with pytest.raises(SubtaskFailed) as raised:
        run(program)
    failure = raised.value.failure
    assert failure.record == record
    assert "ZeroDivisionError" in failure.user_traceback
    assert __file__ in failure.user_traceback


def test_tuple_members_are_copied_before_later_mutation() -> None:
    class Growing(ProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.seen: list[int] = []

        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
            self.seen.append(value)
            yield self.seen

    results = run(
        lambda s: s.process(Growing()).map(lambda seen: (seen, 1)).rebalance().map(lambda t: len(t[0])), records=6
    )
    assert results == [1, 1, 2, 2, 3, 3]


def counted(stream: DataStream) -> DataStream:
    pairs = stream.map(lambda x: (x % 3, 6 // x))
    return pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + 6 // b[1])).uid("count")


def counted_in_lists(stream: DataStream) -> DataStream:
    return stream.map(lambda x: (x % 3, 1)).key_by(lambda t: t[0]).reduce(lambda a, b: [*a[:1], 100]).uid("count")  # type: ignore[arg-type, return-value]


def test_tuple_members_state_of_another_program_is_restored() -> None:
    before = StreamHarness(counted_in_lists)
    before.process_elements([1, 4])
    assert before.output() == [(1, 1), [1, 100]]
    after = StreamHarness(counted, snapshot=before.snapshot(), parallelism=2)
    # Enough records per key that epochs do not count as having many new keys.
    for _ in range(3):
        after.process_elements([1] * 20)
    assert after.output() == [(1, n) for n in range(101, 161)]
    again = StreamHarness(counted_in_lists, snapshot=after.snapshot())
    again.process_element(1)
    assert again.output() == [[1, 100]]


@pytest.mark.parametrize("same_process", [False, True])
def test_tuple_members_failed_epoch_leaves_no_state(same_process: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = StreamHarness(counted)
    if same_process:
        monkeypatch.setattr(LocalSlots, "start", lambda self: None)
    harness.process_elements([1] * 20)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        harness.process_elements([1] * 20 + [7])
    harness.process_element(1)
    assert harness.output()[-1] == (1, 6 + 20)


@pytest.mark.parametrize("batch", [False, True])
def test_tuple_members_results_do_not_depend_on_epoch_size(batch: bool) -> None:
    def count(epoch: str, keys: int) -> list[Any]:
        settings = {"millstream.epoch.max-records": epoch, "execution.runtime-mode": "BATCH" if batch else "STREAMING"}
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        sink: CollectSink[Any] = CollectSink()  # type: ignore[type-arg]
        pairs = env.set_parallelism(2).from_source(NumberSequenceSource(0, 999)).map(lambda x: (x % keys, 1))
        pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(sink)
        LocalJob(env).run()
        return sorted(sink.results())

    # Few keys, then enough that most keys of an epoch are new.
    for keys in (5, 200):
        expected = [(k, n) for k in range(keys) for n in range(1, 1000 // keys + 1) if not batch or n == 1000 // keys]
        for epoch in ("1", "7", "300", "100000"):
            assert count(epoch, keys) == expected
