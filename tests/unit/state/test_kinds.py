"""Kinds of state: a table shows uncommitted values as it holds them after commit; files name the kinds."""

from __future__ import annotations

import copy
import json
import pickle
import pickletools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.manifest import NAME, decode_manifest, encode_manifest
from millstream.common.errors import DamagedStateError, InvalidProgramError
from millstream.state import kinds
from millstream.state.changelog import FileHeader, Section, decode, encode
from millstream.state.kinds import StateKind, kind_named
from millstream.state.lmdb_base import LmdbStore
from millstream.state.savepoint_part import decode_part, encode_part, index_part
from millstream.state.table import BY_KEY, REMOVED, Base, Extra, Patch, StateTable
from millstream.testing import LocalJob, save_savepoint
from tests.support.state_programs import build

# As in files: a changed name would make state unreadable.
NAMES = ("value", "list", "map", "reducing", "aggregating", "timers", "panes", "sessions", "windows")
HEADER = FileHeader("op", 0, 1, True, [])


@pytest.mark.parametrize("name", NAMES)
def test_state_kind_is_a_singleton(name: str) -> None:
    kind = kind_named(name, "")
    assert kind is getattr(kinds, name.upper())
    assert kind is pickle.loads(pickle.dumps(kind)) is copy.deepcopy(kind)


# --- apply

# Kind: a row's value, a change, and the value after it; None means no value.
CHANGES: list[tuple[StateKind, Any, Any, Any]] = [
    *((kind, before, 2, 2) for kind in (kinds.VALUE, kinds.REDUCING, kinds.AGGREGATING) for before in (None, 1)),
    *((kind, 1, None, None) for kind in (kinds.VALUE, kinds.REDUCING, kinds.AGGREGATING)),
    (kinds.LIST, [1], Extra([2, 3]), [1, 2, 3]),
    (kinds.LIST, None, Extra([2]), [2]),
    (kinds.LIST, [1], [2], [2]),
    (kinds.LIST, [1], None, None),
    (kinds.MAP, {1: 1, 2: 2, 3: 3}, Patch({2: 5, 1: REMOVED, 4: 4}), {2: 5, 3: 3, 4: 4}),
    (kinds.MAP, None, Patch({2: 2}), {2: 2}),
    (kinds.MAP, {1: 1}, Patch({1: REMOVED}), None),
    (kinds.MAP, {1: 1}, {2: 2}, {2: 2}),
    (kinds.MAP, {1: 1}, None, None),
    (kinds.PANES, {"a": 1, "b": 1}, {"b": 2, "c": 2}, {"a": 1, "b": 2, "c": 2}),
    (kinds.PANES, None, {"a": 1}, {"a": 1}),
    (kinds.PANES, {"a": 1}, None, None),
    (kinds.SESSIONS, [0, 5, 1], ([0, 5, 1], [9, 12, 1]), ([0, 5, 1], [9, 12, 1])),
    (kinds.TIMERS, None, True, True),
    (kinds.WINDOWS, {1: 1}, {2: 2}, {2: 2}),
]


