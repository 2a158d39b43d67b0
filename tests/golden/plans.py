"""Queries whose plans contain every plan record, and their first compiled plans: python -m tests.golden.plans"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from millstream.common import Row
from millstream.table import DataTypes, EnvironmentSettings, Schema, Table, TableDescriptor, TableEnvironment
from millstream.table.expressions import call, col
from millstream.table.udf import ScalarFunction, TableAggregateFunction, TableFunction, udf, udtaf, udtf

FILE = Path(__file__).parent / "v3" / "plans.json.gz"
# These have no compiled plans: rows from the program itself, and nodes that rules replace.
NOT_COMPILED = {"stream-scan", "to-stream", "collect", "project", "filter"}

_TABLES = (
    "CREATE TABLE src (id INT, v BIGINT, d DECIMAL(10, 2), s STRING, b BYTES, ts TIMESTAMP(3), "
    "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND, p AS PROCTIME()) WITH ('connector' = 'datagen')",
    "CREATE TABLE changes (id INT PRIMARY KEY NOT ENFORCED, v BIGINT, ts TIMESTAMP(3), "
    "WATERMARK FOR ts AS ts) WITH ('connector' = 'upsert-kafka', 'topic' = 't', "
    "'properties.bootstrap.servers' = 'localhost:1', 'key.format' = 'json', 'value.format' = 'json')",
    "CREATE TABLE dim (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) "
    "WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/tmp/none.db', 'table-name' = 'dim')",
    "CREATE TABLE ops (op STRING, id INT, v BIGINT) WITH ('connector' = 'datagen')",
)
_WINDOW = "TABLE(TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
# Name, query, settings.
QUERIES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("calc", "SELECT id, UPPER(s) || 'x' AS s, d * 2.5 AS d FROM src WHERE v > 5 AND id IN (1, 2)", {}),
    ("bytes", "SELECT id FROM src WHERE b = X'00ff'", {}),
    ("values", "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS t (a, b)", {}),
    ("aggregate", "SELECT id, COUNT(*), SUM(DISTINCT v) FILTER (WHERE d > 1) FROM src GROUP BY id", {}),
    ("expand", "SELECT id, s, COUNT(*) FROM src GROUP BY GROUPING SETS ((id), (s), ())", {}),
    (
        "mini-batch",
        "SELECT id, SUM(v) FROM src GROUP BY id",
        {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "10",
        },
    ),
    ("window", f"SELECT window_start, id, COUNT(*) FROM {_WINDOW} GROUP BY window_start, window_end, id", {}),
    (
        "window-one-phase",
        f"SELECT window_start, id, COUNT(*) FROM {_WINDOW} GROUP BY window_start, window_end, id",
        {"table.optimizer.agg-phase-strategy": "ONE_PHASE"},
    ),
    (
        "early-fire",
        "SELECT id, TUMBLE_START(ts, INTERVAL '5' SECOND), COUNT(*) FROM src "
        "GROUP BY id, TUMBLE(ts, INTERVAL '5' SECOND)",
        {"table.exec.emit.early-fire.enabled": "true", "table.exec.emit.early-fire.delay": "0 s"},
    ),
    (
        "periodic-fire",
        "SELECT id, TUMBLE_START(ts, INTERVAL '5' SECOND), COUNT(*) FROM src "
        "GROUP BY id, TUMBLE(ts, INTERVAL '5' SECOND)",
        {"table.exec.emit.early-fire.enabled": "true", "table.exec.emit.early-fire.delay": "1 s"},
    ),
    ("window-table", f"SELECT id, window_start, window_end FROM {_WINDOW}", {}),
    (
        "over",
        "SELECT id, SUM(v) OVER (PARTITION BY id ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM src",
        {},
    ),
    (
        "rank",
        "SELECT id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY v DESC) AS n FROM src) WHERE n <= 3",
        {},
    ),
    (
        "window-rank",
        "SELECT id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n "
        f"FROM {_WINDOW}) WHERE n <= 3",
        {},
    ),
    (
        "deduplicate",
        "SELECT id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts) AS n FROM src) WHERE n = 1",
        {},
    ),
    (
        "match",
        "SELECT * FROM src MATCH_RECOGNIZE (PARTITION BY id ORDER BY ts MEASURES LAST(A.v) AS v, SUM(B.v) AS w "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B{1,3} C) DEFINE A AS v > 1, B AS v > LAST(A.v)) AS m",
        {},
    ),
    ("join", "SELECT a.id, c.v FROM src a LEFT JOIN changes c ON a.id = c.id AND a.v > c.v", {}),
    (
        "window-join",
        f"SELECT l.id FROM (SELECT * FROM {_WINDOW}) l JOIN (SELECT * FROM {_WINDOW}) r "
        "ON l.id = r.id AND l.window_start = r.window_start AND l.window_end = r.window_end",
        {},
    ),
    (
        "interval-join",
        "SELECT a.id FROM src a, src b WHERE a.id = b.id AND a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts",
        {},
    ),
    ("temporal-join", "SELECT a.id, c.v FROM src a JOIN changes FOR SYSTEM_TIME AS OF a.ts AS c ON a.id = c.id", {}),
    (
        "lookup-join",
        "SELECT /*+ LOOKUP('table'='d', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', "
        "'fixed-delay'='1 s', 'max-attempts'='3') */ a.id, d.name FROM src a "
        "JOIN dim FOR SYSTEM_TIME AS OF a.p AS d ON a.id = d.id",
        {},
    ),
    (
        "materialized-lookup-join",
        "SELECT c.id, c.n, d.name FROM (SELECT id, COUNT(*) AS n, PROCTIME() AS p FROM src GROUP BY id) c "
        "JOIN dim FOR SYSTEM_TIME AS OF c.p AS d ON c.id = d.id",
        {"table.optimizer.non-deterministic-update.strategy": "TRY_RESOLVE"},
    ),
    (
        "distinct-split",
        "SELECT id, COUNT(DISTINCT v) FROM src GROUP BY id",
        {
            "table.optimizer.distinct-agg.split.enabled": "true",
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "10",
        },
    ),
    ("union", "SELECT id FROM src UNION ALL SELECT id FROM changes", {}),
    ("set-operation", "SELECT id FROM src INTERSECT SELECT id FROM changes", {}),
    ("sort", "SELECT id, v FROM src ORDER BY v DESC LIMIT 3", {}),
    ("correlate", "SELECT id, w FROM src, LATERAL TABLE(words(s)) AS t (w)", {}),
    ("user-call", "SELECT plus_one(id) FROM src", {}),
    ("to-changelog", "SELECT * FROM TO_CHANGELOG(input => TABLE changes)", {}),
    ("from-changelog", "SELECT * FROM FROM_CHANGELOG(input => TABLE ops)", {}),
)


class PlusOne(ScalarFunction):
    def eval(self, n):  # type: ignore[no-untyped-def]
        return n + 1


class Words(TableFunction):
    def eval(self, text):  # type: ignore[no-untyped-def]
        yield from text.split()


class First(TableAggregateFunction):
    def create_accumulator(self):  # type: ignore[no-untyped-def]
        return [None]

    def accumulate(self, accumulator, *args):  # type: ignore[no-untyped-def]
        accumulator[0] = args[0]

    def emit_value(self, accumulator):  # type: ignore[no-untyped-def]
        yield Row(accumulator[0])

    def get_result_type(self):  # type: ignore[no-untyped-def]
        return DataTypes.ROW([DataTypes.FIELD("first", DataTypes.BIGINT())])

    def get_accumulator_type(self):  # type: ignore[no-untyped-def]
        return DataTypes.ARRAY(DataTypes.BIGINT())


def plan_of(name: str, query: str, settings: dict[str, str]) -> tuple[TableEnvironment, str]:
    """Return the compiled plan of a query, and the environment it was compiled in."""
    t_env = environment()
    for key, value in settings.items():
        t_env.get_config().set(key, value)
    return t_env, _compiled(t_env, t_env.sql_query(query), name)


def table_aggregate_plan() -> tuple[TableEnvironment, str]:
    """Return the plan of a table aggregate, which has no SQL syntax."""
    t_env = environment()
    groups = t_env.from_path("src").group_by(col("id"))
    table = groups.flat_aggregate(call("first_of", col("v"))).select(col("id"), col("first"))
    return t_env, _compiled(t_env, table, "table-aggregate")


def _compiled(t_env: TableEnvironment, table: Table, name: str) -> str:
    schema = Schema.new_builder().from_resolved_schema(table.get_resolved_schema()).build()
    sink = f"sink_of_{name.replace('-', '_')}"
    t_env.create_temporary_table(sink, TableDescriptor.for_connector("blackhole").schema(schema).build())
    return table.insert_into(sink).compile_plan().as_json_string()


def plans() -> dict[str, tuple[TableEnvironment, str]]:
    """Return the plans of all queries by their names."""
    results = {name: plan_of(name, query, settings) for name, query, settings in QUERIES}
    return {**results, "table-aggregate": table_aggregate_plan()}


def environment() -> TableEnvironment:
    """Return an environment with all tables and functions."""
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "2").set("millstream.engine", "local")
    for statement in _TABLES:
        t_env.execute_sql(statement)
    t_env.create_temporary_system_function("plus_one", udf(PlusOne(), result_type=DataTypes.INT()))
    t_env.create_temporary_system_function("words", udtf(Words(), result_types=[DataTypes.STRING()]))
    t_env.create_temporary_system_function("first_of", udtaf(First()))
    return t_env


def main() -> None:
    """Add the plans of new queries; existing plans do not change."""
    known = json.loads(gzip.decompress(FILE.read_bytes())) if FILE.exists() else {}
    written = {name: json.loads(plan) for name, (_, plan) in plans().items()} | known
    FILE.write_bytes(gzip.compress(json.dumps(written).encode(), mtime=0))


if __name__ == "__main__":
    main()
