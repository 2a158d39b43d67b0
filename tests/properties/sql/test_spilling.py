"""Batch operators that spill to disk emit the same rows as in memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.operators.runtime.budget import Budget
from millstream.sql.columns import spillable_rows
from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import AggregateCall, Call, Column
from millstream.sql.operators.aggregate.group_aggregate import (
    BatchGlobalGroupAggregateOperator,
    BatchGroupAggregateOperator,
)
from millstream.sql.operators.aggregate.local_aggregate import LocalGroupAggregateOperator
from millstream.sql.operators.base import KeyedBatchOperator
from millstream.sql.operators.batch import batch_join, batch_sort
from millstream.sql.operators.batch.batch_join import BatchJoinOperator, SortMergeJoinOperator
from millstream.sql.operators.batch.batch_sort import BatchSortOperator, BatchTopNOperator, merged
from millstream.sql.operators.join.pairing import Matches
from millstream.sql.operators.join.regular_join import JoinSide
from millstream.sql.operators.query_context import Session
from millstream.sql.plan.nodes import JoinKind
from millstream.sql.types import DataTypes
from millstream.state.spill_file import SpillFile
from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment
from tests.sql import tpch
from tests.support.sql_runs import Bare, batch_of

_KINDS = (pa.int64(), pa.string(), pa.int64())
_TINY = 300

_rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 5)),
        st.one_of(st.none(), st.sampled_from(["a", "b", "a longer text than fits into words"])),
        st.integers(-(2**40), 2**40),
    ),
    min_size=1,
    max_size=30,
)
_batches = st.lists(_rows, max_size=6)


# --- spill files


def test_spill_file_is_unnamed_and_readable_in_parts(tmp_path: Path) -> None:
    file = SpillFile(str(tmp_path))
    locations = [file.write(body) for body in (b"one", b"", b"three" * 1000)]
    assert not list(tmp_path.iterdir()), "the file must not outlive its process"
    assert [file.read(location) for location in reversed(locations)] == [b"three" * 1000, b"", b"one"]
    assert (file.written, file.files) == (5003, 1)
    file.clear()
    assert file.read(file.write(b"more")) == b"more"
    assert (file.written, file.files) == (5007, 2)


# --- memory budget


class _Owner:
    def __init__(self, budget: Budget, done: list[str], name: str) -> None:
        self.account = budget.account(self._spill)
        self._done, self._name = done, name

    def _spill(self) -> None:
        self._done.append(self._name)
        self.account.set_used(0)


def test_memory_budget_spills_largest_owner() -> None:
    budget, done = Budget(100), list[str]()
    a, b, c = (_Owner(budget, done, name) for name in "abc")
    a.account.set_used(30)
    b.account.set_used(60)
    assert not done
    c.account.set_used(20)
    assert done == ["b"]
    a.account.set_used(101)
    assert done == ["b", "a"]
    assert c.account.used == 20


def test_memory_budget_without_limit_never_spills() -> None:
    done: list[str] = []
    _Owner(Budget(), done, "a").account.set_used(1 << 60)
    assert not done


# --- operators: a budget of a few bytes gives the same results as no limit


def _all(batches: list[Any]) -> list[Any]:
    return [row for rows in batches for row in rows]


def _batch(rows: Sequence[tuple[Any, ...]]) -> Batch:
    return batch_of([("+I", *row) for row in rows], _KINDS)


def _spilled(bare: Bare) -> int:
    group = bare.operator.setup.context.get_metrics_group()
    return int(dict(group.values())["bare.spillInBytes"])


def _ran(
    operator: KeyedBatchOperator, inputs: Sequence[tuple[int, list[Any]]], limit: int | None, restarts: bool
) -> Bare:
    bare = Bare(operator, batch=True, budget=Budget(limit))
    for number, (side, rows) in enumerate(inputs):
        bare.take(_batch(rows), side)
        if restarts and number % 2:
            bare.restart()
    for _ in operator.finishing():
        pass
    return bare


def _both_ways(make: Any, inputs: Sequence[tuple[int, list[Any]]], restarts: bool) -> tuple[list[Any], list[Any]]:
    """Return the output in memory, and with spilling."""
    plain, on_disk = _ran(make(), inputs, None, False), _ran(make(), inputs, _TINY, restarts)
    assert _spilled(plain) == 0
    if sum(len(rows) for _, rows in inputs) > 40:
        assert _spilled(on_disk) > 0
    return plain.changes(), on_disk.changes()


def _nested(kind: JoinKind, left: list[Any], right: list[Any], null_safe: bool, less: bool) -> Counter[Any]:
    """Return a nested-loop join."""

    def is_pair(a: Any, b: Any) -> bool:
        return (a[0] == b[0] and (null_safe or a[0] is not None)) and (not less or a[2] < b[2])

    pairs = [(a, b) for a in left for b in right if is_pair(a, b)]
    nulls = (None,) * len(_KINDS)
    alone = [a for a in left if not any(is_pair(a, b) for b in right)]
    others = [b for b in right if not any(is_pair(a, b) for a in left)]
    if kind is JoinKind.SEMI:
        return Counter(a for a in left if any(is_pair(a, b) for b in right))
    if kind is JoinKind.ANTI:
        return Counter(alone)
    rows = Counter((*a, *b) for a, b in pairs)
    if kind in (JoinKind.LEFT, JoinKind.FULL):
        rows.update((*a, *nulls) for a in alone)
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        rows.update((*nulls, *b) for b in others)
    return rows


@pytest.mark.parametrize("join", [BatchJoinOperator, SortMergeJoinOperator])
@pytest.mark.parametrize("kind", list(JoinKind))
@given(_batches, _batches, st.booleans(), st.booleans(), st.booleans(), st.integers(1, 400))
@settings(max_examples=25, deadline=None)
def test_spilled_join_equals_join_in_memory(
    kind: JoinKind,
    join: type[BatchJoinOperator],
    left: list[Any],
    right: list[Any],
    null_safe: bool,
    less: bool,
    restarts: bool,
    some_bytes: int,
) -> None:
    inputs = [(0, rows) for rows in left] + [(1, rows) for rows in right]
    side, condition = JoinSide(_KINDS, (0,)), _less() if less else None

    def make() -> BatchJoinOperator:
        return join(kind, side, side, (null_safe,), condition, Session(batch=True))

    with pytest.MonkeyPatch.context() as patch:
        # So few rows of a side fit into memory that keys have more, and rows of one key spill again.
        patch.setattr(spillable_rows, "_RUN_ROWS", 3)
        patch.setattr(batch_sort, "_MIN_LOADED_ROWS", 2)
        patch.setattr(batch_sort, "BATCH_ROWS", 3)
        patch.setattr(batch_join, "_MIN_LOADED_BYTES", some_bytes)
        patch.setattr(batch_join, "SPILL_CHUNK_BYTES", some_bytes)
        limits = (_TINY, None) if join is SortMergeJoinOperator else ()
        in_parts = [_ran(make(), inputs, limit, restarts).changes() for limit in limits]
    plain, on_disk = _both_ways(make, inputs, restarts)
    expected = _nested(kind, _all(left), _all(right), null_safe, less)
    assert all(Counter(row[1:] for row in results) == expected for results in in_parts)
    assert Counter(row[1:] for row in plain) == expected
    assert Counter(row[1:] for row in on_disk) == expected


def _less() -> Call:
    bigint = DataTypes.BIGINT()
    return Call(DataTypes.BOOLEAN(), "<", (Column(bigint, 2), Column(bigint, 5)))


@given(_batches, _batches)
@settings(max_examples=15, deadline=None)
def test_spilled_join_without_keys_equals_join_in_memory(left: list[Any], right: list[Any]) -> None:
    inputs = [(0, rows) for rows in left] + [(1, rows) for rows in right]
    side = JoinSide(_KINDS, ())

    def make() -> BatchJoinOperator:
        return BatchJoinOperator(JoinKind.INNER, side, side, (), _less(), Session(batch=True))

    plain, on_disk = _both_ways(make, inputs, False)
    expected = Counter((*a, *b) for a in _all(left) for b in _all(right) if a[2] < b[2])
    assert Counter(row[1:] for row in plain) == Counter(row[1:] for row in on_disk) == expected


@pytest.mark.parametrize("join", [BatchJoinOperator, SortMergeJoinOperator])
def test_spilled_join_with_single_key_is_joined_in_parts(
    join: type[BatchJoinOperator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key whose rows exceed the memory is joined in several passes."""
    monkeypatch.setattr(batch_join, "_MIN_LOADED_BYTES", 500)
    monkeypatch.setattr(batch_join, "SPILL_CHUNK_BYTES", 500)
    monkeypatch.setattr("millstream.sql.operators.batch.batch_join._CHUNK_BYTES", 500)
    monkeypatch.setattr("millstream.sql.operators.batch.batch_join.SPILL_CHUNK_BYTES", 500)
    monkeypatch.setattr("millstream.sql.operators.batch.batch_join._AT_ONCE", 97)
    left = [[(1, "a", n) for n in range(start, start + 20)] for start in range(0, 100, 20)]
    right = [[(1, "b", n) for n in range(start, start + 20)] for start in range(50, 150, 20)]
    side = JoinSide(_KINDS, (0,))
    for kind in JoinKind:
        operator = join(kind, side, side, (False,), _less(), Session(batch=True))
        inputs = [(0, rows) for rows in left] + [(1, rows) for rows in right]
        results = Counter(row[1:] for row in _ran(operator, inputs, _TINY, False).changes())
        assert results == _nested(kind, _all(left), _all(right), False, True), kind


