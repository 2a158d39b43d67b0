"""Statements for a SQL gateway, and the responses of Flink's: `python -m tests.sql.gateway URL` records them.

Flink's gateway is started from the jars of apache-flink and org.apache.flink:flink-sql-gateway, with execution.target:
local and parallelism.default: 1.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("gateway.json")
_SEQUENCE = "'fields.a.kind'='sequence','fields.a.start'='1','fields.a.end'='3'"
_SOURCE = f"WITH ('connector'='datagen','number-of-rows'='3',{_SEQUENCE})"
# Each with the format of its rows.
STATEMENTS = [
    (f"CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a) NOT ENFORCED) {_SOURCE}", "JSON"),
    ("CREATE TABLE s (a INT) WITH ('connector'='blackhole')", "JSON"),
    ("SHOW TABLES", "JSON"),
    ("DESCRIBE t", "JSON"),
    ("SHOW CREATE TABLE s", "PLAIN_TEXT"),
    ("SET 'a.b' = 'c'", "JSON"),
    ("RESET 'a.b'", "JSON"),
    ("SELECT a, COUNT(*) AS c FROM (VALUES (1), (1)) AS v(a) GROUP BY a", "JSON"),
    ("SELECT CAST(a AS BIGINT) AS n, a + 0.5 AS d FROM t", "PLAIN_TEXT"),
    (
        "SELECT DATE '2024-01-02' dt, TIME '10:11:12' t, TIMESTAMP '2024-01-02 03:04:00' ts, TIMESTAMP "
        "'2024-01-02 03:04:05.123400' tm, CAST(TIMESTAMP '2024-01-02 03:04:05.5' AS TIMESTAMP_LTZ(9)) lz, INTERVAL '1' "
        "DAY i, INTERVAL '1-2' YEAR TO MONTH iy, TRUE b, 'é\"' st",
        "JSON",
    ),
    (
        "SELECT ARRAY[1, 2] ar, MAP['a', 1] m, ROW(1, 'x') r, x'4142' bi, CAST(NULL AS INT) n, 1e0 d, 1e20 d2, "
        "CAST(1.5 AS FLOAT) f, CAST(1 AS TINYINT) ti, CAST(1.10 AS DECIMAL(38, 18)) de, CAST('NaN' AS DOUBLE) nan",
        "JSON",
    ),
    (
        "SELECT DATE '2024-01-02' dt, TIME '10:11:12' t, TIMESTAMP '2024-01-02 03:04:05.678' ts, INTERVAL '1' DAY i, "
        "INTERVAL '1-2' YEAR TO MONTH iy, ARRAY[1, 2] ar, MAP[1, 'a'] m, ROW(1, 'x') r, x'4142' bi, CAST(NULL AS INT) "
        "n, 1e0 d, TRUE b, CAST(1.1 AS DECIMAL(5, 3)) de",
        "PLAIN_TEXT",
    ),
    ("BEGIN STATEMENT SET", "JSON"),
    ("INSERT INTO s SELECT 1", "JSON"),
    ("END", "JSON"),
    ("INSERT INTO s SELECT a FROM t", "JSON"),
    ("SELECT x FROM t", "JSON"),
    ("USE CATALOG nope", "JSON"),
    ("SELECT 1 / a FROM (VALUES (0)) AS v(a)", "JSON"),
]


def send(base: str, path: str, method: str = "GET", body: Any = None, token: str | None = None) -> tuple[int, Any]:
    """Return the status and the body of a response."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    request = urllib.request.Request(base + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def result_of(base: str, session: str, statement: str, row_format: str, token: str | None = None) -> dict[str, Any]:
    """Return the result of a statement: its columns and all its rows, or its last cause."""
    _, operation = send(base, f"/v2/sessions/{session}/statements", "POST", {"statement": statement}, token)
    uri = f"/v2/sessions/{session}/operations/{operation['operationHandle']}/result/0?rowFormat={row_format}"
    rows: list[Any] = []
    end = time.monotonic() + 120
    while True:
        assert time.monotonic() < end, statement
        status, piece = send(base, uri, token=token)
        if status != 200:
            return {"status": status, "cause": last_cause("\n".join(piece["errors"]))}
        if piece["resultType"] != "NOT_READY":
            rows += piece["results"]["data"]
        if piece["resultType"] == "EOS":
            kind = {k: piece[k] for k in ("isQueryResult", "resultKind")}
            has_job = {"has_job": "jobID" in piece}
            result_rows = ["a job"] if piece["results"]["columns"][0]["name"] == "job id" else rows
            return {**kind, **has_job, "columns": piece["results"]["columns"], "rows": result_rows}
        uri = piece["nextResultUri"]


def last_cause(kind: str) -> str:
    """Return the first line of the last cause in Flink's own code, without its parser's."""
    causes = [c for c in kind.split("Caused by: ")[1:] if "calcite" not in c.split(":")[0]]
    return causes[-1].split("\n")[0]


def results(base: str, token: str | None = None) -> list[dict[str, Any]]:
    """Send all statements to a gateway, in one session."""
    properties = {"properties": {"table.local-time-zone": "UTC"}}
    session = send(base, "/v2/sessions", "POST", properties, token)[1]["sessionHandle"]
    return [result_of(base, session, *statement, token) for statement in STATEMENTS]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(results(sys.argv[1]), indent=1, ensure_ascii=False) + "\n")
