"""EXPLAIN reports the state of a query; a notebook shows a table without running an unbounded one."""

from __future__ import annotations

import pytest

from millstream.common.configuration import Configuration
from millstream.table import EnvironmentSettings, Table, TableEnvironment
from millstream.table.expressions import col, row_interval
from millstream.table.result_display import as_html
from millstream.table.table_base import node_of
from millstream.table.window import Tumble


def environment(**settings: str) -> TableEnvironment:
    config = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1", **settings}
    t_env = TableEnvironment.create(
        EnvironmentSettings.new_instance().with_configuration(Configuration.from_dict(config)).build()
    )
    for name in ("a", "b"):
        t_env.execute_sql(
            f"CREATE TABLE {name} (id INT, k STRING, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) "
            "WITH ('connector'='datagen', 'rows-per-second'='1000')"
        )
    t_env.execute_sql(
        "CREATE TABLE v (id INT, r INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED) WITH ("
        "'connector'='datagen')"
    )
    t_env.execute_sql(
        "CREATE TABLE up (id INT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector'='upsert-kafka', "
        "'topic'='x', 'properties.bootstrap.servers'='x:1', 'key.format'='json', 'value.format'='json')"
    )
    return t_env


def state_report(query: str, **settings: str) -> dict[str, list[str]]:
    """Return EXPLAIN's report on the state of a query's only operator."""
    explanation = environment(**settings).explain_sql(query).partition("\n== State ==\n")[2]
    entries: dict[str, list[str]] = {}
    for line in explanation.splitlines()[1:]:
        word, _, text = line.strip().partition(": ")
        entries.setdefault(word, []).append(text)
    return entries


TOP = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) rn FROM {}) WHERE rn <= {}"
WINDOW = "TABLE({}(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR))"
LAST = "SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) rn FROM a) WHERE rn = 1"
PASSED = "watermark: rows are discarded when it passes them"
ONE = "none: one subtask holds all state"
UNBOUNDED = "none: it grows with the input"


