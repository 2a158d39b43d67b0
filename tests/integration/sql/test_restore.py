"""Restoring a query from a savepoint: state is matched by plan, and a changed query is rejected with the difference."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.sql_state_diff import mismatch_reason
from millstream.checkpoint.sql_state_rows import column_rows, names_of
from millstream.cli.main import cli
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.sql.operators.base import KeyedBatchOperator
from millstream.state.column_table import RowChange
from millstream.table import EnvironmentSettings, TableEnvironment
from tests.support import two_queries
from tests.support.helpers import job_of

COUNTS = "INSERT INTO s SELECT k, COUNT(*) FROM a GROUP BY k"
MAXIMA = "INSERT INTO t SELECT k, MAX(n) FROM a GROUP BY k"


def started(folder: Path, statements: list[str], path: str | None = None, **settings: str) -> Any:
    """Start statements as one job, optionally from a savepoint; return its handle."""
    config = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1", **settings}
    if path is not None:
        config["execution.state-recovery.path"] = path
    t_env = TableEnvironment.create(
        EnvironmentSettings.new_instance().with_configuration(Configuration.from_dict(config)).build()
    )
    t_env.execute_sql(
        "CREATE TABLE a (n BIGINT, k AS n % 10) WITH ('connector'='datagen', 'rows-per-second'='2000', "
        "'fields.n.kind'='sequence', 'fields.n.start'='1', 'fields.n.end'='100000000')"
    )
    for name in ("s", "t"):
        t_env.execute_sql(f"CREATE TABLE {name} (k BIGINT, c BIGINT) WITH ('connector'='blackhole')")
    statement_set = t_env.create_statement_set()
    for statement in statements:
        statement_set.add_insert_sql(statement)
    return statement_set.execute().get_job_client()


def saved(folder: Path, client: Any, min_records: int = 1) -> str:
    """Stop a job with a savepoint, after it has read some rows of each source."""
    job = job_of(client)
    end = time.monotonic() + 60
    while _read(job) < min_records:
        assert time.monotonic() < end
        time.sleep(0.02)
    return str(client.stop_with_savepoint(False, str(folder)).result())


def _read(job: Any) -> int:
    """Return the number of batches processed by the slowest vertex after a source."""
    vertices = [v for v in job.view.plan.vertices if not v.is_source]
    progress = [job.view.progress.subtasks.get((v.id, 0)) for v in vertices]
    return min((0 if one is None else one.records_in for one in progress), default=0)


def state(path: str, operator: str) -> list[tuple[Any, ...]]:
    """Return the state rows of the operator whose name has this prefix."""
    inspection = Inspection.open(path)
    (matching,) = [o for o in inspection.operators() if o.name.startswith(operator)]
    return [(*(r.key or ()), *r.value) for s in matching.states for r in inspection.rows(matching, s)]


def position(path: str, index: int = 0) -> int:
    return int(Inspection.open(path).sources()[index].position)


def test_sql_restore_with_an_added_statement_keeps_state(tmp_path: Path) -> None:
    first = saved(tmp_path, started(tmp_path, [COUNTS]))
    counts = state(first, "GroupAggregate")
    assert len(counts) == min(10, position(first)) and sum(c for _, c in counts) == position(first) > 0
    both = saved(tmp_path, started(tmp_path, [COUNTS, MAXIMA], first))
    # Every record is counted exactly once.
    again = state(both, "GroupAggregate(groupBy=[k], select=[k, COUNT(*)")
    read = [s.position for s in Inspection.open(both).sources()]
    assert sum(c for _, c in again) in read and max(read) > position(first)
    assert state(both, "GroupAggregate(groupBy=[k], select=[k, MAX(n)")


def test_sql_restore_matches_state_of_identical_queries(tmp_path: Path) -> None:
    settings = Configuration.from_dict({"millstream.engine": "local", "millstream.quiet": "true"})
    first = saved(tmp_path, two_queries.started(settings))
    before = two_queries.counted(first)
    one, two = before
    assert two == f"{one}-1" and before[one] == before[two] > 0
    settings.set_string("execution.state-recovery.path", first)
    after = two_queries.counted(saved(tmp_path, two_queries.started(settings)))
    assert list(after) == [one, two] and after[one] == after[two] > before[one]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "INSERT INTO s SELECT k, SUM(n) FROM a GROUP BY k",
            "select was [k, COUNT(*) AS EXPR$1] and is [k, SUM(n) AS EXPR$1]",
        ),
        ("INSERT INTO s SELECT k, n FROM a", "the query has no GroupAggregate of this kind"),
        ("INSERT INTO s SELECT k, COUNT(*) FROM a WHERE n > 5 GROUP BY k", "its input has changed: of "),
    ],
)
def test_sql_restore_of_a_changed_query_names_the_difference(tmp_path: Path, statement: str, reason: str) -> None:
    path = saved(tmp_path, started(tmp_path, [COUNTS]))
    with pytest.raises(InvalidProgramError) as refused:
        started(tmp_path, [statement], path)
    message = str(refused.value)
    assert message.startswith("The query has changed, and some of its state cannot be restored:\n")
    assert f"GroupAggregate(groupBy=[k], select=[k, COUNT(*) AS EXPR$1]): {reason}" in message, message
    # It runs if non-restored state is allowed.
    allowed = {"execution.state-recovery.ignore-unclaimed-state": "true"}
    started(tmp_path, [statement], path, **allowed).cancel().result()


def test_sql_restore_rejects_an_unknown_state_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, started(tmp_path, [COUNTS]))
    state_table = KeyedBatchOperator.state_table
    monkeypatch.setattr(
        KeyedBatchOperator, "state_table", lambda self, name, columns: state_table(self, f"new {name}", columns)
    )
    client = started(tmp_path, [COUNTS], path)
    with pytest.raises(MillstreamError, match="written by another version of millstream, that this one does not read"):
        client.get_job_execution_result().result(60)


def test_state_command_shows_sql_tables(tmp_path: Path) -> None:
    join = "INSERT INTO s SELECT a.n, c.c FROM a JOIN (SELECT k, COUNT(*) AS c FROM a GROUP BY k) AS c ON a.n = c.c"
    path = saved(tmp_path / "s", started(tmp_path, [join]))
    shown = CliRunner().invoke(cli, ["state", "show", path, "-n", "0"], catch_exceptions=False).output
    tables = {part.split(" / ")[1].split(" ")[0]: part.splitlines()[1:] for part in _parts(shown)}
    assert tables["groups"][0].split() == ["k", "COUNT(*)"]
    assert tables["left"][0].split() == ["n"] and tables["right"][0].split() == ["c"]
    counts = {int(c) for _, c in map(str.split, tables["groups"][1:])}
    # The right side contains each current count, and no retracted one.
    assert {int(c) for c in tables["right"][1:]} == counts and len(tables["right"]) == len(tables["groups"])
    listed = json.loads(CliRunner().invoke(cli, ["state", "ls", path, "--json"], catch_exceptions=False).output)
    rows = {s["name"]: s["rows"] for o in listed["operators"] for s in o["states"]}
    assert rows["groups"] == rows["right"] == len(tables["groups"]) - 1 and rows["left"] == len(tables["left"]) - 1


def test_state_command_shows_object_accumulators(tmp_path: Path) -> None:
    total = "CAST(SUM(CAST(k AS DECIMAL(10, 2))) AS BIGINT)"
    statement = f"INSERT INTO s SELECT k, {total} FROM a GROUP BY k HAVING LISTAGG(CAST(k AS STRING)) <> ''"
    path = saved(tmp_path / "s", started(tmp_path, [statement]))
    inspection = Inspection.open(path)
    (operator,) = (o for o in inspection.operators() if o.name.startswith("GroupAggregate"))
    rows = {row.key[0]: list(row.value) for row in inspection.rows(operator, operator.states[0])}
    # A decimal sum is stored as an unscaled int, LISTAGG as a separator and a list of texts.
    total_value, count, (mark, texts) = rows[1]
    assert total_value == 100 * count and mark == "," and texts == ["1"] * count


def _parts(shown: str) -> list[str]:
    parts: list[str] = []
    for line in shown.splitlines():
        if not line.startswith(" "):
            parts.append("")
        parts[-1] += f"{line}\n"
    return parts


# --- without jobs


def changed(keys: list[int], values: list[int], removed_keys: list[int] | None = None) -> RowChange:
    def batch(**columns: list[int]) -> pa.RecordBatch:
        return pa.record_batch({name: pa.array(c, pa.int64()) for name, c in columns.items()})

    removed = None if removed_keys is None else batch(hash=removed_keys, order=removed_keys, k0=removed_keys)
    return RowChange(batch(hash=keys, order=keys, k0=keys, a0=values), removed)


def test_sql_state_rows_apply_changes_in_order() -> None:
    changes = [
        changed([1, 2, 3], [10, 20, 30]),
        changed([2], [21], removed_keys=[3]),
        changed([3], [31], removed_keys=[1]),
    ]
    rows = [(r.key, r.value) for _, r in column_rows(changes, {"k0": "key", "a0": "COUNT(*)"})]
    assert [(k.as_dict(), v.as_dict()) for k, v in rows] == [
        ({"key": 2}, {"COUNT(*)": 21}),
        ({"key": 3}, {"COUNT(*)": 31}),
    ]


def test_sql_state_columns_have_the_names_of_the_query() -> None:
    over = "OverAggregate(partitionBy=[k], orderBy=[ts ASC], select=[n, k, ts, SUM(n) AS w0$o0])"
    assert names_of(over, "waiting", ["c0", "c1", "c2"]) == {"c0": "n", "c1": "k", "c2": "ts"}
    several = "GroupAggregate(groupBy=[a, b], select=[a, b, MAX(DISTINCT c, f(d)) AS m])"
    columns = ["k0", "k1", "a0.value", "a0.is"]
    assert names_of(several, "groups", columns) == {
        "k0": "a", "k1": "b", "a0.value": "MAX(DISTINCT c, f(d))", "a0.is": "MAX(DISTINCT c, f(d)).is",
    }  # fmt: skip
    # Ambiguous names and names of absent columns are not used.
    assert names_of("Join(select=[id, id])", "left", ["c0", "c1"]) == {}
    assert names_of("Sink(table=[t])", "rows", ["c0"]) == {}


def test_sql_restore_error_compares_the_nearest_operator() -> None:
    now = ["Rank(by=[b], select=[x])", "Rank(by=[a], select=[z])", "Calc(select=[a])"]
    assert mismatch_reason("Rank(by=[a], select=[y])", [], now) == "select was [y] and is [z]"
    assert mismatch_reason("Rank(by=[a])", [], ["Rank(by=[a], limit=[3])"]) == "limit is new: [3]"
