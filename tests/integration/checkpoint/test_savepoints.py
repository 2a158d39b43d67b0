"""The state processor: reads, changes and writes savepoints and checkpoints, which jobs then restore."""

from __future__ import annotations

import datetime
import json
import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millstream.checkpoint.manifest import Manifest, decode_manifest, encode_manifest
from millstream.checkpoint.restore import is_same_graph
from millstream.checkpoint.snapshot import unpack
from millstream.common import WatermarkStrategy
from millstream.common.errors import DamagedStateError, InvalidProgramError, MissingClassError
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.stream_execution_environment import builder_of
from millstream.datastream.window import TimeWindow
from millstream.graph.stream_graph import operator_id_of
from millstream.operators.runtime.runtime_snapshot import decode
from millstream.state.key_groups import freeze, key_group, owned_groups, owner, thaw
from millstream.state_processor import Savepoint
from millstream.testing import (
    ABORT,
    CollectSink,
    LocalJob,
    ManualClock,
    TestingSource,
    save_checkpoint,
    save_savepoint,
    start_from,
)
from tests.support.state_programs import COUNT, build, key_of

Save = Callable[[LocalJob, Path], str]
SAVES = pytest.mark.parametrize("save", [save_savepoint, save_checkpoint], ids=["savepoint", "checkpoint"])


def running(parallelism: int = 2, records: int = 10, epochs: int = 4, **settings: Any) -> LocalJob:
    """Run the program with every kind of state to the middle of its input."""
    job = LocalJob(build(parallelism)[0], epoch_sizes=lambda: records, **settings)
    for _ in range(epochs):
        job.run_epoch()
    return job


def finished(location: str, parallelism: int = 2, **settings: Any) -> list[Any]:
    """Restore a savepoint, run to the end and return the results."""
    env, sink = build(parallelism)
    start_from(env, location, **settings).run()
    return sink.results()


def counted(results: Any) -> Counter[str]:
    return Counter(map(repr, results))


def rows_of(savepoint: Savepoint, uid: str, name: str) -> dict[Any, Any]:
    rows = {(freeze(r.key), r.namespace): r.value for r in savepoint.keyed_state(uid, name)}
    return {(k if n is None else (k, n)): v for (k, n), v in rows.items()}


def state(savepoint: Savepoint, uid: str, name: str) -> Any:
    return next(s for o in savepoint.operators() if o.uid == uid for s in o.states if s.name == name)


# --- reading


@SAVES
def test_operators_list_states_with_kind_type_and_rows(save: Save, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(), tmp_path))
    operators = {o.uid or o.name: o for o in savepoint.operators()}
    assert operators["keep"].parallelism == 2
    assert operators["keep"].max_parallelism == 128
    listed = {(s.name, s.kind, s.type, s.ttl, s.rows) for s in operators["keep"].states}
    assert listed == {
        ("total", "value", "Integer", "", 7),
        ("seen", "list", "String", "", 7),
        ("by rest", "map", "Integer -> Integer", "", 7),
        ("sum", "reducing", "", "", 7),
        ("recent", "value", "Integer", "1 h", 7),
        ("event-timers", "timers", "", "", 40),
    }
    assert all(s.size > 0 for o in operators.values() for s in o.states)
    others = {o: [(s.name, s.kind, s.scope) for s in operators[o].states] for o in operators}
    assert others["counter"] == [("seen here", "operator list", "operator")]
    assert others["rules"] == [("rules", "broadcast", "operator")]
    assert others["panes"] == [("window-panes", "panes", "keyed")]
    assert others["sessions"] == [("window-sessions", "sessions", "keyed")]
    assert set(others["general"]) == {("event-timers", "timers", "keyed"), ("window-contents", "list", "keyed")}
    assert others["Reduce"] == [("reduce", "reducing", "keyed")]
    assert others["kept"] == []