@pytest.mark.parametrize(
    ("query", "state", "key", "bound"),
    [
        ("SELECT k, COUNT(*) FROM a GROUP BY k", "a row for every value of k", "k", UNBOUNDED),
        ("SELECT COUNT(*) FROM a", "one row of 1 accumulator", ONE, "fixed size: one row"),
        ("SELECT a.k FROM a JOIN b ON a.id = b.id", "every row of both inputs by id and id", "id = id", UNBOUNDED),
        (
            "SELECT a.k FROM a, b WHERE a.id = b.id AND a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts",
            "the rows of both inputs that can still have a partner",
            "id",
            "watermark: a row is discarded when no partner can arrive, at most 1 h behind it",
        ),
        (
            f"SELECT k, COUNT(*) FROM {WINDOW.format('HOP')} GROUP BY window_start, window_end, k",
            "accumulators for every value of k in each open HOP window of 1 h",
            "k",
            "watermark: a window is discarded at its end",
        ),
        (
            "SELECT * FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
            "rows of open sessions, for every value of k",
            "k",
            "watermark: a session is discarded 5 min after its last row",
        ),
        (TOP.format("a", 3), "the first 3 rows for every value of k", "k", UNBOUNDED),
        (
            TOP.format("(SELECT k, COUNT(*) AS id FROM a GROUP BY k, id)", 2),
            "all rows for every value of k, since any of the first ones may be retracted",
            "k",
            UNBOUNDED,
        ),
        (
            "SELECT SUM(id) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '5' MINUTE PRECEDING AND CURRENT "
            "ROW) FROM a",
            "the rows of the last 5 min for every value of k",
            "k",
            "watermark: rows are discarded 5 min behind it",
        ),
        (
            "SELECT SUM(id) OVER (PARTITION BY k ORDER BY p RANGE BETWEEN INTERVAL '5' MINUTE PRECEDING AND CURRENT "
            "ROW) FROM a",
            "the rows of the last 5 min for every value of k",
            "k",
            "processing time: rows are discarded 5 min behind it",
        ),
        (
            "SELECT SUM(id) OVER (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING) FROM a",
            "the last 4 rows for every value of k, and rows that the watermark has not passed",
            "k",
            UNBOUNDED,
        ),
        (
            "SELECT COUNT(*) OVER (PARTITION BY k ORDER BY p) FROM a",
            "accumulators for every value of k",
            "k",
            UNBOUNDED,
        ),
        (
            "SELECT SUM(id) OVER (ORDER BY id) FROM a",
            "all rows, since a new row changes the results of those after it",
            ONE,
            UNBOUNDED,
        ),
        ("SELECT id, k FROM a ORDER BY id LIMIT 5", "the first 5 rows", ONE, "fixed size: 5 rows"),
        ("SELECT id, k FROM a LIMIT 5", "the number of rows received", ONE, "fixed size: one number"),
        ("SELECT k, COUNT(*) FROM a GROUP BY k LIMIT 5", "the first 5 rows", ONE, "fixed size: 5 rows"),
        (
            "SELECT k, MIN(id) AS m FROM a GROUP BY k ORDER BY m DESC LIMIT 5",
            "all rows, since any of the first ones may be retracted",
            ONE,
            UNBOUNDED,
        ),
        ("SELECT * FROM a ORDER BY ts", "rows after the watermark", ONE, PASSED),
        (LAST.format("k", "p DESC"), "the last row for every value of k", "k", UNBOUNDED),
        (LAST.format("k", "p"), "every value of k received", "k", UNBOUNDED),
        (
            LAST.format("k", "ts"),
            "every value of k received, and first rows that the watermark has not passed",
            "k",
            UNBOUNDED,
        ),
        (
            f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY id) AS rn "
            f"FROM {WINDOW.format('HOP')}) WHERE rn <= 3",
            "the first 3 rows for every value of k in each open HOP window of 1 h",
            "k",
            "watermark: a window is discarded at its end",
        ),
        (
            f"SELECT x.id FROM {WINDOW.format('HOP')} AS x JOIN {WINDOW.format('HOP')} AS y ON x.k = y.k AND "
            "x.window_start = y.window_start AND x.window_end = y.window_end",
            "the rows of both inputs in each open HOP window of 1 h",
            "k, window_start, window_end",
            "watermark: a window is discarded at its end",
        ),
        (
            "SELECT a.k, v.r FROM a JOIN v FOR SYSTEM_TIME AS OF a.ts ON a.id = v.id",
            "rows of the left input after the watermark, and the versions of every value of id",
            "id",
            f"{PASSED}; the newest version of each key remains",
        ),
        ("SELECT * FROM up", "a row for every value of id", "id", UNBOUNDED),
        ("INSERT INTO up SELECT id, COUNT(*) FROM a GROUP BY id, k", "every row by id", "id", UNBOUNDED),
        ("SELECT k FROM a INTERSECT SELECT k FROM b", "every row by k", "k", UNBOUNDED),
        (
            "SELECT * FROM a MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS i PATTERN (A B) WITHIN "
            "INTERVAL '1' HOUR DEFINE A AS A.id > 1)",
            "partial matches with their rows, for every value of k",
            "k",
            "time: partial matches expire after 1 h",
        ),
    ],
)  # fmt: skip
def test_explain_state_report(query: str, state: str, key: str, bound: str) -> None:
    report = state_report(query)
    assert (report["stores"][0], report["key"][0], report["bound"][0]) == (state, key, bound)
    assert ("SET 'table.exec.state.ttl'" in report.get("reduce with", [""])[0]) == (bound == UNBOUNDED)
    # State of a fixed size has no hint for reducing it.
    assert "reduce with" in report or bound.startswith("fixed size")


def test_explain_state_report_with_ttl() -> None:
    query = "SELECT k, COUNT(DISTINCT id) FROM a GROUP BY k"
    report = state_report(query, **{"table.exec.state.ttl": "36 h"})
    assert report["bound"] == ["TTL: keys idle for 36 h expire ('table.exec.state.ttl' or a hint)"]
    assert report["reduce with"] == ["fewer distinct values: COUNT(DISTINCT id) stores every value of id for each key"]


