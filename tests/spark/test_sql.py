"""SQL on Spark: collected queries, exact files, streams and tables in one job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.gateway.operation import Operation
from millstream.gateway.session import Session
from millstream.service.registry import Registry
from millstream.table import DataTypes, EnvironmentSettings, ListView, StreamTableEnvironment
from millstream.table.udf import AggregateFunction, udaf, udf
from tests.faults import sql_job
from tests.support import two_queries
from tests.support.helpers import wait_until
from tests.support.sql_terminal import PROMPT, terminal_with

pytestmark = pytest.mark.spark


@pytest.fixture
def t_env(env: StreamExecutionEnvironment) -> StreamTableEnvironment:
    env.set_parallelism(2)
    return StreamTableEnvironment.create(env)


def final(t_env: StreamTableEnvironment, query: str) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in t_env.execute_sql(query).collect():
        counts[tuple(row)] += -1 if row.get_row_kind().name in ("UPDATE_BEFORE", "DELETE") else 1
    return +counts


def numbers(t_env: StreamTableEnvironment, last: int) -> None:
    t_env.execute_sql(
        "CREATE TABLE seq (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10000000', "
        f"'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{last}')"
    )


def test_group_aggregate_sums_across_subtasks(t_env: StreamTableEnvironment) -> None:
    numbers(t_env, 50_000)
    results = final(t_env, "SELECT n % 7, COUNT(*), SUM(n) FROM seq GROUP BY n % 7")
    expected = {(k, len(range(k or 7, 50_001, 7)), sum(range(k or 7, 50_001, 7))): 1 for k in range(7)}
    assert results == Counter(expected)


def test_join_matches_table_with_itself(t_env: StreamTableEnvironment) -> None:
    numbers(t_env, 2_000)
    results = final(t_env, "SELECT COUNT(*) FROM seq AS a JOIN seq AS b ON a.n = b.n * 2")
    assert results == Counter({(1000,): 1})


def test_batch_sort_merge_join_spills_to_disk(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    t_env = StreamTableEnvironment.create(env, EnvironmentSettings.in_batch_mode())
    t_env.get_config().set("millstream.batch.memory", "2000")
    numbers(t_env, 2_000)
    # Most rows share one key, some have none.
    left = "SELECT CASE WHEN n % 4 = 0 THEN 1 WHEN n % 5 > 0 THEN n END AS k FROM seq"
    right = "SELECT CASE WHEN n % 8 = 0 THEN 1 ELSE n END AS k FROM seq"
    joined = f"({left}) a FULL JOIN ({right}) b ON a.k = b.k"
    query = f"SELECT /*+ SHUFFLE_MERGE(a) */ COUNT(*), COUNT(a.k), COUNT(b.k) FROM {joined}"
    assert "SortMergeJoin(joinType=[FullOuterJoin]" in t_env.explain_sql(query)
    lefts = Counter(1 if n % 4 == 0 else n if n % 5 else None for n in range(1, 2_001))
    rights = Counter(1 if n % 8 == 0 else n for n in range(1, 2_001))
    pairs = sum(many * rights[k] for k, many in lefts.items() if k is not None)
    only_left = sum(many for k, many in lefts.items() if k is not None and k not in rights)
    only_right = sum(many for k, many in rights.items() if k not in lefts)
    counts = (pairs + only_left + lefts[None] + only_right, pairs + only_left, pairs + only_right)
    assert final(t_env, query) == Counter({counts: 1})


def test_udf_runs_in_workers_and_files_are_complete(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    @udf(result_type=DataTypes.STRING())
    def parity(n: int) -> str:
        return "even" if n % 2 == 0 else "odd"

    numbers(t_env, 1_000)
    t_env.create_temporary_system_function("parity", parity)
    t_env.execute_sql(
        "CREATE TABLE files (n BIGINT, kind STRING) PARTITIONED BY (kind) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet')"
    )
    t_env.execute_sql("INSERT INTO files SELECT n, parity(n) FROM seq").wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kind=even", "kind=odd"]
    assert final(t_env, "SELECT kind, COUNT(*), MAX(n) FROM files GROUP BY kind") == Counter(
        {("even", 500, 1000): 1, ("odd", 500, 999): 1}
    )


def test_stream_and_table_run_in_one_job(t_env: StreamTableEnvironment, env: Any) -> None:
    stream = env.from_collection(
        [("a", 1), ("b", 2), ("a", 3)], Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    )
    t_env.create_temporary_view("v", stream)
    sums = t_env.sql_query("SELECT k, SUM(n) AS s FROM v GROUP BY k")
    rows = list(t_env.to_changelog_stream(sums).map(lambda r: (r.get_row_kind().name, r.k, r.s)).execute_and_collect())
    assert sorted(r for r in rows if r[1] == "a") == [
        ("INSERT", "a", 1), ("UPDATE_AFTER", "a", 4), ("UPDATE_BEFORE", "a", 1),
    ]  # fmt: skip


def timed(t_env: StreamTableEnvironment, last: int) -> None:
    t_env.execute_sql(
        "CREATE TABLE timed (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR ts AS ts) WITH ("
        "'connector' = 'datagen', 'rows-per-second' = '10000000', 'fields.n.kind' = 'sequence', "
        f"'fields.n.start' = '1', 'fields.n.end' = '{last}')"
    )


def test_over_aggregate_orders_by_rowtime(t_env: StreamTableEnvironment) -> None:
    timed(t_env, 600)
    sums = "SUM(n) OVER (PARTITION BY n % 3 ORDER BY ts RANGE BETWEEN INTERVAL '6' SECOND PRECEDING AND CURRENT ROW)"
    results = final(t_env, f"SELECT n, {sums}, LAG(n, 2) OVER (PARTITION BY n % 3 ORDER BY ts) FROM timed")
    expected = [(n, sum(m for m in (n, n - 3, n - 6) if m > 0), n - 6 if n > 6 else None) for n in range(1, 601)]
    assert results == Counter(expected)


def test_window_top_n_joins_windows(t_env: StreamTableEnvironment) -> None:
    timed(t_env, 300)
    window = "TABLE(TUMBLE(TABLE timed, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
    first = (
        "(SELECT n, k, window_start, window_end FROM (SELECT n, n % 2 AS k, window_start, window_end, ROW_NUMBER() "
        f"OVER (PARTITION BY window_start, window_end, n % 2 ORDER BY n DESC) AS rn FROM {window}) WHERE rn <= 2)"
    )
    results = final(
        t_env,
        f"SELECT a.n, b.n FROM {first} AS a JOIN {first} AS b ON a.window_start = b.window_start AND a.window_end = "
        "b.window_end AND a.k = 0 AND b.k = 1 AND a.n + 1 = b.n",
    )
    # In the window from 10 to 20: 16 and 18, 17 and 19.
    assert results == Counter({(n, n + 1): 1 for n in range(1, 300) if n % 10 in (6, 8)})


def test_interval_join_and_match_recognize_find_rows(t_env: StreamTableEnvironment) -> None:
    timed(t_env, 200)
    results = final(
        t_env,
        "SELECT a.n, b.n FROM timed AS a LEFT JOIN timed AS b ON a.n = b.n * 2 AND b.ts BETWEEN a.ts - INTERVAL '40' "
        "SECOND AND a.ts",
    )
    assert results == Counter({(n, n // 2 if n % 2 == 0 and n <= 80 else None): 1 for n in range(1, 201)})
    results = final(
        t_env,
        "SELECT * FROM timed MATCH_RECOGNIZE (ORDER BY ts MEASURES A.n AS a, SUM(B.n) AS s, C.n AS c ONE ROW PER MATCH "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) DEFINE A AS A.n % 10 = 0, B AS B.n < A.n + 3, C AS C.n > 0)",
    )
    assert results == Counter({(n, 2 * n + 3, n + 3): 1 for n in range(10, 191, 10)})


def test_user_aggregates_run_in_several_subtasks(t_env: StreamTableEnvironment) -> None:
    class Listed(AggregateFunction[Any, Any]):
        def create_accumulator(self) -> Any:
            return [ListView()]

        def accumulate(self, accumulator: Any, value: Any) -> None:
            accumulator[0].add(value)

        def get_value(self, accumulator: Any) -> Any:
            return sum(accumulator[0].get())

    numbers(t_env, 500)
    listed = udaf(Listed(), result_type=DataTypes.BIGINT(), accumulator_type="ROW<l ARRAY<BIGINT>>")
    t_env.create_temporary_system_function("listed", listed)
    results = final(t_env, "SELECT n % 5, listed(n), MAX(n) FROM seq GROUP BY n % 5")
    assert results == Counter({(k, sum(range(k or 5, 501, 5)), 500 - (5 - k) % 5): 1 for k in range(5)})


def test_sql_savepoint_restores_at_other_parallelism(config: Configuration, tmp_path: Path) -> None:
    """Aggregate, join and window into files lose and duplicate nothing at any parallelism."""
    saved = ""
    for parallelism in (2, 3, 1):
        settings = Configuration(config).set_string("parallelism.default", str(parallelism))
        if saved:
            settings.set_string("execution.state-recovery.path", saved)
        env = sql_job.build(tmp_path, settings)
        if parallelism == 1:
            env.execute(sql_job.NAME)
            break
        job = env.execute_async(sql_job.NAME)
        before = len(sql_job.results(tmp_path))
        wait_until(lambda: len(sql_job.results(tmp_path)) > before)  # noqa: B023
        saved = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
        assert len(sql_job.results(tmp_path)) < len(sql_job.expected())
    assert sql_job.results(tmp_path) == sql_job.expected()


def test_two_queries_of_one_stream_restore_their_state(config: Configuration, tmp_path: Path) -> None:
    settings, before = Configuration(config), dict[str, int]()
    for _ in range(2):
        job = two_queries.started(settings)
        wait_until(lambda: two_queries.has_counted(job))  # noqa: B023
        saved = job.stop_with_savepoint(False, str(tmp_path)).result()
        results = two_queries.counted(saved)
        one, two = results
        assert two == f"{one}-1" and results[one] == results[two] > before.get(one, 0)
        settings.set_string("execution.state-recovery.path", saved)
        before = results


def test_gateway_session_runs_query(config: Configuration) -> None:
    session = Session({k: str(v) for k, v in config.to_dict().items()}, Registry())
    session.execute(
        "CREATE TABLE seq (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
        "'rows-per-second' = '10000000', 'fields.n.start' = '1', 'fields.n.end' = '1000')"
    )
    operation = Operation(lambda: session.execute("SELECT SUM(n) AS s FROM seq", {"execution.runtime-mode": "batch"}))
    operation.start()
    results: list[Any] = []
    token: int | None = 0
    while token is not None:
        piece = operation.fetch(token)
        results += [v for batch in piece.batches for v in batch.columns[0].to_pylist()]
        token = piece.next_token
    assert results == [500_500]


@pytest.mark.timeout(300)
def test_sql_client_ctrl_c_cancels_only_current_query(tmp_path: Path) -> None:
    """The query is cancelled and its slots exit, another job continues, and the next query runs."""
    options = ("-p", "2", "-D", "spark.master=local[2]", "-D", "millstream.quiet=true")
    with terminal_with(tmp_path, *options, seconds=100) as terminal:
        terminal.sees(PROMPT)
        terminal.types("SET 'sql-client.execution.result-mode' = 'tableau';\n")
        terminal.sees("succeeded.*" + PROMPT)
        terminal.types("CREATE TABLE endless (n BIGINT) WITH ('connector'='datagen','rows-per-second'='1000');\n")
        terminal.sees("Execute statement succeeded.*" + PROMPT)
        terminal.types("CREATE TABLE nowhere (n BIGINT) WITH ('connector'='blackhole');\n")
        terminal.sees("Execute statement succeeded.*" + PROMPT)
        terminal.types("INSERT INTO nowhere SELECT n FROM endless;\n")
        terminal.sees("Job ID.*" + PROMPT)
        wait_until(lambda: len(_slots(terminal.pid)) == 2)
        for statement, seen in (
            ("SELECT n FROM endless", r"\| \+I \|"),
            ("SELECT COUNT(n) FROM endless", r"\| \+U \|"),
        ):
            terminal.types(f"{statement};\n")
            terminal.sees(seen)
            assert len(_slots(terminal.pid)) == 4
            terminal.types("\x03")
            terminal.sees("Query terminated, received a total of [0-9]+ rows?.*" + PROMPT)
            wait_until(lambda: len(_slots(terminal.pid)) == 2)
        terminal.types("SHOW JOBS;\n")
        terminal.sees(r"(collect \| +(CANCELED|CANCELLING).*){2}nowhere \| +RUNNING.*" + PROMPT)
        terminal.types("SELECT COUNT(*) AS c FROM (VALUES (1), (2)) AS v(a);\n")
        terminal.sees(r"\| +2 \|.*" + PROMPT)
        terminal.types("QUIT;\n")
        assert terminal.ends() == 0


def _slots(process: int) -> list[int]:
    """Return the slot processes below a process."""
    below = psutil.Process(process).children(recursive=True)
    return [p.pid for p in below if p.is_running() and _name(p).startswith("millstream-s")]


def _name(process: psutil.Process) -> str:
    try:
        return process.name() if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""