@SAVES
def test_operators_report_row_count_of_each_state(save: Save, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(3), tmp_path))
    for operator in savepoint.operators():
        for state in operator.states:
            read = savepoint.keyed_state if state.scope == "keyed" else savepoint.operator_state
            assert state.rows == sum(1 for _ in read(operator.id, state.name)), state


@SAVES
@pytest.mark.parametrize("parallelism", [1, 3])
def test_keyed_state_matches_state_of_running_job(save: Save, parallelism: int, tmp_path: Path) -> None:
    job = running(parallelism)
    savepoint = Savepoint.load(save(job, tmp_path))
    for name, table in (("total", "total"), ("by rest", "by rest"), ("seen", "seen"), ("reduce", "_reduce")):
        held = {repr(thaw(row)): content for row, content in job.state_rows(table)}
        uid = "keep" if table != "_reduce" else "Reduce"
        assert {repr(r.key): r.value for r in savepoint.keyed_state(uid, name)} == held
    timers = {(repr(thaw(key)), time) for (time, key, window), _ in job.state_rows("_event_timers") if not window}
    assert {(repr(r.key), r.namespace) for r in savepoint.keyed_state("keep", "event-timers")} == timers


@SAVES
def test_keyed_state_returns_keys_in_type_of_program(save: Save, tmp_path: Path) -> None:
    keys = [r.key for r in Savepoint.load(save(running(), tmp_path)).keyed_state("keep", "total")]
    assert sorted(map(repr, keys)) == sorted(repr(key_of(i)) for i in range(7))


@SAVES
def test_keyed_state_returns_windows_as_namespaces(save: Save, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(1), tmp_path))
    sessions = list(savepoint.keyed_state("sessions", "window-sessions"))
    assert all(isinstance(r.namespace, TimeWindow) and isinstance(r.value, int) for r in sessions)
    panes = list(savepoint.keyed_state("panes", "window-panes"))
    assert {r.namespace for r in panes} <= {20, 40}
    contents = list(savepoint.keyed_state("general", "window-contents"))
    assert all(r.namespace.start <= v < r.namespace.end for r in contents for v in r.value)


@SAVES
def test_operator_state_returns_map_entries_and_list_per_subtask(save: Save, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(2), tmp_path))
    assert {(r.key, r.value) for r in savepoint.operator_state("rules", "rules")} == {("a", 1), ("b", 2)}
    lists = [(r.namespace, r.value) for r in savepoint.operator_state("counter", "seen here")]
    assert lists == [(0, [20]), (1, [20])]


@SAVES
def test_keyed_state_hides_ttl_timestamps(save: Save, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(1, clock=ManualClock(5)), tmp_path))
    assert {r.value for r in savepoint.keyed_state("keep", "recent")} == set(range(33, 40))


def test_sources_return_positions(tmp_path: Path) -> None:
    positions = {s.uid: s.position for s in Savepoint.load(save_savepoint(running(), tmp_path)).sources()}
    assert positions["numbers"] == {0: (40, COUNT)}


