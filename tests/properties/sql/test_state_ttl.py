"""State TTL expires state when Apache Flink does (`tests/sql/state_ttl.py`), with a test clock."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from millstream.common import Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.sql.columns.keyed_columns import TtlIndex
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import LocalJob
from tests.sql.state_ttl import COLUMNS, EACH, QUERIES, RECORDED, ROWS, changes_by_query, declare

_FLINKS: dict[str, list[str]] = json.loads(RECORDED.read_text())


def _declare_numbers(env: StreamExecutionEnvironment, t_env: StreamTableEnvironment) -> None:
    numbers = env.from_collection(
        [Row(i + 1) for i in range(len(ROWS) * EACH)], Types.ROW_NAMED(["id"], [Types.LONG()])
    )
    schema = Schema.new_builder().column("id", "BIGINT")
    for name, definition in COLUMNS.items():
        schema.column_by_expression(name, definition)
    t_env.create_temporary_view("ids", t_env.from_data_stream(numbers, schema.watermark("ts", "ts").build()))


@pytest.fixture(scope="module", params=["at one go", "with restarts"])
def results(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """The changes of all queries; each epoch is a second."""
    env = StreamExecutionEnvironment.get_execution_environment()
    t_env = StreamTableEnvironment.create(env)
    _declare_numbers(env, t_env)
    declare(t_env).attach_as_datastream()
    now, out = [0], io.StringIO()
    job = LocalJob(env, clock=lambda: now[0], epoch_sizes=lambda: 1)
    with contextlib.redirect_stdout(out):
        while not job.is_finished:
            now[0] += 1000
            job.run_epoch()
            if request.param == "with restarts":
                job.restart_slots()
    return changes_by_query(out.getvalue().splitlines())


def _left(changes: list[str]) -> Counter[str]:
    rows = Counter[str]()
    for change in changes:
        rows[change[2:]] += 1 if change[:2] in ("+I", "+U") else -1
    return rows


# In a Top-N of inserts, Flink expires each row separately, and retracts rows that it never emitted. In Millstream the
# rows of a partition are retained while input for it arrives, and expire together.
_TOP = {
    "top": "+I[a, 1, 1] +I[b, 5, 1] -U[a, 1, 1] +U[a, 3, 1] +I[a, 1, 2] +I[b, 4, 2] -U[a, 1, 2] +U[a, 2, 2] "
    "-U[b, 5, 1] +U[b, 7, 1] -U[b, 4, 2] +U[b, 5, 2] -U[b, 7, 1] +U[b, 8, 1] -U[b, 5, 2] +U[b, 7, 2] -U[b, 8, 1] "
    "+U[b, 9, 1] -U[b, 7, 2] +U[b, 8, 2] +I[a, 6, 1] +I[a, 4, 2] +I[b, 5, 1] +I[b, 1, 2]",
    "top_unranked": "+I[a, 1] +I[b, 5] +I[a, 3] +I[b, 4] -D[a, 1] +I[a, 2] -D[b, 4] +I[b, 7] -D[b, 5] +I[b, 8] "
    "-D[b, 7] +I[b, 9] +I[a, 6] +I[a, 4] +I[b, 5] +I[b, 1]",
    "first_of_all": "+I[a, 1] +I[b, 5] -D[b, 5] +I[a, 3] -D[a, 3] +I[a, 2] +I[b, 5] +I[b, 1]",
}
# Flink counts rows of these with other semantics: only the final rows are compared.
_COUNTED = ("intersect_all", "except_all")


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in (*_TOP, *_COUNTED, "top_one")])
def test_state_ttl_changelog_matches_recorded_flink(name: str, results: dict[str, list[str]]) -> None:
    # The pairs of one row in an interval join have no defined order.
    in_order = sorted if name == "interval_join" else list
    assert in_order(results[name]) == in_order(_FLINKS[name])


@pytest.mark.parametrize("name", _COUNTED)
def test_state_ttl_final_rows_match_recorded_flink(name: str, results: dict[str, list[str]]) -> None:
    assert _left(results[name]) == _left(_FLINKS[name])


def test_state_ttl_top_one_matches_recorded_flink(results: dict[str, list[str]]) -> None:
    """Flink emits only the new rows of this query to a `print` table."""
    assert [c for c in results["top_one"] if c[:2] != "-U"] == _FLINKS["top_one"]


@pytest.mark.parametrize("name", _TOP)
def test_state_ttl_top_n_partition_expires_together(name: str, results: dict[str, list[str]]) -> None:
    assert " ".join(results[name]) == _TOP[name]


def test_ttl_index_equals_full_scan() -> None:
    for seed in range(40):
        rng, index, now = np.random.default_rng(seed), TtlIndex(), 0
        touched, live = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        for _ in range(60):
            now += int(rng.integers(1, 2500))
            last = now - 6000
            expired = index.expired(last, touched, live)
            assert expired.tolist() == np.flatnonzero(live & (touched <= last)).tolist()
            # The others remain for a later step.
            is_removed = rng.random(len(expired)) < 0.8
            live[expired[is_removed]] = False
            index.add(expired[~is_removed], touched)
            touched[live & (rng.random(len(live)) < 0.2)] = now
            new = int(rng.integers(0, 9))
            touched, live = np.append(touched, np.full(new, now)), np.append(live, np.ones(new, np.bool_))


class _Counted(np.ndarray):
    """Counts the values that a scan reads."""

    n_reads = 0

    def __getitem__(self, indices: Any) -> Any:
        _Counted.n_reads += np.size(indices) if isinstance(indices, np.ndarray) else 1
        return super().__getitem__(indices)


def test_ttl_index_does_not_scan_rows_before_expiry() -> None:
    """In a thousand batches each row lives for half: it is checked a few times, not with each batch."""
    index, batches, each = TtlIndex(), 1000, 10
    touched = (np.arange(batches * each) // each * 1024).astype(np.int64)
    live = np.ones(len(touched), np.bool_)
    for batch in range(1, batches):
        now = batch * 1024
        counted = touched[: batch * each].view(_Counted)
        expired = index.expired(now - batches // 2 * 1024, counted, live[: batch * each])
        live[np.asarray(expired)] = False
    assert len(touched) < _Counted.n_reads < 10 * len(touched)
