"""Changes of one key keep their order from source to sink, at any parallelism."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.common import Row, RowKind
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.stream_graph import StreamGraph
from millstream.sql.errors import ValidationException
from millstream.table import ChangelogMode, StreamTableEnvironment
from millstream.testing import CollectSink, LocalJob, ValuesTable
from tests.sql.order import QUERIES, SINKS, SOURCES, check

_KEYED = "id BIGINT, g BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED"
_TOP = (
    "SELECT id, g, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC, id) AS rn FROM t) WHERE rn <= 2"
)


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_changelog_final_rows_match_sqlite_with_several_subtasks(number: int) -> None:
    name = list(QUERIES)[number]
    check(name, SOURCES[number % len(SOURCES)], "upsert", 2 + number % 3, number)
    check(name, SOURCES[(number + 3) % len(SOURCES)], SINKS[number % len(SINKS)], 3, number)


def _tables(parallelism: int = 2, **settings: str) -> tuple[StreamExecutionEnvironment, StreamTableEnvironment]:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    t_env = StreamTableEnvironment.create(env)
    for key, value in settings.items():
        t_env.get_config().set(f"table.exec.sink.{key.replace('_', '-')}", value)
    for name in ("t", "u"):
        changes = ValuesTable([Row(1, 1, 1)], ChangelogMode.all()).options
        t_env.execute_sql(f"CREATE TABLE {name} ({_KEYED}) WITH {changes}")
    options = ValuesTable((), ChangelogMode.upsert()).options
    t_env.execute_sql(f"CREATE TABLE o ({_KEYED}) WITH {options}")
    return env, t_env


def _partitionings(env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, insert: str) -> dict[str, list[str]]:
    """Return the input partitioning of each operator."""
    t_env.create_statement_set().add_insert_sql(insert).attach_as_datastream()
    graph: StreamGraph = builder_of(env).stream_graph(None, builder_of(env).sinks)
    return {n.name.split("(")[0]: [e.partitioner.name for e in n.in_edges] for n in graph.nodes if n.in_edges}


def test_union_all_preserves_key_order_with_single_subtask_input() -> None:
    partitionings = _partitionings(
        *_tables(), "INSERT INTO o SELECT id, g, v + 1 FROM (SELECT * FROM t UNION ALL SELECT * FROM u) AS x"
    )
    assert partitionings["Calc"] == ["HASH", "HASH"]
    counts = "SELECT COUNT(*) AS id, SUM(g) AS g, SUM(v) AS v FROM t"
    union = f"SELECT id, g, v + 1 FROM ({counts} UNION ALL SELECT * FROM u) AS x"
    # A global aggregate has a single row without a key, so its exchange has one channel.
    assert "ORDERED" in _partitionings(*_tables(), f"INSERT INTO o {union}")["Calc"]


@pytest.mark.parametrize(("mode", "partitioning"), [("AUTO", "FORWARD"), ("FORCE", "HASH"), ("NONE", "FORWARD")])
def test_sink_keyed_shuffle_follows_option(mode: str, partitioning: str) -> None:
    query = "INSERT INTO o SELECT g, COUNT(*), SUM(v) FROM t GROUP BY g"
    assert _partitionings(*_tables(keyed_shuffle=mode), query)["Sink"] == [partitioning]


def test_explain_shows_materializer_when_primary_key_order_is_lost() -> None:
    _, t_env = _tables()
    lost = [
        _TOP,
        "SELECT id, g, v FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g)",
        "SELECT * FROM t UNION ALL SELECT * FROM u",
        "SELECT t.id, t.g, u.v FROM t LEFT JOIN u ON t.g = u.id",
    ]
    retained = [
        "SELECT * FROM t",
        "SELECT g, COUNT(*), SUM(v) FROM t GROUP BY g",
        "SELECT t.id, t.g, u.v FROM t LEFT JOIN u ON t.id = u.id",
        "SELECT g, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v) AS rn FROM t) WHERE rn = 1",
    ]
    for query in lost:
        assert "upsertMaterialize=[true]" in t_env.explain_sql(f"INSERT INTO o {query}"), query
    for query in retained:
        assert "upsertMaterialize" not in t_env.explain_sql(f"INSERT INTO o {query}"), query


def _write_log(directory: Path, files: int, changes: int) -> Counter[int]:
    """Write updates of players who change teams; return the final number of players per team."""
    r, lines = Random(0), []
    teams: dict[int, int] = {}
    for _ in range(changes):
        player = r.randrange(5)
        row = {"player": player, "team": r.randrange(12)}
        before = None if player not in teams else {"player": player, "team": teams[player]}
        lines.append(json.dumps({"before": before, "after": row, "op": "u" if before else "c", "pad": "x" * 400}))
        teams[player] = row["team"]
    for n in range(files):
        part = lines[changes * n // files : changes * (n + 1) // files]
        (directory / f"log-{n}.json").write_text("".join(f"{line}\n" for line in part))
    return Counter(teams.values())


@pytest.mark.parametrize("files", [1, 12])
def test_filesystem_source_reads_changelog_in_order_at_parallelism_2(files: int, tmp_path: Path) -> None:
    expected = _write_log(tmp_path, files, 8400)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    t_env = StreamTableEnvironment.create(env)
    with_ = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'debezium-json'"
    t_env.execute_sql(f"CREATE TABLE log (player INT, team INT) {with_})")
    sink = CollectSink()
    query = "SELECT team, COUNT(*) FROM log GROUP BY team"
    t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(sink).set_parallelism(1)
    LocalJob(env, epoch_sizes=lambda: 10_000).run()
    left: dict[Any, Any] = {}
    for row in sink.results():
        if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            left[row[0]] = row[1]
        elif row.get_row_kind() is RowKind.DELETE:
            del left[row[0]]
    assert left == expected
    t_env.execute_sql(f"CREATE TABLE split (player INT, team INT) {with_}, 'scan.parallelism' = '2')")
    with pytest.raises(
        ValidationException, match="'scan.parallelism' = '2' is not supported for files of debezium-json"
    ):
        t_env.to_changelog_stream(t_env.sql_query("SELECT * FROM split"))


_UPSERTS = [(2, 1, 1), (2, 1, 5), (2, 1, 6), (2, 1, 2), (3, 1, 2), (2, 2, 7), (3, 2, 7), (2, 3, 9)]


@pytest.mark.parametrize("batch_rows", [1, 100])
@pytest.mark.parametrize(
    ("condition", "plan"),
    [
        ("v > 3", "ChangelogNormalize(key=[id], condition=[>(v, 3)])"),
        ("v > 3 AND id < 3", "Calc(select=[id, v], where=[<(id, 3)])"),
    ],
)
def test_filter_on_upsert_source_emits_changes_of_matching_rows(condition: str, plan: str, batch_rows: int) -> None:
    # As Flink 2.3 does.
    expected = ["+I(1, 5)", "-U(1, 5)", "+U(1, 6)", "-D(1, 6)", "+I(2, 7)", "-D(2, 7)", "+I(3, 9)"]
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    rows = [Row(*values) for _, *values in _UPSERTS]
    for row, (kind, *_) in zip(rows, _UPSERTS, strict=True):
        row.set_row_kind(RowKind(kind))
    options = ValuesTable(rows, ChangelogMode.upsert(), batch_rows=batch_rows).options
    t_env.execute_sql(f"CREATE TABLE s (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH {options}")
    query, sink = f"SELECT * FROM s WHERE {condition}", CollectSink()
    assert plan in t_env.explain_sql(query)
    t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(sink)
    LocalJob(env).run()
    assert [f"{row.get_row_kind()}{tuple(row)}" for row in sink.results()] == expected[: 7 - condition.count("id")]


def test_filters_on_upsert_source_share_changelog_normalize() -> None:
    _, t_env = _tables()
    options = ValuesTable([Row(1, 1, 1)], ChangelogMode.upsert()).options
    t_env.execute_sql(f"CREATE TABLE s ({_KEYED}) WITH {options}")
    plan = t_env.explain_sql("SELECT * FROM s WHERE v > 3 UNION ALL SELECT * FROM s WHERE v < 2")
    assert "condition" not in plan.partition("== Optimized Physical Plan ==")[2]
    assert "ChangelogNormalize(key=[id])(reuse_id=[1])" in plan


def test_changelog_stream_preserves_order_after_single_subtask() -> None:
    env, t_env = _tables()
    t_env.to_changelog_stream(t_env.sql_query("SELECT COUNT(*) FROM t")).map(lambda row: row).print()
    graph = builder_of(env).stream_graph(None, builder_of(env).sinks)
    assert [e.partitioner.name for node in graph.nodes for e in node.in_edges if node.name == "Map"] == ["ORDERED"]