def test_operators_describe_state_registered_by_some_subtasks_only(tmp_path: Path) -> None:
    """Subtask 1 never gets a record; subtask 0 registers its state with its first record."""

    class Lazily(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.context = runtime_context

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            self.context.get_state(ValueStateDescriptor("lazy", None)).update(value)
            return iter(())

    def program() -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        only = next(k for k in range(100) if key_group(k, 128) in owned_groups(0, 2, 128))
        env.from_collection([1, 2, 3]).key_by(lambda _: only).process(Lazily()).uid("lazy").sink_to(CollectSink())
        return env

    job = LocalJob(program(), epoch_sizes=lambda: 1)
    job.run_epoch()
    first = save_savepoint(job, tmp_path / "first")
    assert state(Savepoint.load(first), "lazy", "lazy").kind == "value"
    described = decode_manifest("first", Path(first, "_metadata").read_bytes()).snapshot
    # A restored run that has not registered the state yet still describes it.
    again = save_savepoint(start_from(program(), first, epoch_sizes=lambda: 0), tmp_path / "second")
    restored = decode_manifest("second", Path(again, "_metadata").read_bytes()).snapshot
    for snapshot in (described, restored):
        tables = {o.uid: o.tables for v in snapshot.vertices.values() for o in v.operators}["lazy"][""]
        assert tables["lazy"] == {"kind": "value", "address": "key", "type": "", "ttl": ""}


# --- classes of the program


@dataclass(frozen=True)
class Item:
    """A class whose module is removed later."""

    name: str


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> type[Item]:
    module = types.ModuleType("a_shop")
    item = dataclass(frozen=True)(type("Item", (), {"__module__": "a_shop", "__annotations__": {"name": str}}))  # type: ignore[var-annotated]
    module.Item = item  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_shop", module)
    return item


class Both(KeyedProcessFunction):
    """Holds an object of a class of the program and a number in two states."""

    def __init__(self, shop: Any) -> None:
        self.shop = shop

    def open(self, runtime_context: Any) -> None:
        self.item = runtime_context.get_state(ValueStateDescriptor("item"))
        self.number = runtime_context.get_state(ValueStateDescriptor("number"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.item.update(self.shop("a"))
        self.number.update(value)
        return iter(())


@SAVES
def test_keyed_state_is_readable_without_class_of_another_state(
    save: Save, shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.from_collection([1, 2, 3, 4]).key_by(lambda x: x).process(Both(shop)).uid("both").sink_to(CollectSink())
    job = LocalJob(env, epoch_sizes=lambda: 3)
    job.run_epoch()
    savepoint = Savepoint.load(save(job, tmp_path))
    monkeypatch.delitem(sys.modules, "a_shop")
    assert sorted(r.value for r in savepoint.keyed_state("both", "number")) == [1, 2, 3]
    with pytest.raises(MissingClassError):
        list(savepoint.keyed_state("both", "item"))


def items(shop: Any) -> LocalJob:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_collection(["a", "b", "a", "never read"]).map(lambda name: (shop(name), 1)).uid("made")
    summed = stream.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
    plain = summed.map(lambda t: 1).key_by(lambda x: x).sum(0).uid("plain")
    plain.sink_to(CollectSink())
    job = LocalJob(env, epoch_sizes=lambda: 1)
    job.run_epoch()
    job.run_epoch()
    job.run_epoch()
    return job


@SAVES
def test_savepoint_listing_needs_no_classes_and_rows_name_missing_class(
    save: Save, shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = save(items(shop), tmp_path)
    monkeypatch.delitem(sys.modules, "a_shop")
    savepoint = Savepoint.load(location)
    # Also if several files hold the same keys, which are then merged.
    assert state(savepoint, "counts", "reduce").rows == 2
    with pytest.raises(MissingClassError) as e:
        list(savepoint.keyed_state("counts", "reduce"))
    assert str(e.value) == (
        "State 'reduce' of operator 'counts' cannot be read because a class of the program is not found here (No "
        "module named 'a_shop'): run this with the program's directory on PYTHONPATH."
    )
    assert [r.value for r in savepoint.keyed_state("plain", "reduce")] == [3]


def test_savepoint_write_copies_unchanged_state_without_classes(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = save_savepoint(items(shop), tmp_path / "before")
    monkeypatch.delitem(sys.modules, "a_shop")
    after = Savepoint.load(location).put("plain", "reduce", 2, 5).write(tmp_path / "after")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "a_shop", types.SimpleNamespace(Item=shop))
    read = Savepoint.load(after)
    assert {(r.key.name, r.value[1]) for r in read.keyed_state("counts", "reduce")} == {("a", 2), ("b", 1)}
    assert {r.key: r.value for r in read.keyed_state("plain", "reduce")} == {1: 3, 2: 5}


# --- restoring a written savepoint


@SAVES
@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 1), (1, 3)])
def test_rewritten_savepoint_restores_like_original(save: Save, before: int, after: int, tmp_path: Path) -> None:
    job = running(before)
    location = save(job, tmp_path / "original")
    written = Savepoint.load(location).write(tmp_path / "written")
    assert counted(finished(written, after)) == counted(finished(location, after))


def test_rewritten_savepoint_continues_like_uninterrupted_job(tmp_path: Path) -> None:
    env, sink = build()
    job = LocalJob(env, epoch_sizes=lambda: 10)
    for _ in range(3):
        job.run_epoch()
    before = sink.results()
    written = Savepoint.load(save_checkpoint(job, tmp_path / "job")).write(tmp_path / "written")
    job.run()
    assert counted(before + finished(written, epoch_sizes=lambda: 10)) == counted(sink.results())


def output_by_key(results: list[Any]) -> dict[str, Any]:
    """Return the state that the last timer of each key saw, by key."""
    return {repr(r[1]): r[3] for r in sorted((r for r in results if r[0] == "keep"), key=lambda r: r[2])}


def tagged(results: list[Any]) -> list[Any]:
    return [r for r in results if isinstance(r, tuple)]


@SAVES
@pytest.mark.parametrize("parallelism", [2, 3])
def test_savepoint_update_changes_values_of_restored_job(save: Save, parallelism: int, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(), tmp_path / "before"))
    before = output_by_key(tagged(finished(savepoint.location, parallelism)))
    savepoint.update("keep", "total", lambda row: row.value + 1_000_000)
    savepoint.update("keep", "seen", lambda row: ["first", *row.value] if row.key == 0 else row.value)
    savepoint.put("keep", "by rest", [3, 1], {7: 7})
    savepoint.remove("keep", "sum", {"k": 4})
    after = output_by_key(tagged(finished(savepoint.write(tmp_path / "after"), parallelism)))
    assert before.keys() == after.keys()
    for key, (total, seen, by_rest, summed, recent) in before.items():
        assert after[key][0] == total + 1_000_000
        assert after[key][1] == (["first", *seen] if key == "0" else seen)
        assert (after[key][2] == by_rest) == (key != "[3, 1]")
        assert (after[key][3] == summed) == (key != "{'k': 4}")
        assert after[key][4] == recent
    assert 7 in after["[3, 1]"][2]


@pytest.mark.parametrize("key", ["new", 99, (1, "new"), [5, [6]], {"a": [1]}, None, 2.5, datetime.date(2024, 1, 2)])
def test_savepoint_put_adds_key_to_owning_subtask(key: Any, tmp_path: Path) -> None:
    """The timer fires in the subtask that restored it, and reads the value of its key there."""
    savepoint = Savepoint.load(save_checkpoint(running(3), tmp_path / "job"))
    savepoint.put("keep", "total", key, 4711).put("keep", "event-timers", key, True, namespace=1500)
    written = savepoint.write(tmp_path / "written")
    for parallelism in (1, 2, 3):
        results = output_by_key(tagged(finished(written, parallelism)))
        assert results[repr(key)][0] == 4711


def test_savepoint_write_puts_rows_in_file_of_owning_subtask(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_checkpoint(running(3), tmp_path / "job"))
    for i in range(200):
        savepoint.put("keep", "total", f"new {i}", i)
    written = savepoint.write(tmp_path / "written")
    snapshot = decode_manifest("written", Path(written, "_metadata").read_bytes()).snapshot
    seen = 0
    for vertex in snapshot.vertices.values():
        for subtask, subtask_snapshot in enumerate(vertex.subtasks):
            for part in subtask_snapshot.parts.values():
                groups = pq.read_table(Path(written, part.file), columns=["key_group"])["key_group"].to_pylist()
                mine = owned_groups(subtask, vertex.parallelism, vertex.max_parallelism)
                assert all(g is None or g in mine for g in groups)
                seen += len(groups)
    assert seen > 200


def test_savepoint_put_and_remove_change_timers(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_savepoint(running(), tmp_path / "before"))
    # The last timer of key 0 without the change is at 1056.
    savepoint.put("keep", "event-timers", 0, True, namespace=5000)
    savepoint.remove("keep", "event-timers", "1")
    results = tagged(finished(savepoint.write(tmp_path / "after")))
    fired = {(repr(r[1]), r[2]) for r in results if r[0] == "keep"}
    assert ("0", 5000) in fired
    assert {t for k, t in fired if k == "'1'"} == {1043, 1050, 1057}


@SAVES
def test_savepoint_put_and_update_change_windows(save: Save, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(), tmp_path / "before"))
    panes = rows_of(savepoint, "panes", "window-panes")
    sessions = rows_of(savepoint, "sessions", "window-sessions")
    savepoint.put("panes", "window-panes", 0, 1_000_000, namespace=40)
    savepoint.put("panes", "window-panes", "fresh", 2_000_000, namespace=TimeWindow(60, 80))
    savepoint.put("sessions", "window-sessions", "fresh", 3_000_000, namespace=(500, 510))
    savepoint.put("sessions", "window-sessions", "fresh", 4_000_000, namespace=(600, 610))
    savepoint.remove("sessions", "window-sessions", 0)
    savepoint.update("general", "window-contents", lambda row: [*row.value, 5_000_000])
    written = savepoint.write(tmp_path / "after")
    read = Savepoint.load(written)
    assert rows_of(read, "panes", "window-panes") == {**panes, (0, 40): 1_000_000, ("fresh", 60): 2_000_000}
    fresh = {("fresh", TimeWindow(500, 510)): 3_000_000, ("fresh", TimeWindow(600, 610)): 4_000_000}
    rest = {k: v for k, v in sessions.items() if k[0] != 0}
    assert rows_of(read, "sessions", "window-sessions") == {**rest, **fresh}
    results = finished(written, 3)
    # The pane of key 0 has three more records: 42, 49 and 56.
    assert 1_000_000 + 42 + 49 + 56 in results
    assert {2_000_000, 3_000_000, 4_000_000} <= {r for r in results if isinstance(r, int)}
    assert any(r[0] == "general" and 5_000_000 in r[3] for r in tagged(results))


