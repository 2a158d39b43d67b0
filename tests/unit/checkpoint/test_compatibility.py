"""The savepoint compatibility check predicts the result of a restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.cep import CEP, Pattern
from millstream.checkpoint.compatibility import UpgradeReport, check_upgrade, declared_states
from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.restore import restore
from millstream.common import Time, Types, WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction, ProcessWindowFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from millstream.graph.stream_graph import operator_id_of
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.state_processor import Savepoint
from millstream.testing import CollectSink, LocalJob, save_checkpoint, save_savepoint, start_from
from tests.support.state_programs import build

Env = StreamExecutionEnvironment


class StoringFunction(KeyedProcessFunction):
    """Stores a value in each of several states."""

    def __init__(self, *descriptors: StateDescriptor, problem: Exception | None = None) -> None:
        self.descriptors = descriptors
        self.problem = problem

    def open(self, runtime_context: Any) -> None:
        self.values = [runtime_context.get_state(d) for d in self.descriptors if isinstance(d, ValueStateDescriptor)]
        self.lists = [runtime_context.get_list_state(d) for d in self.descriptors if isinstance(d, ListStateDescriptor)]
        if self.problem is not None:
            raise self.problem

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        for state in self.values:
            state.update(value)
        for state in self.lists:
            state.add(value)
        return iter(())


INT = ValueStateDescriptor("held", Types.INT())


def env_with(function: KeyedProcessFunction, uid: str | None = "hold", parallelism: int = 2) -> Env:
    env = Env.get_execution_environment().set_parallelism(parallelism)
    stream = env.from_collection(list(range(20))).uid("numbers").key_by(lambda x: x % 5).process(function)
    if uid is not None:
        stream = stream.uid(uid)
    stream.sink_to(CollectSink()).uid("out")
    return env


def saved(env: Env, directory: Path, save: Callable[..., str] = save_savepoint) -> str:
    job = LocalJob(env, epoch_sizes=lambda: 10)
    job.run_epoch()
    return save(job, directory)


def check(location: str, env: Env) -> UpgradeReport:
    plan = LocalJob(env).plan
    return check_upgrade(Inspection.open(location), plan, declared_states(plan))


def texts(findings: Any) -> list[tuple[str, str | None, str]]:
    return [(f.operator, f.state, f.text) for f in findings]


def can_start(location: str, env: Callable[[], Env]) -> bool:
    """Return whether a job starts from the location."""
    try:
        start_from(env(), location, epoch_sizes=lambda: 5).run_epoch()
    except (InvalidProgramError, SubtaskFailed):
        return False
    return True


@pytest.mark.parametrize("save", [save_savepoint, save_checkpoint])
def test_savepoint_check_accepts_the_same_program(save: Any, tmp_path: Path) -> None:
    report = check(saved(build()[0], tmp_path, save), build()[0])
    assert report.is_compatible()
    assert not (report.new or report.lost or report.changed or report.unknown)
    assert [(f.operator, f.text[:24]) for f in report.warnings] == [("Reduce", "has state but no uid: it")]
    restored = {m.uid or m.operator: m.restores for m in report.matches}
    assert restored["numbers"] == ["position"]
    assert "total (value, 7 rows)" in restored["keep"]
    assert restored["rules"] == ["rules (broadcast, 2 rows)"]


def test_savepoint_check_reports_changed_parallelism(tmp_path: Path) -> None:
    env = build(3)[0].set_max_parallelism(64)
    report = check(saved(build()[0], tmp_path), env)
    assert report.is_compatible()
    matches = {m.uid: m for m in report.matches}
    assert matches["keep"].parallelism == (2, 3)
    assert matches["keep"].max_parallelism == (128, 64)
    assert matches["numbers"].parallelism == (1, 1)


def test_savepoint_check_reports_lost_and_new_operators(tmp_path: Path) -> None:
    location = saved(env_with(StoringFunction(INT)), tmp_path)
    report = check(location, env_with(StoringFunction(INT), uid="held elsewhere"))
    assert not report.is_compatible()
    assert report.is_compatible(allow_lost=True)
    assert texts(report.lost) == [
        ("KEYED PROCESS", None, "held (value, 5 rows): the program has no operator with uid 'hold'")
    ]
    assert texts(report.new) == [("KEYED PROCESS", None, "is new and starts empty (held)")]
    assert not can_start(location, lambda: env_with(StoringFunction(INT), uid="held elsewhere"))


def test_savepoint_check_warns_about_generated_ids(tmp_path: Path) -> None:
    location = saved(env_with(StoringFunction(INT), uid=None), tmp_path)
    assert [f.text for f in check(location, env_with(StoringFunction(INT), uid=None)).warnings] == [
        "has state but no uid: its generated id depends on the structure of the program. Set .uid(...)"
    ]
    lost = check(location, env_with(StoringFunction(INT), uid="now with")).lost
    assert lost[0].text.startswith("held (value, 5 rows): it had no uid, and no operator has its generated id ")


EXPIRING = ValueStateDescriptor("held", Types.INT())
EXPIRING.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (ListStateDescriptor("held", Types.INT()), "was value state and is list state now"),
        (
            ValueStateDescriptor("held", Types.STRING()),
            "was declared as Integer and is declared as String now; stored values are not converted",
        ),
        (EXPIRING, "had no TTL and has one now, which changes the stored format"),
    ],
)
def test_savepoint_check_reports_changed_state_kind_or_type(now: StateDescriptor, text: str, tmp_path: Path) -> None:
    report = check(saved(env_with(StoringFunction(INT)), tmp_path), env_with(StoringFunction(now)))
    assert not report.is_compatible(allow_lost=True)
    assert texts(report.changed) == [("KEYED PROCESS", "held", text)]


def test_savepoint_check_reports_removed_ttl(tmp_path: Path) -> None:
    report = check(saved(env_with(StoringFunction(EXPIRING)), tmp_path), env_with(StoringFunction(INT)))
    assert [f.text for f in report.changed] == ["had a TTL and has none now, which changes the stored format"]


def test_map_state_type_text_has_key_and_value_types(tmp_path: Path) -> None:
    assert MapStateDescriptor("m", Types.STRING(), Types.INT()).type_text() == "String -> Integer"
    assert MapStateDescriptor("m", None, Types.INT()).type_text() == "? -> Integer"
    assert MapStateDescriptor("m").type_text() == ""


def test_savepoint_check_accepts_undeclared_types(tmp_path: Path) -> None:
    untyped = ValueStateDescriptor("held")
    assert check(
        saved(env_with(StoringFunction(untyped)), tmp_path / "1"), env_with(StoringFunction(INT))
    ).is_compatible()
    assert check(
        saved(env_with(StoringFunction(INT)), tmp_path / "2"), env_with(StoringFunction(untyped))
    ).is_compatible()


def test_savepoint_check_names_removed_pattern_states(tmp_path: Path) -> None:
    def program(pattern: Pattern) -> Env:
        env = Env.get_execution_environment().set_parallelism(1)
        marks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e)
        numbers = env.from_collection(list(range(20))).uid("numbers").assign_timestamps_and_watermarks(marks)
        matches = CEP.pattern(numbers.key_by(lambda x: x % 5), pattern).select(str).uid("patterns")
        matches.sink_to(CollectSink()).uid("out")
        return env

    def ten() -> Pattern:
        return Pattern.begin("ten").where(lambda n: n % 10 > 2)

    before = saved(program(ten().next("never").where(lambda n: n < 0).times(2)), tmp_path)
    same = check(before, program(ten().next("never").where(lambda n: n < 5).times(2)))
    assert (
        same.is_compatible()
        and "pattern-runs (value" in str(same.matches)
        and "pattern-events (list" in str(same.matches)
    )
    other = check(before, program(ten().next("other").optional().next("never")))
    assert not other.is_compatible()
    assert [(f.state, f.text) for f in other.changed] == [
        ("pattern-runs", "may have runs in states that the pattern no longer has: never:0; new are other")
    ]


def test_savepoint_check_reports_new_and_unused_states(tmp_path: Path) -> None:
    other = ValueStateDescriptor("other")
    report = check(saved(env_with(StoringFunction(INT)), tmp_path), env_with(StoringFunction(other)))
    assert report.is_compatible()
    assert texts(report.new) == [("KEYED PROCESS", "other", "starts empty")]
    assert texts(report.warnings) == [
        ("KEYED PROCESS", "held", "is not used in open(): it is kept unchanged until it is used")
    ]


def test_savepoint_check_accepts_a_changed_kind_without_rows(tmp_path: Path) -> None:
    other = ValueStateDescriptor("other")
    location = saved(env_with(StoringFunction(INT, other)), tmp_path / "before")
    emptied = Savepoint.load(location).update("hold", "held", lambda row: None).write(tmp_path / "after")
    lists = ListStateDescriptor("held")
    assert not check(location, env_with(StoringFunction(lists, other))).is_compatible()
    assert check(emptied, env_with(StoringFunction(lists, other))).is_compatible()
    assert not can_start(location, lambda: env_with(StoringFunction(lists, other)))
    assert can_start(emptied, lambda: env_with(StoringFunction(lists, other)))


def test_savepoint_check_reports_functions_that_fail_to_open(tmp_path: Path) -> None:
    location = saved(env_with(StoringFunction(INT)), tmp_path)
    broken = StoringFunction(INT, problem=ConnectionError("no database\nat this address"))
    report = check(location, env_with(broken))
    assert report.is_compatible()
    assert texts(report.unknown) == [
        ("KEYED PROCESS", None, "its functions could not be opened: ConnectionError: no database at this address")
    ]
    # States registered before the failure are checked.
    wrong = StoringFunction(ListStateDescriptor("held"), problem=ConnectionError())
    assert [f.text for f in check(location, env_with(wrong)).changed] == ["was value state and is list state now"]


def test_savepoint_check_opens_only_operators_with_state() -> None:
    class Explodes(MapFunction):
        def open(self, runtime_context: Any) -> None:
            raise AssertionError("opened")

        def map(self, value: Any) -> Any:
            return value

    env = Env.get_execution_environment().set_parallelism(1)
    stream = env.from_collection([1, 2, 3]).map(Explodes()).key_by(lambda x: x).sum(0).uid("sum")
    stream.map(Explodes()).sink_to(CollectSink())
    assert {i: d.problem for i, d in declared_states(LocalJob(env).plan).items()} == {operator_id_of("sum"): ""}


def test_savepoint_check_reports_new_and_lost_sources(tmp_path: Path) -> None:
    def program(uid: str) -> Env:
        env = Env.get_execution_environment().set_parallelism(1)
        env.from_collection([1, 2, 3] * 10).uid(uid).key_by(lambda x: x).sum(0).uid("sum").sink_to(CollectSink())
        return env

    report = check(saved(program("a"), tmp_path), program("b"))
    assert [f.text for f in report.new] == ["is a new source and is read from its beginning"]
    assert [f.text for f in report.lost] == ["position: the program has no operator with uid 'a'"]


# --- windows


class Listed(ProcessWindowFunction):
    """Yields the records of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield key, sorted(elements)

    def clear(self, context: Any) -> None:
        pass


