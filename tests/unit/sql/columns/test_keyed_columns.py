"""SQL state as columns: deltas, savepoints, another parallelism, another max parallelism."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from millstream.common import Configuration
from millstream.common.errors import DamagedStateError, InvalidProgramError
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.transformations import UpstreamEdge
from millstream.operators.runtime.partitioners import GlobalPartitioner
from millstream.operators.runtime.runtime_snapshot import decode
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_columns import StateColumn, read, written
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.group_aggregate import GroupAggregateOperator
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.io.table_io import ScanOperator, TableSinkOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.types import DataTypes
from millstream.state import changelog
from millstream.state.changelog import FileHeader, Section, encode
from millstream.state.column_table import RowChange
from millstream.state.kinds import COLUMNS, VALUE
from millstream.state.vector_key_groups import groups_of
from millstream.testing import (
    CollectSink,
    LocalJob,
    ManualClock,
    TestingSource,
    save_checkpoint,
    save_savepoint,
    start_from,
)
from tests.support.sql_runs import (
    Bare,
    Change,
    batch_of,
    changes_of,
    collecting,
    fields,
    final,
    input_node,
    kinds_of,
    planned,
    run,
)

_BIGINT = DataTypes.BIGINT()
_INPUT = fields(k=DataTypes.STRING(), n=_BIGINT, v=_BIGINT)


def _query() -> tuple[Planned, Planned]:
    source = input_node(_INPUT)
    calls = (
        AggregateCall("COUNT", (), _BIGINT),
        AggregateCall("SUM", (2,), _BIGINT),
        AggregateCall("MAX", (2,), _BIGINT),
        AggregateCall("COUNT", (2,), _BIGINT, distinct=True),
    )
    out = fields(k=DataTypes.STRING(), n=_BIGINT, c=_BIGINT, s=_BIGINT, m=_BIGINT, d=_BIGINT)
    return source, planned(nodes.Aggregate(out, source.node, (0, 1), calls), source)


def _changes(count: int) -> list[Change]:
    rng = np.random.default_rng(7)
    rows: list[Change] = []
    for i in range(count):
        if rows and rng.random() < 0.3:
            index = int(rng.integers(len(rows)))
            if rows[index] is not None and rows[index][0] == "+I":
                rows.append(("-D", *rows[index][1:]))
                rows[index] = ("kept", *rows[index][1:])
                continue
        key = None if i % 11 == 0 else f"key {rng.integers(40)}"
        rows.append(("+I", key, int(rng.integers(3)), int(rng.integers(5))))
    return [("+I", *row[1:]) if row[0] == "kept" else row for row in rows]


def test_column_state_result_is_independent_of_parallelism() -> None:
    source, query = _query()
    batches = [batch_of(part, kinds_of(_INPUT)) for part in _cut(_changes(400), 37)]
    one = final(run(query, [(source, batches)]))
    assert len(one) > 50
    for parallelism in (2, 3):
        assert final(run(query, [(source, batches)], parallelism)) == one


def _cut(rows: list[Change], size: int) -> list[list[Change]]:
    return [rows[i : i + size] for i in range(0, len(rows), size)]


@pytest.mark.parametrize("savepoint", [True, False])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_column_state_restores_at_another_parallelism(after: int, savepoint: bool, tmp_path: Path) -> None:
    source, query = _query()
    rows = _changes(600)
    batches = [batch_of(part, kinds_of(_INPUT)) for part in _cut(rows, 50)]
    expected = final(run(query, [(source, batches)]))
    env, sink = collecting(query, [(source, batches)], 2)
    job = LocalJob(env, epoch_sizes=lambda: 1)
    for _ in range(5):
        job.run_epoch()
    saved = (save_savepoint if savepoint else save_checkpoint)(job, tmp_path)
    results_before = changes_of(sink.results())
    assert results_before
    env, sink = collecting(query, [(source, batches)], after)
    job = start_from(env, saved, epoch_sizes=lambda: 2)
    job.run()
    assert final([*results_before, *changes_of(sink.results())]) == expected
    # No subtask has keys of another.
    assert sum(len(change) for _, content in job.state_rows("groups") for change in content) == len(expected)


def test_column_key_groups_match_values() -> None:
    from millstream.sql.columns.keys import hashes
    from millstream.state.key_groups import key_group
    from millstream.state.vector_key_groups import groups_of

    values = [0, 1, -1, 12345, -(1 << 40), (1 << 61) - 1, (1 << 63) - 1, -(1 << 63), None]
    groups = groups_of(hashes([pa.array(values, pa.int64())], len(values)), 128).tolist()
    assert groups == [key_group(v, 128) for v in values]
    texts = ["", "a", "ä", "key", None]
    assert groups_of(hashes([pa.array(texts)], 5), 128).tolist() == [key_group(v, 128) for v in texts]
    pairs = groups_of(hashes([pa.array(texts), pa.array([1, 2, 3, 4, None])], 5), 128).tolist()
    assert pairs == [key_group(v, 128) for v in zip(texts, [1, 2, 3, 4, None], strict=True)]


@hypothesis.given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=6), st.booleans())
def test_column_state_files_are_arrow_streams(slices: list[tuple[int, int]], compressed: bool) -> None:
    """Adjacent rows are written without copying; deletions precede insertions."""
    texts = pa.array([None if i % 7 == 0 else "x" * i for i in range(40)])
    whole = pa.record_batch([pa.array(np.arange(40, dtype=np.uint32)), texts], ["hash", "k0"])
    changes = [
        RowChange(whole.slice(start, count), whole.slice(0, count) if count % 2 else None) for start, count in slices
    ]
    rows = {0: tuple(changes), 3: (RowChange(whole),)}
    content = [Section("t", COLUMNS, "group", rows), Section("u", VALUE, "key", {"a": 1})]
    data = b"".join(encode(FileHeader("op", 0, 1, True, []), content, compressed))
    columns, values = changelog.decode("file", data).sections()
    assert values.rows == {"a": 1}
    assert columns.rows.keys() == rows.keys()
    for row, expected in rows.items():
        for actual, change in zip(columns.rows[row], expected, strict=True):
            assert actual.rows == change.rows and actual.removed == change.removed
    broken = bytearray(data)
    broken[data.index(b"x" * 39) if not compressed else 20] ^= 1
    with pytest.raises(DamagedStateError, match="table 't' fails its checksum"):
        list(changelog.decode("file", bytes(broken)).sections())


def test_column_state_savepoint_is_split_by_key_group(tmp_path: Path) -> None:
    source, query = _query()
    batches = [batch_of(part, kinds_of(_INPUT)) for part in _cut(_changes(600), 50)]
    job = LocalJob(collecting(query, [(source, batches)], 2)[0], epoch_sizes=lambda: 1)
    for _ in range(5):
        job.run_epoch()
    save_savepoint(job, tmp_path)
    seen: set[int] = set()
    for path in tmp_path.rglob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            if row["kind"] == "columns":
                changes = pickle.loads(row["pickled_value"])
                groups = {int(g) for c in changes for g in groups_of(c.rows.column(0).to_numpy(), 128)}
                assert groups == {row["key_group"]}
                seen |= groups
    assert len(seen) > 20


def test_column_state_of_another_query_is_rejected() -> None:
    kinds = kinds_of(_INPUT)
    before = Bare(GroupAggregateOperator([0], [AggregateCall("SUM", (2,), _BIGINT)], kinds))
    before.take(batch_of([("+I", "a", 1, 1)], kinds))
    name = before.state.write_delta(1, "a")
    for other in (
        GroupAggregateOperator([0], [AggregateCall("COUNT", (), _BIGINT)], kinds),
        GroupAggregateOperator([1], [AggregateCall("SUM", (2,), _BIGINT)], kinds),
    ):
        after = Bare(other, storage=before.storage)
        with pytest.raises(InvalidProgramError, match="The query has changed: this operator's state has the columns"):
            after.state._reload(name, None)


_objects = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.one_of(st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.text(), st.floats(allow_nan=False))),
)


@hypothesis.given(_objects, _objects, st.integers(0, 3))
@hypothesis.settings(max_examples=60, deadline=None)
def test_object_column_round_trips(first: list[Any], second: list[Any], start: int) -> None:
    state_column = StateColumn("a0", object)
    parts = []
    for values in (first, second):
        column = np.empty(len(values), object)
        column[:] = values
        parts.append(written(state_column, column))
    whole = pa.concat_arrays(parts).slice(start)
    for column, expected in ((parts[0], first), (parts[1], second), (whole, [*first, *second][start:])):
        actual = read(state_column, column).tolist()
        assert actual == expected and list(map(type, actual)) == list(map(type, expected))


def test_object_column_reads_pickled_ints() -> None:
    """In the format of earlier versions."""
    column = pa.array([pickle.dumps(n, 5) for n in (0, -1, 2**31, 2**70)], pa.binary())
    assert read(StateColumn("a0", object), column).tolist() == [0, -1, 2**31, 2**70]
    assert len(written(StateColumn("a0", object), np.array([1, 2**31, -5], object))[1].as_py()) == 9


# --- pending input

_CLOCK = ManualClock()


class _Slow(GroupAggregateOperator):
    """Takes a quarter of a slice per batch."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        _CLOCK.advance(50)
        return super().process(batch)