def test_savepoint_changes_broadcast_and_operator_list_state(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_checkpoint(running(), tmp_path / "job"))
    savepoint.put("rules", "rules", "c", 3).remove("rules", "rules", "a")
    savepoint.update("rules", "rules", lambda row: row.value * 10)
    savepoint.update("counter", "seen here", lambda row: [row.namespace + 1000])
    written = savepoint.write(tmp_path / "written")
    read = Savepoint.load(written)
    assert [(r.namespace, r.value) for r in read.operator_state("counter", "seen here")] == [(0, [1000]), (1, [1001])]
    ruled = [r for r in tagged(finished(written, 3)) if r[0] == "ruled"]
    assert len(ruled) == 20
    assert all(r[2] == {"b": 20, "c": 30} for r in ruled)


# --- TTL


@SAVES
def test_savepoint_update_keeps_ttl_timestamp_and_put_sets_current(save: Save, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save(running(1, clock=ManualClock(5)), tmp_path / "before"))
    savepoint._edit._clock = lambda: 77 / 1000
    savepoint.update("keep", "recent", lambda row: row.value + 100)
    savepoint.put("keep", "recent", 0, 7)
    written = savepoint.write(tmp_path / "after")
    shown = {repr(r.key): r.value for r in Savepoint.load(written).keyed_state("keep", "recent")}
    assert (shown["0"], shown["'1'"]) == (7, 136)
    job = start_from(build(1)[0], written, epoch_sizes=lambda: 0)
    job.run_epoch()
    held = {repr(thaw(key)): content for key, content in job.state_rows("recent")}
    assert (held["0"], held["'1'"]) == ((7, 77), (136, 5))


