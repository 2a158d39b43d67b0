"""The first row of an order over updating rows."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.sql.operators.rank.deduplicate import TopOneOperator
from millstream.sql.operators.rank.top_n import TopNOperator
from millstream.table import StreamTableEnvironment
from millstream.testing import CollectSink, LocalJob, ValuesTable
from tests.support.sql_runs import Bare, batch_of, final

_ROWS = [(1, None), (1, None), (2, 5), (1, 3), (1, 3), (2, 7)]


def _left(query: str, batch_rows: int) -> list[tuple[Any, ...]]:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    t_env.execute_sql(f"CREATE TABLE s (k BIGINT, v BIGINT) WITH {ValuesTable(_ROWS, batch_rows=batch_rows).options}")
    sink = CollectSink()
    t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(sink).set_parallelism(1)
    LocalJob(env).run()
    return final((str(row.get_row_kind()), *row) for row in sink.results())


@pytest.mark.parametrize("batch_rows", [1, 100])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k, COUNT(*) FROM s GROUP BY k ORDER BY k LIMIT 1", (1, 4)),
        ("SELECT k, COUNT(*) FROM s GROUP BY k ORDER BY k DESC LIMIT 1", (2, 2)),
        ("SELECT k, COUNT(*) FROM s GROUP BY k HAVING COUNT(*) > 1 ORDER BY k LIMIT 1", (1, 4)),
        (
            "SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY k) AS rn FROM (SELECT k, COUNT(*) AS n FROM s "
            "GROUP BY k)) WHERE rn = 1",
            (1, 4),
        ),
        # A group without a value is first, and moves back with its first value.
        ("SELECT k, MIN(v) AS m FROM s GROUP BY k ORDER BY m LIMIT 1", (1, 3)),
        ("SELECT k, MAX(v) AS m FROM s GROUP BY k ORDER BY m DESC NULLS FIRST LIMIT 1", (2, 7)),
    ],
)
def test_top_one_keeps_updates_of_an_aggregate(query: str, expected: tuple[Any, ...], batch_rows: int) -> None:
    assert _left(query, batch_rows) == [expected]


@pytest.mark.parametrize("seed", range(10))
def test_top_one_operator_emits_as_top_n_for_upserts(seed: int) -> None:
    r, kinds = Random(seed), [pa.int64(), pa.string(), pa.int64(), pa.int64()]
    order, unique = [(2, False, False)], [0, 1]
    one = Bare(TopOneOperator([0], order, kinds, unique=unique))
    many = Bare(TopNOperator([0], order, kinds, 1, 1, False, unique=unique))
    best: dict[tuple[int, str], int] = {}
    outputs: list[list[Any]] = [[], []]
    for number in range(40):
        rows = []
        for _ in range(r.randrange(1, 12)):
            key = (r.randrange(3), r.choice("abc"))
            # A row never moves back.
            best[key] = best.get(key, 4) - (r.random() < 0.3)
            rows.append(("+U", *key, best[key], number))
        for bare, changes in zip((one, many), outputs, strict=True):
            bare.take(batch_of(rows, kinds))
            changes += bare.changes()
            # The two may represent updates by equal rows and replacements differently.
            assert len(final(changes)) <= 3
        assert final(outputs[0]) == final(outputs[1])