def windows(make: Callable[[Any], Any], sink: CollectSink | None = None) -> Env:
    env = Env.get_execution_environment().set_parallelism(2)
    marks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
    keyed = env.from_collection(list(range(20))).uid("n").assign_timestamps_and_watermarks(marks).uid("marks")
    make(keyed.key_by(lambda x: x % 5)).uid("windows").sink_to(sink or CollectSink()).uid("out")
    return env


def add(a: int, b: int) -> int:
    return a + b


def tumbling(keyed: Any) -> Any:
    return keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))


def session(keyed: Any) -> Any:
    return keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(100)))


WINDOWS = {
    "panes": lambda k: tumbling(k).reduce(add),
    "lateness": lambda k: tumbling(k).allowed_lateness(5).reduce(add),
    "listed": lambda k: tumbling(k).process(Listed()),
    "sessions": lambda k: session(k).reduce(add),
    "late sessions": lambda k: session(k).allowed_lateness(5).reduce(add),
    "listed sessions": lambda k: session(k).process(Listed()),
    "no windows": lambda k: k.sum(0),
}
FITS = [{"panes", "lateness"}, {"sessions", "late sessions"}]


@pytest.mark.parametrize("before", WINDOWS)
@pytest.mark.parametrize("now", WINDOWS)
def test_savepoint_check_matches_restore_for_other_window_types(before: str, now: str, tmp_path: Path) -> None:
    location = saved(windows(WINDOWS[before]), tmp_path)
    report = check(location, windows(WINDOWS[now]))
    fits = before == now or any({before, now} <= group for group in FITS)
    assert report.is_compatible() == fits, report.changed
    if fits:
        uninterrupted, rest = CollectSink(), CollectSink()
        LocalJob(windows(WINDOWS[now], uninterrupted)).run()
        start_from(windows(WINDOWS[now], rest), location).run()
        assert sorted(rest.results())[-5:] == sorted(uninterrupted.results())[-5:]


# --- restores that fail


def test_savepoint_check_reports_staged_output_of_a_removed_sink(tmp_path: Path) -> None:
    location = saved(env_with(StoringFunction(INT)), tmp_path)
    inspection = Inspection.open(location)
    sink = inspection.operator("out")
    inspection.snapshot.committables[sink.id] = b""

    def program() -> Env:
        env = Env.get_execution_environment().set_parallelism(2)
        stream = (
            env.from_collection(list(range(20))).uid("numbers").key_by(lambda x: x % 5).process(StoringFunction(INT))
        )
        stream.uid("hold").sink_to(CollectSink()).uid("another")
        return env

    plan = LocalJob(program()).plan
    report = check_upgrade(inspection, plan, declared_states(plan))
    assert [f.text for f in report.lost] == ["staged output: the program has no operator with uid 'out'"]
    with pytest.raises(InvalidProgramError, match="'Collect Sink' \\(uid 'out'\\) matches no operator of the program"):
        restore(inspection.snapshot, plan, "")