# --- operators


def test_savepoint_rename_moves_state_to_new_uid(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_savepoint(running(), tmp_path / "before"))
    written = savepoint.rename("keep", "kept again").put("kept again", "total", 0, 1).write(tmp_path / "after")
    read = Savepoint.load(written)
    assert state(read, "kept again", "total").rows == 7
    assert "keep" not in [o.uid for o in read.operators()]
    for parallelism in (2, 3):
        env, sink = build(parallelism, keep_uid="kept again")
        start_from(env, written).run()
        assert output_by_key(tagged(sink.results()))["0"][0] == 1 + sum(range(42, COUNT, 7))


def test_savepoint_rename_moves_source_position_and_watermark(tmp_path: Path) -> None:
    """The runtime snapshot of a chained operator holds its watermark."""

    def program(uids: list[str]) -> tuple[StreamExecutionEnvironment, CollectSink]:
        env, sink = build(1)
        by_uid = {t.uid: t for t in builder_of(env).program.transformations}
        for old, new in zip(["numbers", "marks", "panes"], uids, strict=True):
            by_uid[old].uid = new
        return env, sink

    savepoint = Savepoint.load(save_savepoint(running(1), tmp_path / "before"))
    for old in ("numbers", "marks", "panes"):
        savepoint.rename(old, f"{old} 2")
    written = savepoint.write(tmp_path / "after")
    env, sink = program(["numbers 2", "marks 2", "panes 2"])
    # The sum has no uid, so it finds its state by its position behind renamed operators.
    with pytest.raises(InvalidProgramError, match="'Reduce' \\(no uid\\) matches no operator of the program"):
        start_from(env, written)
    env, sink = program(["numbers 2", "marks 2", "panes 2"])
    job = start_from(env, Savepoint.load(written).drop_operator("Reduce").write(tmp_path / "without"))
    assert unpack(next(iter(job.live_snapshot().sources.values()))) == {0: (40, COUNT)}
    job.run()
    before = counted(r for r in finished(savepoint.location, 1) if isinstance(r, tuple))
    assert counted(tagged(sink.results())) == before