@pytest.fixture(params=["hashmap", "lmdb"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    yield {} if request.param == "hashmap" else LmdbStore(str(tmp_path)).table()


@pytest.mark.parametrize(("kind", "before", "change", "after"), CHANGES)
def test_state_table_reads_a_change_before_it_is_applied(
    base: Base, kind: StateKind, before: Any, change: Any, after: Any
) -> None:
    if before is not None:
        base["row"] = before
    base["other"] = before = kind.empty() or True
    table = StateTable("t", kind, BY_KEY, base)
    table.overlay["row"] = change
    for _ in range(2):
        assert table.get("row") == after
        assert dict(table.rows()) == {"other": before, **({} if after is None else {"row": after})}
        table.advance()


# --- expire


@pytest.mark.parametrize(
    ("kind", "content", "rest", "shown"),
    [
        (kinds.VALUE, ("v", 5), ("v", 5), "v"),
        (kinds.VALUE, ("v", 4), None, None),
        (kinds.REDUCING, ("v", 4), None, None),
        (kinds.AGGREGATING, ("v", 5), ("v", 5), "v"),
        (kinds.LIST, [("a", 4), ("b", 5)], [("b", 5)], ["b"]),
        (kinds.LIST, [("a", 4)], None, None),
        (kinds.MAP, {"a": (1, 4), "b": (2, 5)}, {"b": (2, 5)}, {"b": 2}),
        (kinds.MAP, {"a": (1, 4)}, None, None),
    ],
)
def test_state_kind_living_drops_expired_entries(kind: StateKind, content: Any, rest: Any, shown: Any) -> None:
    left = kind.unexpired(content, lambda stamp: stamp < 5)
    assert left == rest
    if left is not None:
        assert kind.without_stamps(left) == shown
        assert kind.with_stamps(shown, left, 9) == left


# --- show


def test_state_kind_stored_checks_the_value() -> None:
    assert [k.stored(v) for k, v in ((kinds.VALUE, 0), (kinds.LIST, []), (kinds.MAP, {}))] == [0, None, None]
    assert kinds.TIMERS.stored("anything") is True
    for kind, type_name in ((kinds.LIST, "list"), (kinds.MAP, "dict")):
        with pytest.raises(InvalidProgramError, match=f"{kind.name} state must be a {type_name}, not 'no'"):
            kind.stored("no")


def test_state_kind_windows_exist_only_for_sessions() -> None:
    one, two = [0, 5, "a"], [9, 12, "b"]
    for held, windows in ((one, [one]), ((one, two), [one, two])):
        assert kinds.SESSIONS.windows(held) == windows
        assert kinds.SESSIONS.of_windows(windows) == held
    assert kinds.SESSIONS.windows(None) == []
    with pytest.raises(NotImplementedError, match="value state"):
        kinds.VALUE.windows(1)


# --- files


TAGS = {Extra: "appended-elements:1", Patch: "changed-entries:1", type(REMOVED): "removed-entry:1"}


def test_state_files_keep_kind_names_and_change_tags() -> None:
    data = b"".join(encode(HEADER, [Section(n, kind_named(n, ""), BY_KEY, {1: 1}) for n in NAMES]))
    length, _, _ = struct.unpack(">II4s", data[-12:])
    footer = json.loads(data[-12 - length : -12])
    assert [(s["name"], s["kind"]) for s in footer["sections"]] == [(n, n) for n in NAMES]
    assert [(s.table, s.kind.name) for s in decode("file", data).sections()] == [(n, n) for n in NAMES]
    for change in (Extra([1]), Patch({1: 1}), REMOVED):
        named = [arg for op, arg, _ in pickletools.genops(pickle.dumps(change, 2)) if op.name == "GLOBAL"]
        assert named == ["millstream.tags " + TAGS[type(change)]]


def test_state_file_with_an_unknown_kind_is_rejected_by_name() -> None:
    known, unknown = (Section(n, StateKind(n), BY_KEY, {1: 1}) for n in ("value", "graph"))
    file = decode("op-0.base", b"".join(encode(HEADER, [known, unknown])))
    part = b"".join(encode_part([known, unknown], 128))
    assert [s.kind for s in file.sections(only="value")] == [kinds.VALUE]
    assert [s.kind for s in decode_part("p", part, None, only="value")] == [kinds.VALUE]
    for read in (
        file.sections,
        lambda: file.sections(only_check=True),
        file.index,
        lambda: decode_part("op-0.base", part, None),
        lambda: index_part("op-0.base", part, None),
    ):
        with pytest.raises(
            DamagedStateError, match=r"Table 'graph' of \w+ file op-0.base has the unknown kind 'graph'"
        ):
            list(read())


def test_manifest_with_an_unknown_state_kind_is_rejected_by_name(tmp_path: Path) -> None:
    job = LocalJob(build(1)[0], epoch_sizes=lambda: 10)
    job.run_epoch()
    manifest = tmp_path / "saved" / NAME
    save_savepoint(job, tmp_path / "saved")
    decoded = decode_manifest("saved", manifest.read_bytes())
    for vertex in decoded.snapshot.vertices.values():
        for operator in vertex.operators:
            for about in (t for tables in operator.tables.values() for t in tables.values()):
                about["kind"] = "graph"
    manifest.write_bytes(encode_manifest(decoded))
    with pytest.raises(DamagedStateError, match=r"State '.+' of operator '.+' has the unknown kind 'graph'"):
        Inspection.open(str(tmp_path / "saved")).operators()