_ORDERS = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=1, max_size=3)


def _in_order(rows: list[Any], order: list[Any]) -> list[Any]:
    """Sort rows stably, so that the order is unique."""
    for column, descending, nulls_first in reversed(order):
        some = [row for row in rows if row[column] is not None]
        nulls = [row for row in rows if row[column] is None]
        # Python keeps the order of equal rows in reverse, too.
        some.sort(key=itemgetter(column), reverse=descending)
        rows = nulls + some if nulls_first else some + nulls
    return rows


@given(_batches, _ORDERS, st.integers(0, 5), st.one_of(st.none(), st.integers(0, 20)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_spilled_sort_equals_sort_in_memory(
    batches: list[Any], order: list[Any], offset: int, limit: int | None, restarts: bool
) -> None:
    inputs = [(0, rows) for rows in batches]

    def make() -> BatchSortOperator:
        return BatchSortOperator(order, _KINDS, offset, limit)

    plain, on_disk = _both_ways(make, inputs, restarts)
    expected = _in_order(_all(batches), order)
    expected = expected[offset:] if limit is None else expected[offset : offset + limit]
    assert [row[1:] for row in plain] == expected
    assert [row[1:] for row in on_disk] == expected


@pytest.mark.parametrize("partition", [(0,), (1, 0), ()])
@given(_batches, _ORDERS, st.integers(1, 3), st.one_of(st.none(), st.integers(1, 5)), st.booleans(), st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_spilled_top_n_equals_top_n_in_memory(
    partition: tuple[int, ...],
    batches: list[Any],
    order: list[Any],
    first: int,
    last: int | None,
    restarts: bool,
    many: int,
) -> None:
    inputs = [(0, rows) for rows in batches]

    def make() -> BatchTopNOperator:
        return BatchTopNOperator(partition, order, _KINDS, first, last, True)

    with pytest.MonkeyPatch.context() as patch:
        # The buffer is so small that many rows are discarded early, and bins are read in parts.
        patch.setattr(batch_sort, "_TRIM_ROWS", many)
        patch.setattr(batch_sort, "SPILL_CHUNK_BYTES", 10 * many)
        plain, on_disk = _both_ways(make, inputs, restarts)
    partitions: dict[tuple[Any, ...], list[Any]] = {}
    for row in _in_order(_all(batches), order):
        partitions.setdefault(tuple(row[k] for k in partition), []).append(row)
    expected = Counter((*row, n) for rows in partitions.values() for n, row in enumerate(rows[:last], 1) if n >= first)
    assert Counter(row[1:] for row in plain) == expected
    assert Counter(row[1:] for row in on_disk) == expected


def test_sort_limit_buffers_only_first_rows() -> None:
    """A sort with a small limit buffers few of many rows."""
    bare = Bare(BatchSortOperator([(0, False, True)], [pa.int64()], 2, 3), batch=True)
    for start in range(10):
        values = np.random.default_rng(start).permutation(1 << 15) * 10 + start
        bare.take(Batch([pa.array(values)]))
        assert len(bare.operator._rows) <= 3 << 15  # type: ignore[attr-defined]
    for _ in bare.operator.finishing():
        pass
    assert [row[1] for row in bare.changes()] == [2, 3, 4]


def test_sorted_runs_are_merged_in_order_for_any_length() -> None:
    random = np.random.default_rng(7)
    runs = [np.sort(random.integers(0, 500, size)) for size in (0, 1, 5000, 12345, 20000, 3)]

    def batches(run: Any) -> Iterator[Batch]:
        for start in range(0, len(run), 4096):
            part = run[start : start + 4096]
            yield Batch([pa.array(part), pa.array([id(run)] * len(part))])

    results = list(merged([batches(run) for run in runs], [(0, False, True)]))
    values = np.concatenate([batch.columns[0].to_numpy() for batch in results])
    assert values.tolist() == np.sort(np.concatenate(runs)).tolist()
    # Ties keep the order of the runs.
    number = {id(run): i for i, run in enumerate(runs)}
    owners = [number[i] for batch in results for i in batch.columns[1].to_pylist()]
    assert list(zip(values.tolist(), owners, strict=True)) == sorted(zip(values.tolist(), owners, strict=True))
    assert max(map(len, results)) < 40_000


_CALLS = [
    AggregateCall("COUNT", (), DataTypes.BIGINT()),
    AggregateCall("SUM", (2,), DataTypes.BIGINT()),
    AggregateCall("COUNT", (1,), DataTypes.BIGINT(), distinct=True),
    AggregateCall("MIN", (1,), DataTypes.STRING()),
    AggregateCall("FIRST_VALUE", (2,), DataTypes.BIGINT()),
    AggregateCall("LAST_VALUE", (1,), DataTypes.STRING()),
    AggregateCall("LISTAGG", (1,), DataTypes.STRING(), options=(",",)),
]


@pytest.mark.parametrize("keys", [(0,), (0, 1), ()])
@given(_batches, st.booleans())
@settings(max_examples=25, deadline=None)
def test_spilled_group_aggregate_equals_aggregate_in_memory(
    keys: tuple[int, ...], batches: list[Any], restarts: bool
) -> None:
    inputs = [(0, rows) for rows in batches]

    def make() -> BatchGroupAggregateOperator:
        return BatchGroupAggregateOperator(keys, _CALLS, _KINDS)

    plain, on_disk = _both_ways(make, inputs, restarts)
    assert Counter(plain) == Counter(on_disk)
    counts = Counter(tuple(row[k] for k in keys) for rows in batches for row in rows)
    expected = counts or ({} if keys else {(): 0})
    assert {row[1 : 1 + len(keys)]: row[1 + len(keys)] for row in on_disk} == dict(expected)


_SPLIT = [*_CALLS[:2], _CALLS[3], AggregateCall("AVG", (2,), DataTypes.BIGINT())]


@pytest.mark.parametrize("keys", [(0,), (0, 1), ()])
@given(_batches, st.booleans())
@settings(max_examples=20, deadline=None)
def test_spilled_two_phase_aggregate_equals_aggregate_in_memory(
    keys: tuple[int, ...], batches: list[Any], restarts: bool
) -> None:
    local = Bare(LocalGroupAggregateOperator(keys, _SPLIT, _KINDS, False), batch=True)
    for rows in batches:
        local.take(_batch(rows))
        local.operator.flush()
    second = BatchGlobalGroupAggregateOperator(keys, _SPLIT, _KINDS)
    on_disk = Bare(second, batch=True, budget=Budget(_TINY))
    for number, batch in enumerate(local.out):
        on_disk.take(batch)
        if restarts and number % 2:
            on_disk.restart()
    second.finish()
    plain = _ran(BatchGroupAggregateOperator(keys, _SPLIT, _KINDS), [(0, rows) for rows in batches], None, False)
    assert Counter(on_disk.changes()) == Counter(plain.changes())


@given(_rows, _rows, st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_join_matches_are_returned_in_parts_of_any_size(mine: list[Any], theirs: list[Any], max_pairs: int) -> None:
    matches = Matches([_batch(mine).columns[0]], [_batch(theirs).columns[0]], [False], (len(mine), len(theirs)))
    parts = list(matches.pairs(max_pairs))
    assert all(len(locations) == len(rows) <= max_pairs for locations, rows in parts)
    pairs = [pair for locations, rows in parts for pair in zip(locations.tolist(), rows.tolist(), strict=True)]
    expected = [(i, j) for i, a in enumerate(mine) for j, b in enumerate(theirs) if a[0] is not None and a[0] == b[0]]
    assert pairs == expected and len(matches) == len(expected)


# --- whole jobs


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> StreamTableEnvironment:
    folder = tmp_path_factory.mktemp("tpch-spill")
    tpch.generate(folder)
    t_env = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    t_env.get_config().set("parallelism.default", "2")
    t_env.get_config().set("millstream.batch.memory", "20000")
    tpch.create_tables(t_env, folder)
    return t_env


@pytest.mark.parametrize("number", [3, 9, 13, 16, 18, 21, 22])
def test_tpch_queries_with_20_kb_of_memory(small: StreamTableEnvironment, number: int) -> None:
    results = tpch.plain(list(small.execute_sql(tpch.queries()[number]).collect()))
    expected = tpch.answers()[number]
    assert tpch.are_equal(results, expected), (results[:3], expected[:3])


def test_top_n_query_with_20_kb_of_memory(small: StreamTableEnvironment) -> None:
    number = "ROW_NUMBER() OVER (PARTITION BY o_custkey ORDER BY o_totalprice DESC, o_orderkey)"
    query = f"SELECT o_custkey, o_orderkey, n FROM (SELECT *, {number} AS n FROM orders) WHERE n <= 2"
    assert "Rank(strategy=[AppendFastStrategy]" in small.explain_sql(query)
    results = Counter(tuple(row) for row in small.execute_sql(query).collect())
    orders: dict[int, list[Any]] = {}
    for key, price, order in small.execute_sql("SELECT o_custkey, o_totalprice, o_orderkey FROM orders").collect():
        orders.setdefault(key, []).append((-price, order))
    assert results == Counter((k, o, n) for k, rows in orders.items() for n, (_, o) in enumerate(sorted(rows)[:2], 1))


def test_spill_files_are_closed_when_job_fails(small: StreamTableEnvironment) -> None:
    query = "SELECT l_orderkey / (o_orderkey - o_orderkey) FROM lineitem JOIN orders ON l_orderkey = o_orderkey"
    with pytest.raises(Exception, match="zero"):
        list(small.execute_sql(query).collect())
    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
    assert not [name for name in open_files if "millstream-spill" in name]


def _is_open(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")