def test_savepoint_rename_keeps_watermark_and_graph_position(tmp_path: Path) -> None:
    def program(source: str, uid: str) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        marks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        stream = env.from_collection(list(range(20))).uid(source).assign_timestamps_and_watermarks(marks).uid("marks")
        stream.key_by(lambda x: x % 5).sum(0).uid(uid).sink_to(CollectSink()).uid("out")
        return env

    job = LocalJob(program("numbers", "sum"), epoch_sizes=lambda: 10)
    job.run_epoch()
    savepoint = Savepoint.load(save_savepoint(job, tmp_path / "before"))
    written = savepoint.rename("numbers", "n").rename("sum", "s").write(tmp_path / "after")
    snapshot = decode_manifest("after", Path(written, "_metadata").read_bytes()).snapshot
    assert is_same_graph(snapshot, LocalJob(program("n", "s")).plan)
    (vertex,) = [v for v in snapshot.vertices.values() if any(o.uid == "s" for o in v.operators)]
    for subtask in vertex.subtasks:
        watermarks = decode(subtask.runtime_snapshot).watermarks
        assert watermarks[operator_id_of("s")] == 7
        assert operator_id_of("sum") not in watermarks


def test_savepoint_rename_assigns_uid_to_operator_without_uid(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_savepoint(running(), tmp_path / "before"))
    written = savepoint.rename("Reduce", "sum").write(tmp_path / "after")
    env, sink = build()
    next(t for t in builder_of(env).program.transformations if t.name == "Reduce").uid = "sum"
    start_from(env, written).run()
    assert sum(range(0, COUNT, 7)) in sink.results()


def test_savepoint_drop_operator_restarts_it_with_empty_state(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_savepoint(running(), tmp_path / "before"))
    written = savepoint.drop_operator("keep").write(tmp_path / "after")
    assert "keep" not in [o.uid for o in Savepoint.load(written).operators()]
    assert output_by_key(tagged(finished(written)))["0"][0] == sum(range(42, COUNT, 7))