def _slow_program(batches: list[Batch], parallelism: int) -> tuple[StreamExecutionEnvironment, CollectSink]:
    config = Configuration.from_dict({"millstream.epoch.slice": "200 ms"})
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    program = builder_of(env).program
    source = program.add("batches", ScanOperator(TestingSource(batches, 100)), parallelism=1)
    counts = _Slow((0,), [AggregateCall("COUNT", (), _BIGINT)], kinds_of(_INPUT), retracts=True)
    slow = program.add("slow", counts, [UpstreamEdge(source, ColumnKeyPartitioner((0,)))])
    sink = CollectSink()
    out = program.add("sink", TableSinkOperator(sink), [UpstreamEdge(slow, GlobalPartitioner())], parallelism=1)
    source.uid, slow.uid, out.uid = "source", "slow", "sink"
    builder_of(env).add_sink(out)
    return env, sink


@pytest.mark.parametrize("after", [1, 3])
def test_pending_batches_are_split_on_rescaling(after: int) -> None:
    _CLOCK.set(0)
    rows = _changes(300)
    batches = [batch_of(part, kinds_of(_INPUT)) for part in _cut(rows, 20)]
    env, sink = _slow_program(batches, 1)
    LocalJob(env, _CLOCK).run()
    expected = final(changes_of(sink.results()))
    env, sink = _slow_program(batches, 2)
    job = LocalJob(env, _CLOCK)
    job.run_epoch()
    snapshot, results_before = job.snapshot(), changes_of(sink.results())
    decoded = [decode(data) for data in job.execution._runtime_snapshots.values()]
    assert any(one.pending_blocks for one in decoded), "the test requires pending blocks"
    env, sink = _slow_program(batches, after)
    LocalJob(env, _CLOCK, snapshot=snapshot, storage=job.storage).run()
    assert final([*results_before, *changes_of(sink.results())]) == expected
