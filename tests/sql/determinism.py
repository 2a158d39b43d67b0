"""Statements with non-deterministic updates, and Flink's results for them under TRY_RESOLVE.

    python -m tests.sql.determinism CLASSPATH    runs Flink 2.3, and writes determinism.json next to this file

CLASSPATH has Flink's jars with flink-table-planner_2.12 in place of the loader, and its test jar, whose connector
`values` the tables have. A result is "!" and the first line of the error, or the number of lookup joins that store the
rows they emit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "determinism.json"

_ALL, _UPSERTS = "I,UA,UB,D", "I,UA,D"
_ABC = "a BIGINT, b BIGINT, c STRING"
# Name: columns, row kinds of a source (empty for a sink or a lookup table), metadata.
TABLES = {
    "src": (f"{_ABC}, d BIGINT, p AS PROCTIME()", "I", ""),
    "cdc": (f"{_ABC}, d BIGINT, p AS PROCTIME(), PRIMARY KEY (a) NOT ENFORCED", _ALL, ""),
    "cdc_no_pk": (f"{_ABC}, d BIGINT, p AS PROCTIME()", _ALL, ""),
    "upserts": (f"{_ABC}, d BIGINT, p AS PROCTIME(), PRIMARY KEY (a) NOT ENFORCED", _UPSERTS, ""),
    "cdc_day": (f"{_ABC}, d AS UNIX_TIMESTAMP(), PRIMARY KEY (a, c) NOT ENFORCED", _ALL, ""),
    "cdc_meta": (f"{_ABC}, m BIGINT METADATA, PRIMARY KEY (a) NOT ENFORCED", _ALL, "m:BIGINT"),
    "upserts_meta": (f"{_ABC}, m BIGINT METADATA, PRIMARY KEY (a) NOT ENFORCED", _UPSERTS, "m:BIGINT"),
    "dim_pk": (f"{_ABC}, PRIMARY KEY (a) NOT ENFORCED", "", ""),
    "dim": (_ABC, "", ""),
    "by_pk": (f"{_ABC}, PRIMARY KEY (a) NOT ENFORCED", "", ""),
    "by_two": (f"{_ABC}, PRIMARY KEY (a, b) NOT ENFORCED", "", ""),
    "by_row": (_ABC, "", ""),
}
SINKS = ("by_pk", "by_two", "by_row")


def _lookup(columns: str, dim: str = "dim_pk", kind: str = "JOIN", on: str = "", source: str = "cdc") -> str:
    return f"SELECT {columns} FROM {source} AS t {kind} {dim} FOR SYSTEM_TIME AS OF t.p AS l ON t.a = l.a{on}"


_DEDUPED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC) AS rn FROM {}) WHERE rn = 1"
_QUERIES = {
    "plain columns": "SELECT a, b, c FROM cdc",
    "function of inserts": "SELECT a, nd_func(b) AS b, c FROM src",
    "function": "SELECT a, nd_func(b) AS b, c FROM cdc",
    "function of upserts": "SELECT a, nd_func(b) AS b, c FROM upserts",
    "function of the key": "SELECT nd_func(a) AS a, b, c FROM cdc",
    "clock": "SELECT a, UNIX_TIMESTAMP() AS b, c FROM cdc",
    "computed column": "SELECT a, d AS b, c FROM cdc_day",
    "condition": "SELECT a, b, c FROM cdc WHERE nd_func(b) > 1",
    "condition on the clock": "SELECT a, b, c FROM cdc WHERE b > UNIX_TIMESTAMP() - 300",
    "metadata": "SELECT a, m AS b, c FROM cdc_meta",
    "metadata of upserts": "SELECT a, m AS b, c FROM upserts_meta",
    "metadata in a sum": "SELECT a, SUM(m) AS b, MAX(c) AS c FROM cdc_meta GROUP BY a",
    "lookup": _lookup("t.a, t.b, l.c"),
    "lookup of the key": _lookup("t.a, t.b, t.c"),
    "lookup without a key": _lookup("t.a, t.b, l.c", "dim"),
    "left lookup": _lookup("t.a, t.b, l.c", kind="LEFT JOIN"),
    "left lookup without a key": _lookup("t.a, t.b, l.c", "dim", "LEFT JOIN"),
    "lookup for inserts": _lookup("t.a, t.b, l.c", source="src"),
    "lookup for upserts": _lookup("t.a, t.b, l.c", source="upserts"),
    "lookup for rows without a key": _lookup("t.a, t.b, l.c", source="cdc_no_pk"),
    "lookup with a function": _lookup("nd_func(t.a) AS a, t.b, t.c"),
    "lookup with a function of what is found": _lookup("t.a, nd_func(l.b) AS b, t.c"),
    "lookup with a condition on what is found": _lookup("t.a, t.b, t.c", on=" AND nd_func(l.b) > 100"),
    "lookup with a condition on both": _lookup("t.a, l.b, l.c", on=" AND t.b > nd_func(l.b)"),
    "left lookup with a condition on the row": _lookup(
        "t.a, l.b, l.c", kind="LEFT JOIN", on=" AND t.b > UNIX_TIMESTAMP() - 300"
    ),
    "sum of what is found": (
        f"SELECT a, SUM(b) AS b, MAX(c) AS c FROM ({_lookup('t.d AS a, l.b AS b, t.c AS c')}) GROUP BY a"
    ),
    "two lookups": (
        "SELECT t.a, l.b, m.c FROM cdc AS t JOIN dim_pk FOR SYSTEM_TIME AS OF t.p AS l ON t.a = l.a "
        "JOIN dim FOR SYSTEM_TIME AS OF t.p AS m ON t.b = m.a"
    ),
    "group by a function": "SELECT g AS a, COUNT(*) AS b, c FROM (SELECT nd_func(a) AS g, c FROM cdc) GROUP BY g, c",
    "filtered aggregate": (
        "SELECT a, COUNT(*) AS b, CAST(COUNT(c) FILTER (WHERE b > UNIX_TIMESTAMP()) AS STRING) AS c FROM src GROUP BY a"
    ),
    "aggregate of inserts": "SELECT a, nd_agg(b) AS b, MAX(c) AS c FROM src GROUP BY a",
    "aggregate of all": "SELECT MAX(a) AS a, nd_agg(b) AS b, MAX(c) AS c FROM src",
    "join by key": "SELECT t.a, u.b, t.c FROM cdc AS t JOIN (SELECT a, nd_func(b) AS b FROM cdc) AS u ON t.a = u.a",
    "join with keys": (
        "SELECT t.a, u.a AS b, u.c FROM cdc AS t JOIN (SELECT a, b, UUID() AS c FROM cdc) AS u ON t.b = u.b"
    ),
    "join without a key": (
        "SELECT t.a, u.b, u.c FROM cdc AS t JOIN (SELECT b, UUID() AS c FROM cdc) AS u ON t.b = u.b"
    ),
    "join condition": "SELECT t.a, t.b, t.c FROM cdc AS t JOIN src AS u ON t.a = u.a AND nd_func(t.b) > u.b",
    "join condition of inserts": "SELECT t.a, t.b, t.c FROM src AS t JOIN src AS u ON t.a = u.a AND nd_func(t.b) > u.b",
    "left join condition of inserts": (
        "SELECT t.a, t.b, t.c FROM src AS t LEFT JOIN src AS u ON t.a = u.a AND nd_func(t.b) > u.b"
    ),
    "semi join": "SELECT a, b, c FROM cdc WHERE c IN (SELECT UUID() FROM cdc_no_pk)",
    "last row of inserts": f"SELECT a, nd_func(b) AS b, c FROM {_DEDUPED.format('src')}",
    "top row": f"SELECT a, b, c FROM {_DEDUPED.format('(SELECT a, nd_func(b) AS b, c FROM cdc)')}",
    "over": "SELECT a, SUM(b) OVER (PARTITION BY c ORDER BY d) AS b, c FROM (SELECT a, nd_func(b) AS b, c, d FROM cdc)",
    "over without the function": (
        "SELECT a, SUM(b) OVER (PARTITION BY c ORDER BY d) AS b, c FROM (SELECT a, b, c, nd_func(d) AS d FROM cdc)"
    ),
    "union": "SELECT a, nd_func(b) AS b, c FROM cdc UNION ALL SELECT a, b, c FROM src",
    "limit": "SELECT a, nd_func(b) AS b, c FROM cdc ORDER BY c LIMIT 3",
    "distinct": "SELECT DISTINCT a, nd_func(b) AS b, c FROM cdc",
}
STATEMENTS = {
    f"{name} into {sink}": f"INSERT INTO {sink} SELECT a, b, c FROM ({query})"
    for name, query in _QUERIES.items()
    for sink in SINKS
}


def answer(explained: str) -> str:
    """Return the recorded result of a plan or, after "!", of an error."""
    if explained.startswith("!"):
        return explained.split("\n")[0]
    physical = re.search(r"== Optimized Physical Plan ==(.*?)== Optimized Execution Plan ==", explained, re.DOTALL)
    assert physical is not None
    return str(len(re.findall(r"LookupJoin\(.*upsertMaterialize=\[true\]", physical[1])))


def _declaration(name: str) -> str:
    columns, changes, metadata = TABLES[name]
    options = {"connector": "values"}
    if name in SINKS:
        options["sink-insert-only"] = "false"
    if changes:
        options["changelog-mode"] = changes
    if metadata:
        options["readable-metadata"] = metadata
    options_text = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({options_text})"


def record(classpath: str) -> None:
    """Run Flink and record the results."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = str(HERE / "flink" / "TryResolve.java")
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", name, source], check=True)
        (folder / "log4j2.properties").write_text("rootLogger.level = OFF\n")
        questions, output = folder / "questions.txt", folder / "answers.txt"
        questions.write_text("\n".join([*map(_declaration, TABLES), *STATEMENTS.values()]) + "\n")
        opens = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("util", "lang")]
        java = ["java", "-Xmx900m", *opens, "-cp", f"{name}:{classpath}", "TryResolve"]
        subprocess.run([*java, str(questions), str(output)], check=True)
        answers = [line.replace("\\n", "\n") for line in output.read_text().splitlines()]
    results = {name: answer(a) for name, a in zip(STATEMENTS, answers, strict=True)}
    RECORDED.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