def test_savepoint_drop_state_keeps_other_states_of_operator(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_checkpoint(running(), tmp_path / "job"))
    written = savepoint.drop_state("keep", "total").write(tmp_path / "after")
    assert "total" not in [s.name for o in Savepoint.load(written).operators() for s in o.states]
    total, seen, *_ = output_by_key(tagged(finished(written)))["0"]
    assert total == sum(range(42, COUNT, 7))
    assert sorted(map(int, seen)) == list(range(0, COUNT, 7))


# --- errors


def test_savepoint_write_leaves_loaded_files_unchanged(tmp_path: Path) -> None:
    location = save_checkpoint(running(), tmp_path / "job")

    def everything() -> dict[str, bytes]:
        files = [p for p in (tmp_path / "job").rglob("*") if p.is_file()]
        return {str(p): p.read_bytes() for p in files}

    before = everything()
    savepoint = Savepoint.load(location)
    savepoint.update("keep", "total", lambda row: None).drop_operator("panes").rename("keep", "x")
    savepoint.write(tmp_path / "after")
    assert everything() == before


def test_savepoint_write_rejects_nonempty_directory(tmp_path: Path) -> None:
    location = save_savepoint(running(), tmp_path / "before")
    with pytest.raises(InvalidProgramError, match="is not empty: a savepoint needs a directory of its own"):
        Savepoint.load(location).write(location)


def test_savepoint_write_leaves_no_files_after_failed_update(tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_savepoint(running(), tmp_path / "before"))
    savepoint.update("keep", "total", lambda row: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        savepoint.write(tmp_path / "after")
    assert [p.name for p in tmp_path.iterdir()] == ["before"]


def test_savepoint_reads_and_writes_remote_storage(tmp_path: Path) -> None:
    location = save_savepoint(running(), tmp_path)
    url = "memory://tests/savepoints/changed"
    assert Savepoint.load(location).put("keep", "total", "new", 1).write(url) == url
    read = Savepoint.load(url)
    assert state(read, "keep", "total").rows == 8
    again = read.remove("keep", "total", "new").write(f"{url}-back")
    assert [r.key for r in Savepoint.load(again).keyed_state("keep", "total") if r.key == "new"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.put("nope", "total", 1, 1), "There is no operator 'nope'"),
        (lambda s: s.put("keep", "nope", 1, 1), "Operator 'keep' has no state 'nope' \\(it has .*'total'"),
        (lambda s: s.put("keep", "total", 1, None), "use remove\\(\\) to remove a row"),
        (lambda s: s.put("keep", "seen", 1, "x"), "The value of list state must be a list, not 'x'"),
        (lambda s: s.put("keep", "seen", 1, []), "use remove\\(\\)"),
        (lambda s: s.put("keep", "by rest", 1, [1]), "must be a dict"),
        (lambda s: s.put("keep", "total", 1, 1, namespace=5), "Rows of this state have no namespace: remove 5"),
        (lambda s: s.put("keep", "event-timers", 1, True), "must be the time of the timer in milliseconds, not None"),
        (lambda s: s.put("panes", "window-panes", 1, 1), "must be the start of a window in milliseconds"),
        (lambda s: s.put("sessions", "window-sessions", 1, 1), "must be a window, for example TimeWindow"),
        (lambda s: s.put("counter", "seen here", 1, [1], namespace=0), "Rows of this state have no key"),
        (lambda s: s.rename("keep", "panes"), "The uid 'panes' is taken by operator 'TumblingEventTimeWindows'"),
        (lambda s: s.rename("keep", ""), "A uid must be a text"),
        (
            lambda s: s.drop_operator("Collect Sink"),
            "Several operators of .* are called 'Collect Sink': give the id of one",
        ),
        (lambda s: s.drop_operator("keep").put("keep", "total", 1, 1), "There is no operator 'keep'"),
    ],
)
def test_savepoint_change_rejects_invalid_operator_state_or_key(change: Any, message: str, tmp_path: Path) -> None:
    savepoint = Savepoint.load(save_savepoint(running(), tmp_path))
    with pytest.raises(InvalidProgramError, match=message):
        change(savepoint)


