"""SQL operators against a row-by-row model of Flink's: any split into batches gives the same changes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.sql.columns.batch import Batch
from millstream.sql.columns.row_order import sorted_rows
from millstream.sql.expressions import AggregateCall, Call, Column
from millstream.sql.operators.aggregate.group_aggregate import GlobalGroupAggregateOperator, GroupAggregateOperator
from millstream.sql.operators.aggregate.local_aggregate import LocalGroupAggregateOperator, LocalWindowAggregateOperator
from millstream.sql.operators.join.regular_join import JoinOperator, JoinSide
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.rank.top_n import AppendOnlyTopNOperator, TopNOperator
from millstream.sql.operators.window.count_session_windows import SessionWindowOperator
from millstream.sql.operators.window.session_aggregate import MergedSessionOperator, can_merge
from millstream.sql.operators.window.window_aggregate import (
    GlobalWindowAggregateOperator,
    WindowAggregateOperator,
    WindowTimes,
)
from millstream.sql.operators.window.windowing import Windowing
from millstream.sql.plan.nodes import JoinKind, WindowKind
from millstream.sql.types import DataType, DataTypes
from tests.support.sql_model import GroupAggregateModel, JoinModel, WindowModel
from tests.support.sql_runs import Bare, Change, batch_of, final

_BIGINT, _DOUBLE, _STRING = DataTypes.BIGINT(), DataTypes.DOUBLE(), DataTypes.STRING()
_SEEDS = range(12)


def _row(r: Random) -> tuple[Any, ...]:
    return (
        r.choice([None, "a", "b", "c"]),
        r.choice([None, 0, 1, 2]),
        r.choice([None, -3, -2, 0, 1, 3]),
        r.choice([None, 0.1, 0.2, -0.7, 1e16]),
    )


_ROW_KINDS = [pa.string(), pa.int64(), pa.int64(), pa.float64()]


def _changelog(r: Random, row: Callable[[Random], Any] = _row, retracts: bool = True) -> list[Change]:
    """Return changes that retract only existing rows."""
    live: list[tuple[Any, ...]] = []
    changes: list[Change] = []
    for _ in range(r.randrange(60)):
        if retracts and live and r.random() < 0.4:
            changes.append((r.choice(["-U", "-D"]), *live.pop(r.randrange(len(live)))))
        else:
            live.append(row(r))
            changes.append((r.choice(["+I", "+U"]) if retracts else "+I", *live[-1]))
    return changes


def _cut(r: Random, changes: list[Any]) -> list[list[Any]]:
    parts, start = [], 0
    while start < len(changes):
        size = r.randint(1, 12)
        parts.append(changes[start : start + size])
        start += size
    return parts


def _calls(*specs: tuple[str, int | None, bool]) -> list[AggregateCall]:
    types: dict[int | None, DataType] = {None: _BIGINT, 0: _STRING, 1: _BIGINT, 2: _BIGINT, 3: _DOUBLE}
    return [
        AggregateCall(f, () if c is None else (c,), _BIGINT if f == "COUNT" else types[c], distinct=d)
        for f, c, d in specs
    ]


_PLAIN = [("COUNT", None, False), ("COUNT", 2, False), ("SUM", 2, False), ("AVG", 2, False), ("COUNT", 2, True)]
_OF_INSERTS = [("MIN", 2, False), ("MAX", 3, False), ("SUM", 3, False), ("SUM", 2, True), ("MAX", 0, False)]
_OF_ALL = [("MIN", 2, False), ("MAX", 2, False), ("MAX", 0, False), ("SUM", 2, True)]


@pytest.mark.parametrize("seed", _SEEDS)
def test_group_aggregate_emits_every_change(seed: int) -> None:
    r = Random(seed)
    keys, retracts, restarts = r.choice([[0], [1], [0, 1], []]), r.random() < 0.5, r.random() < 0.5
    changes = _changelog(r, retracts=retracts)
    specs = _PLAIN + (_OF_ALL if retracts else _OF_INSERTS)
    bare = Bare(GroupAggregateOperator(keys, _calls(*specs), _ROW_KINDS, retracts=retracts))
    model = GroupAggregateModel(lambda row: tuple(row[k] for k in keys), specs)
    for part in _cut(r, changes):
        bare.take(batch_of(part, _ROW_KINDS))
        assert bare.changes() == [c for change in part for c in model.take(change)]
        if restarts and r.random() < 0.5:
            bare.restart()


@pytest.mark.parametrize("seed", _SEEDS)
def test_group_aggregate_with_local_and_global_phase(seed: int) -> None:
    r = Random(seed)
    keys, retracts = r.choice([[0], [1], [0, 1], []]), r.random() < 0.5
    max_held, restarts = r.choice([0, 5, 1000]), r.random() < 0.5
    specs = _PLAIN + (_OF_ALL if retracts else _OF_INSERTS)
    if r.random() < 0.3:
        # No aggregates that depend on the rows of one batch.
        specs = [w for w in specs if not w[2]]
    # A retraction goes through the same local phase as its insertion.
    ways = [_changelog(r, retracts=retracts) for _ in range(2)]
    calls = _calls(*specs)
    local = [Bare(LocalGroupAggregateOperator(keys, calls, _ROW_KINDS, retracts, max_held)) for _ in ways]
    last = Bare(GlobalGroupAggregateOperator(keys, calls, _ROW_KINDS, retracts=retracts, mini_batch=True))
    model = GroupAggregateModel(lambda row: tuple(row[k] for k in keys), specs)
    left = [_cut(r, changes) for changes in ways]
    emitted: list[Change] = []
    expected: list[Change] = []
    while any(left):
        way = r.choice([i for i in range(2) if left[i]])
        part = left[way].pop(0)
        local[way].take(batch_of(part, _ROW_KINDS))
        expected += [c for change in part for c in model.take(change)]
        if r.random() < 0.3 or not any(left):
            for one in local:
                one.operator.flush()
        for one in local:
            for batch in one.out:
                last.take(Batch.from_ipc(batch.to_ipc(), len(batch.columns), False))
            one.out.clear()
        emitted += last.changes()
        if restarts and r.random() < 0.3:
            last.restart()
    assert _near(final(emitted)) == _near(final(expected))


def _near(rows: list[tuple[Any, ...]]) -> list[Any]:
    """Return rows with rounded float sums, which depend on the order of addition."""
    return [tuple(float(f"{v:.12g}") if isinstance(v, float) else v for v in row) for row in rows]


@pytest.mark.parametrize("seed", _SEEDS)
def test_group_aggregate_ignores_retractions_of_unknown_rows(seed: int) -> None:
    r = Random(seed)
    changes = [(r.choice(["+I", "-D"]), r.choice("ab")) for _ in range(r.randrange(30))]
    bare = Bare(GroupAggregateOperator([0], _calls(("COUNT", None, False)), [pa.string()], retracts=True))
    expected: list[Change] = []
    counts: dict[str, int] = {}
    for kind, key in changes:
        before = counts.get(key, 0)
        after = before + (1 if kind == "+I" else -1)
        if after < 0:
            continue
        counts[key] = after
        if not before:
            expected.append(("+I", key, 1))
        elif not after:
            expected.append(("-D", key, before))
        else:
            expected += [("-U", key, before), ("+U", key, after)]
    for part in _cut(r, changes):
        bare.take(batch_of(part, [pa.string()]))
    assert bare.changes() == expected


@pytest.mark.parametrize("seed", _SEEDS)
def test_group_aggregate_mini_batch_emits_one_change_per_key(seed: int) -> None:
    r = Random(seed)
    changes = _changelog(r)
    specs = _PLAIN + _OF_ALL
    bare = Bare(GroupAggregateOperator([0], _calls(*specs), _ROW_KINDS, retracts=True, mini_batch=True))
    model = GroupAggregateModel(lambda row: row[:1], specs)
    all_emitted: list[Change] = []
    expected: list[Change] = []
    for part in _cut(r, changes):
        bare.take(batch_of(part, _ROW_KINDS))
        emitted = bare.changes()
        per_key = [c[1] for c in emitted if c[0] != "-U"]
        assert len(per_key) == len(set(per_key))
        all_emitted += emitted
        expected += [c for change in part for c in model.take(change)]
        assert final(all_emitted) == final(expected)


@pytest.mark.parametrize("seed", _SEEDS)
def test_group_aggregate_in_batch_emits_final_rows_only(seed: int) -> None:
    r = Random(seed)
    changes = _changelog(r)
    specs = _PLAIN + _OF_ALL
    bare = Bare(GroupAggregateOperator([0], _calls(*specs), _ROW_KINDS, retracts=True, final_only=True))
    model = GroupAggregateModel(lambda row: row[:1], specs)
    for part in _cut(r, changes):
        bare.take(batch_of(part, _ROW_KINDS))
    assert bare.changes() == []
    bare.operator.finish()
    emitted = bare.changes()
    assert all(c[0] == "+I" for c in emitted)
    assert final(emitted) == final(c for change in changes for c in model.take(change))


def test_global_aggregate_of_no_rows_in_batch_is_a_row() -> None:
    bare = Bare(GroupAggregateOperator([], _calls(*_PLAIN), _ROW_KINDS, final_only=True))
    bare.operator.finish()
    assert bare.changes() == [("+I", 0, 0, None, None, 0)]


def test_sum_of_floats_follows_arrival_order() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=3000) * 10.0 ** rng.integers(-8, 8, 3000)
    keys = np.where(rng.random(3000) < 0.5, 0, rng.integers(1, 200, 3000))
    bare = Bare(GroupAggregateOperator([0], [AggregateCall("SUM", (1,), _DOUBLE)], [pa.int64(), pa.float64()]))
    sums: dict[int, float] = {}
    for start in range(0, 3000, 700):
        part = slice(start, start + 700)
        rows = [("+I", k, v) for k, v in zip(keys[part].tolist(), values[part].tolist(), strict=True)]
        bare.take(batch_of(rows, [pa.int64(), pa.float64()]))
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        sums[key] = sums.get(key, 0.0) + value
    last = {c[1]: c[2] for c in bare.changes()}
    assert last == sums


# --- NaN: greater than any number, and equal to itself


def _by_size(value: float | None) -> tuple[bool, float]:
    assert value is not None
    return (True, 0.0) if value != value else (False, value)


@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize("seed", _SEEDS)
def test_min_max_with_nan(seed: int, retracts: bool) -> None:
    r = Random(seed)
    kinds = [pa.int64(), pa.float64()]
    live: dict[int, list[float | None]] = {}
    changes: list[Change] = []
    for _ in range(60):
        values = live.setdefault(r.randrange(3), [])
        if retracts and values and r.random() < 0.4:
            kind, value = "-D", values.pop(r.randrange(len(values)))
        else:
            kind, value = "+I", r.choice([1.5, -2.0, float("inf"), float("-inf"), float("nan"), None])
            values.append(value)
        changes.append((kind, next(k for k, v in live.items() if v is values), value))
    calls = [AggregateCall("MIN", (1,), _DOUBLE), AggregateCall("MAX", (1,), _DOUBLE)]
    operator = GroupAggregateOperator([0], calls, kinds, retracts=retracts)
    bare = Bare(operator)
    for part in _cut(r, changes):
        bare.take(batch_of(part, kinds))
        bare.restart()
    left: dict[int, tuple[Any, ...]] = {}
    for kind, key, *row in bare.changes():
        left[key] = tuple(row) if kind in ("+I", "+U") else ()
    for key, values in live.items():
        known = sorted((v for v in values if v is not None), key=_by_size)
        expected = (known[0], known[-1]) if known else ((None, None) if values else ())
        assert str(left.get(key, ())) == str(expected)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("retracts", [False, True])
def test_top_n_with_nan(descending: bool, retracts: bool) -> None:
    values = [1.0, float("nan"), 2.0, float("-inf"), None, float("nan"), 3.0]
    kinds = [pa.float64(), pa.int64()]
    order = [(0, descending, not descending)]
    changes: list[Change] = [("+I", v, i) for i, v in enumerate(values)]
    if retracts:
        changes += [("+I", float("nan"), 9), ("-D", float("nan"), 9)]
    bare = Bare(TopNOperator([], order, kinds, 1, 4, False, retracts=retracts))
    for change in changes:
        bare.take(batch_of([change], kinds))
    left = dict.fromkeys(range(10), 0)
    for kind, _, i in bare.changes():
        left[i] += 1 if kind in ("+I", "+U") else -1
    assert {i for i, n in left.items() if n} == ({1, 5, 6, 2} if descending else {4, 3, 0, 2})
    columns = [pa.array(values), pa.array(range(len(values)))]
    actual = sorted_rows(columns, [(0, descending, not descending), (1, False, True)], len(values)).tolist()
    assert actual == ([1, 5, 6, 2, 0, 3, 4] if descending else [4, 3, 0, 2, 6, 1, 5])


# --- joins


def _join_row(r: Random) -> tuple[Any, ...]:
    return r.choice([None, 0, 1, 2]), r.randrange(3)


_JOIN_KINDS = (pa.int64(), pa.int64())


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", list(JoinKind))
def test_join_emits_every_change(seed: int, kind: JoinKind) -> None:
    r = Random(seed)
    has_condition, restarts = r.random() < 0.5, r.random() < 0.5
    condition = None
    if has_condition:
        condition = Call(DataTypes.BOOLEAN(), "<=", (Column(_BIGINT, 1), Column(_BIGINT, 3)))
    bare = Bare(
        JoinOperator(kind, JoinSide(_JOIN_KINDS, (0,)), JoinSide(_JOIN_KINDS, (0,)), (False,), condition, Session())
    )
    model = JoinModel(kind.name, (0, 0), (2, 2), (lambda left, right: left[1] <= right[1]) if has_condition else None)
    sides = [_changelog(r, _join_row) for _ in range(2)]
    while sides[0] or sides[1]:
        side = r.randrange(2) if sides[0] and sides[1] else int(not sides[0])
        size = r.randint(1, 12)
        part, sides[side] = sides[side][:size], sides[side][size:]
        bare.take(batch_of(part, _JOIN_KINDS), side)
        assert bare.changes() == [c for change in part for c in model.take(side, change)]
        if restarts and r.random() < 0.5:
            bare.restart()


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", list(JoinKind))
def test_join_in_batch_emits_final_rows_only(seed: int, kind: JoinKind) -> None:
    r = Random(seed)
    side = JoinSide(_JOIN_KINDS, (0,))
    bare = Bare(JoinOperator(kind, side, side, (False,), None, Session(batch=True), final_only=True))
    model = JoinModel(kind.name, (0, 0), (2, 2))
    expected: list[Change] = []
    for number in range(2):
        changes = _changelog(r, _join_row)
        for part in _cut(r, changes):
            bare.take(batch_of(part, _JOIN_KINDS), number)
        expected += [c for change in changes for c in model.take(number, change)]
    bare.operator.finish()
    emitted = bare.changes()
    assert all(c[0] == "+I" for c in emitted)
    assert final(emitted) == final(expected)


# --- windows

_WINDOWS = {
    WindowKind.TUMBLE: (6, 6),
    WindowKind.HOP: (6, 2),
    WindowKind.CUMULATE: (6, 2),
}


def _windows_of(kind: WindowKind, size: int, step: int, offset: int, time: int) -> list[tuple[int, int]]:
    if kind is WindowKind.CUMULATE:
        start = time - (time - offset) % size
        return [(start, start + n) for n in range(step, size + 1, step) if start + n > time]
    last = time - (time - offset) % step
    return [(s, s + size) for s in range(last, time - size, -step)]


@pytest.mark.parametrize("seed", _SEEDS)
def test_top_n_is_independent_of_batches(seed: int) -> None:
    r = Random(seed)
    order = r.choice([[(1, True, False)], [(1, False, True)], [(1, True, True), (2, False, False)]])
    numbers = [*range(30), None] if r.random() < 0.5 else range(30)
    rows = [("+I", r.choice("ab"), r.choice(numbers), r.randrange(3), i) for i in range(200)]
    kinds = [pa.string(), pa.int64(), pa.int64(), pa.int64()]
    limit, with_rank = r.randint(1, 4), r.random() < 0.5
    outputs = []
    for batch_rows in (1, 37, 200):
        bare = Bare(TopNOperator([0], order, kinds, 1, limit, with_rank))
        for i in range(0, len(rows), batch_rows):
            bare.take(batch_of(rows[i : i + batch_rows], kinds))
        outputs.append(bare.changes())
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("seed", _SEEDS)
def test_append_only_top_n_equals_row_by_row_processing(seed: int) -> None:
    r = Random(seed)
    order = r.choice([[(1, True, False)], [(1, False, True)], [(1, True, True), (2, False, False)]])
    numbers = [*range(30), None, float("nan")] if r.random() < 0.5 else range(60)
    rows = [("+I", r.choice("aaabcdefgh"), r.choice(numbers), r.randrange(3), i) for i in range(300)]
    kinds = [pa.string(), pa.float64(), pa.int64(), pa.int64()]
    last, with_rank, pairs = r.randint(1, 5), r.random() < 0.5, r.random() < 0.7
    first = r.randint(1, last)
    expected = Bare(TopNOperator([0], order, kinds, first, last, with_rank, pairs=pairs))
    actual = Bare(AppendOnlyTopNOperator([0], order, kinds, first, last, with_rank, pairs=pairs))
    for part in _cut(r, rows):
        for bare in (expected, actual):
            bare.take(batch_of(part, kinds))
        assert str(actual.changes()) == str(expected.changes())


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("folds", [False, True])
def test_first_value_and_last_value(seed: int, folds: bool) -> None:
    r = Random(seed)
    rows = [("+I", r.choice("abc"), r.choice([None, "x", "y", "z"]), r.choice([None, 1, 2])) for _ in range(60)]
    kinds = [pa.string(), pa.string(), pa.int64()]
    calls = [AggregateCall(f, (c,), t) for f in ("FIRST_VALUE", "LAST_VALUE") for c, t in ((1, _STRING), (2, _BIGINT))]
    bare = Bare(GroupAggregateOperator([0], calls, kinds, mini_batch=folds))
    rows_by_key: dict[str, list[Any]] = {}
    expected: list[Change] = []
    for part in _cut(r, rows):
        bare.take(batch_of(part, kinds))
        for _, key, *values in part:
            before = rows_by_key.get(key)
            now = list(before or [None] * 4)
            for i, value in enumerate(values):
                if value is not None:
                    now[i] = value if now[i] is None else now[i]
                    now[2 + i] = value
            rows_by_key[key] = now
            if before is None:
                expected.append(("+I", key, *now))
            elif before != now:
                expected += [("-U", key, *before), ("+U", key, *now)]
        if r.random() < 0.3:
            bare.restart()
    emitted = bare.changes()
    assert final(emitted) == final(expected)
    assert folds or emitted == expected


class InTwoPhases(Bare):
    """The second phase of a window aggregate, with the first phase before it."""

    def __init__(self, arguments: Any, properties: Any) -> None:
        super().__init__(GlobalWindowAggregateOperator(*arguments, properties))  # type: ignore[call-arg]
        self.local = Bare(LocalWindowAggregateOperator(*arguments, False))  # type: ignore[call-arg]

    def take(self, batch: Batch, input_index: int = 0) -> None:
        self.local.take(batch)

    def advance(self, watermark: int) -> None:
        self.local.operator.on_watermark(watermark)
        for batch in self.local.out:
            super().take(Batch.from_ipc(batch.to_ipc(), len(batch.columns), False))
        self.local.out.clear()
        self.operator.on_watermark(watermark)


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", list(_WINDOWS))
@pytest.mark.parametrize("phases", [1, 2])
def test_window_aggregate_fires_with_the_watermark(seed: int, kind: WindowKind, phases: int) -> None:
    r = Random(seed)
    offset, distinct, restarts = r.choice([0, 1]), r.random() < 0.5, r.random() < 0.5
    size, step = _WINDOWS[kind]
    stamp = pa.timestamp("ms")
    kinds = [pa.string(), pa.int64(), stamp]
    calls = [AggregateCall("COUNT", (), _BIGINT), AggregateCall("MAX", (1,), _BIGINT)]
    if distinct:
        calls.append(AggregateCall("COUNT", (1,), _BIGINT, distinct=True))
    arguments = (Windowing(kind, size, step, offset), WindowTimes(2, True, "UTC"), [0], calls, kinds)
    properties = [("start", stamp), ("end", stamp)]
    bare: Bare = (
        InTwoPhases(arguments, properties) if phases == 2 else Bare(WindowAggregateOperator(*arguments, properties))
    )
    advance: Any = bare.advance if isinstance(bare, InTwoPhases) else bare.operator.on_watermark

    def value(rows: list[Any]) -> tuple[Any, ...]:
        values = [r[1] for r in rows]
        return (len(values), max(values), *([len(set(values))] if distinct else []))

    model = WindowModel(lambda t: _windows_of(kind, size, step, offset, t), value, 2)
    rows = [(r.choice("abc"), r.randrange(4), r.randrange(40)) for _ in range(r.randrange(50))]
    watermark = 0
    for part in _cut(r, rows):
        batch = batch_of([("+I", k, v, t) for k, v, t in part], [pa.string(), pa.int64(), pa.int64()])
        bare.take(batch.with_columns([*batch.columns[:2], batch.columns[2].view(stamp)]))
        for row in part:
            model.take(row)
        watermark = max(watermark, r.randrange(50))
        advance(watermark)
        assert sorted(map(repr, _in_ms(bare.changes()))) == sorted(map(repr, model.advance(watermark)))
        if restarts and r.random() < 0.5:
            bare.restart()
    advance((1 << 63) - 1)
    assert sorted(map(repr, _in_ms(bare.changes()))) == sorted(map(repr, model.advance((1 << 63) - 1)))


@pytest.mark.parametrize("seed", range(30))
def test_session_aggregate_merges_sessions_of_late_rows(seed: int) -> None:
    """Also with late rows, rows that merge sessions, and rows after a restart; without a restart in the same order."""
    r = Random(seed)
    can_restart = r.random() < 0.5
    stamp = pa.timestamp("ms")
    kinds = [pa.string(), pa.int64(), stamp]
    calls = [AggregateCall(f, (1,) if f != "COUNT" else (), _BIGINT) for f in ("COUNT", "SUM", "MIN", "MAX", "AVG")]
    properties = [("start", stamp), ("end", stamp)]
    arguments = (calls, kinds, properties)
    assert can_merge(calls, kinds)
    of_rows = Bare(SessionWindowOperator(3, WindowTimes(2, True, "UTC"), [0], [0], *arguments))
    merged = Bare(MergedSessionOperator(3, WindowTimes(2, True, "UTC"), [0], *arguments))
    watermark = 0
    rows = [("+I", r.choice("abcd"), r.randrange(40), i // 4 + r.randrange(-6, 6)) for i in range(160)]
    for part in _cut(r, rows):
        batch = batch_of(part, [pa.string(), pa.int64(), pa.int64()])
        batch = batch.with_columns([*batch.columns[:2], batch.columns[2].view(stamp)])
        watermark = max(watermark, part[-1][3] - r.randrange(6))
        restarts = can_restart and r.random() < 0.3
        for bare in (of_rows, merged):
            bare.take(batch)
            bare.operator.on_watermark(watermark)
            if restarts:
                bare.restart()
                bare.operator.watermark = watermark
    for bare in (of_rows, merged):
        bare.operator.on_watermark((1 << 63) - 1)
    actual, expected = merged.changes(), of_rows.changes()
    assert sorted(actual) == sorted(expected) if can_restart else actual == expected


def test_local_window_aggregate_flushes_when_idle() -> None:
    stamp = pa.timestamp("ms")
    arguments = (Windowing(WindowKind.TUMBLE, 10, 10), WindowTimes(1, True, "UTC"), [0], _calls(("COUNT", None, False)))
    local = Bare(LocalWindowAggregateOperator(*arguments, [pa.string(), stamp], False))
    batch = batch_of([("+I", "a", 1), ("+I", "a", 2)], [pa.string(), pa.int64()])
    local.take(batch.with_columns([batch.columns[0], batch.columns[1].view(stamp)]))
    assert local.changes() == []
    assert local.operator.on_idle()
    assert local.changes() == [("+I", "a", 2, 10)]


def _in_ms(changes: list[Change]) -> list[Change]:
    epoch = np.datetime64(0, "ms")
    return [(*c[:-2], *(int((np.datetime64(v) - epoch) / np.timedelta64(1, "ms")) for v in c[-2:])) for c in changes]


@pytest.mark.parametrize("kind", list(_WINDOWS))
def test_window_aggregate_order_is_independent_of_batches(kind: WindowKind) -> None:
    size, step = _WINDOWS[kind]
    rng = np.random.default_rng(5)
    rows = [
        ("+I", str(k), 1, int(t))
        for k, t in zip(rng.integers(0, 9, 300), np.sort(rng.integers(0, 90, 300)), strict=True)
    ]
    outputs = []
    for batch_rows in (300, 7, 50):
        operator = WindowAggregateOperator(
            Windowing(kind, size, step),
            WindowTimes(2, True, "UTC"),
            [0],
            [AggregateCall("COUNT", (), _BIGINT)],
            [pa.string(), pa.int64(), pa.timestamp("ms")],
            [("start", pa.timestamp("ms")), ("end", pa.timestamp("ms"))],
        )
        bare = Bare(operator)
        for start in range(0, 300, batch_rows):
            bare.take(batch_of(rows[start : start + batch_rows], [pa.string(), pa.int64(), pa.timestamp("ms")]))
            operator.on_watermark(rows[min(start + batch_rows, 300) - 1][3] - 1)
        operator.on_watermark((1 << 63) - 1)
        outputs.append(bare.changes())
    assert outputs[0] == outputs[1] == outputs[2]