def test_explain_state_report_with_ttl_for_versions() -> None:
    query = "SELECT a.k, v.r FROM a JOIN v FOR SYSTEM_TIME AS OF a.ts ON a.id = v.id"
    assert any("SET 'table.exec.state.ttl'" in hint for hint in state_report(query)["reduce with"])
    report = state_report(query, **{"table.exec.state.ttl": "1 h"})
    expires = "the newest version of each key expires 1 h after the last row for it ('table.exec.state.ttl')"
    assert report["bound"][0] == f"{PASSED}; {expires}"
    assert report["reduce with"] == ["fewer keys in the versioned table"]


def test_explain_state_report_of_count_windows() -> None:
    window = Tumble.over(row_interval(3)).on(col("p")).alias("w")
    table = environment().from_path("a").window(window).group_by(col("w"), col("k")).select(col("k"), col("id").sum)
    explanation = table.explain().partition("== State ==")[2]
    assert "stores: the last 3 rows for every value of k\n" in explanation
    bound = "row count: a full window is discarded except for its newest row; an incomplete one remains"
    assert f"bound: {bound}\n" in explanation


def test_explain_state_report_of_a_pattern_without_within() -> None:
    inside = "PARTITION BY k ORDER BY ts MEASURES A.id AS i PATTERN (A B) DEFINE A AS A.id > 1"
    query = f"SELECT * FROM a MATCH_RECOGNIZE ({inside})"
    report = state_report(query, **{"table.exec.state.ttl": "1 h"})
    assert report["bound"] == [UNBOUNDED]
    assert report["reduce with"] == ["WITHIN INTERVAL '...' after the pattern: then partial matches expire"]


def test_explain_state_report_of_a_join_without_unique_keys() -> None:
    hints = state_report("SELECT a.k FROM a JOIN (SELECT id, MAX(ts) AS m FROM b GROUP BY id) AS c ON a.id = c.id")
    # The right input already has one row per key.
    assert any("PRIMARY KEY of the left input" in hint for hint in hints["reduce with"])
    assert not any("PRIMARY KEY of the right input" in hint for hint in hints["reduce with"])


def test_explain_state_report_is_absent_without_state() -> None:
    assert "== State ==" not in environment().explain_sql("SELECT k FROM a WHERE id > 1")
    batch = environment(**{"execution.runtime-mode": "BATCH"})
    assert "== State ==" not in batch.explain_sql("SELECT v, COUNT(*) FROM (VALUES (1)) AS t(v) GROUP BY v")


# --- notebooks


def shown(table: Table) -> str:
    return table._repr_html_()  # the method that a notebook calls


def test_notebook_shows_final_rows_of_a_table() -> None:
    t_env = environment()
    html = shown(t_env.from_elements([(1, "<b>"), (2, None)], ["n", "text"]))
    assert '<th title="BIGINT">n</th><th title="STRING">text</th>' in html
    assert "<tr><td>1</td><td>&lt;b&gt;</td></tr><tr><td>2</td><td>&lt;NULL&gt;</td></tr>" in html
    counts = shown(t_env.sql_query("SELECT v, COUNT(*) AS c FROM (VALUES (1), (1)) AS t(v) GROUP BY v"))
    assert "<tbody><tr><td>1</td><td>2</td></tr></tbody></table><p>1 row.</p>" in counts
    many = shown(t_env.from_elements([(i,) for i in range(50)], ["n"]))
    assert many.count("<tr>") == 21 and many.endswith("<p>The first 20 rows.</p>")


def test_notebook_does_not_run_an_unbounded_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = environment().from_path("a")
    monkeypatch.setattr(Table, "execute", lambda self: pytest.fail("it was run"))
    html = shown(table)
    assert "<tr><td>id</td><td>INT</td></tr>" in html and "is unbounded" in html


def test_notebook_waits_a_limited_time_for_rows() -> None:
    t_env = environment()
    t_env.execute_sql(
        "CREATE TABLE slow (n BIGINT) WITH ('connector'='datagen', 'rows-per-second'='1', 'number-of-rows'='1000000')"
    )
    table = t_env.sql_query("SELECT COUNT(*) AS c FROM slow")
    html = as_html(table, node_of(table), "UTC", 0.5)
    assert "have not arrived within 0.5 s" in html and "<td>c</td><td>BIGINT NOT NULL</td>" in html