def test_savepoint_load_rejects_path_that_is_no_savepoint(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            DamagedStateError, match="is not a checkpoint or savepoint: there is no file _metadata in it"
        ):
            Savepoint.load(path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(DamagedStateError, match="is not a checkpoint or savepoint"):
        Savepoint.load(tmp_path / "file")
    save_checkpoint(running(), tmp_path / "job", 7)
    with pytest.raises(InvalidProgramError, match="is a job's directory of checkpoints: give one, .*/job/chk-7"):
        Savepoint.load(tmp_path / "job")


@SAVES
def test_savepoint_load_names_damaged_or_missing_file(save: Save, tmp_path: Path) -> None:
    location = save(running(), tmp_path)
    with pytest.raises(DamagedStateError, match=f"{location}/_metadata is damaged"):
        text = Path(location, "_metadata").read_bytes()
        Path(location, "_metadata").write_bytes(text[:-5])
        Savepoint.load(location)
    Path(location, "_metadata").write_bytes(text)
    victim = max((p for p in tmp_path.rglob("*") if p.suffix in (".parquet", ".delta")), key=os.path.getsize)
    data = bytearray(victim.read_bytes())
    data[20] ^= 0xFF
    victim.write_bytes(data)
    savepoint = Savepoint.load(location)
    with pytest.raises(DamagedStateError, match=f"{victim.name} is damaged"):
        for operator in savepoint.operators():
            for state in operator.states:
                list(savepoint._rows(operator.id, state.name, state.scope))
    victim.unlink()
    with pytest.raises(DamagedStateError, match=f"The file .*{victim.name} is missing"):
        Savepoint.load(location).operators()


def test_savepoint_write_rejects_damaged_file(tmp_path: Path) -> None:
    location = save_savepoint(running(), tmp_path / "before")
    victim = max(Path(location).glob("*.parquet"), key=os.path.getsize)
    victim.write_bytes(victim.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedStateError, match=f"{victim.name} is damaged"):
        Savepoint.load(location).write(tmp_path / "after")


def test_savepoint_load_reads_manifest_without_state_descriptions(tmp_path: Path) -> None:
    """If the manifest lists no or not all states, they are read from the files."""
    location = save_checkpoint(running(), tmp_path)
    path = Path(location, "_metadata")
    manifest = decode_manifest("_metadata", path.read_bytes())
    for vertex in manifest.snapshot.vertices.values():
        for operator in vertex.operators:
            operator.tables = {}
    path.write_bytes(encode_manifest(Manifest(**vars(manifest))))
    savepoint = Savepoint.load(location)
    assert state(savepoint, "keep", "total").rows == 7
    assert json.dumps(sorted(r.value for r in savepoint.keyed_state("keep", "total")))


def test_state_program_keys_cover_every_subtask() -> None:
    for parallelism in (2, 3):
        owners = {owner(key_group(freeze(key_of(i)), 128), parallelism, 128) for i in range(7)}
        assert owners == set(range(parallelism))


def test_job_rolls_back_to_savepoint_after_failure_in_first_epoch(tmp_path: Path) -> None:
    def program() -> tuple[StreamExecutionEnvironment, CollectSink]:
        env, sink = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1), CollectSink()
        words = env.from_source(TestingSource(["a", "a", ABORT, "a"], 9), WatermarkStrategy.no_watermarks(), "words")
        words.map(lambda word: (word, 1)).key_by(lambda t: t[0]).sum(1).uid("counts").sink_to(sink)
        return env, sink

    job = LocalJob(program()[0], epoch_sizes=lambda: 2)
    job.run_epoch()
    env, sink = program()
    start_from(env, save_savepoint(job, tmp_path)).run(restarts=1)
    assert sink.results() == [("a", 3)]
