"""Flink's own SQL client and JDBC driver on the gateway: DDL, queries, INSERT, SHOW JOBS, error positions."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.gateway.server import Gateway
from millstream.spark.java import find_java
from tests.support.apache_flink import SKIP_REASON, flink_folder, flink_jar
from tests.support.paths import ROOT

SETTINGS = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1"}
SOURCE = (
    "CREATE TABLE t (a INT) WITH ('connector'='datagen','number-of-rows'='3','fields.a.kind'='sequence',"
    "'fields.a.start'='1','fields.a.end'='3')"
)
SINK = "CREATE TABLE s (a INT) WITH ('connector'='blackhole')"

pytestmark = [
    pytest.mark.skipif(
        flink_folder() is None
        or flink_jar("flink-sql-gateway") is None
        or flink_jar("flink-sql-jdbc-driver-bundle") is None,
        reason=SKIP_REASON,
    ),
    pytest.mark.timeout(300),
]


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway({**SETTINGS, "sql-gateway.endpoint.rest.port": "auto"})
    gateway.start()
    yield gateway
    gateway.stop()


def java(jars: list[Path], gateway: Gateway, *words: str, cwd: Path) -> str:
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "net", "nio", "time")]
    path = ":".join(map(str, jars))
    (cwd / "config.yaml").touch()
    done = subprocess.run(
        [find_java().path, "-Xmx256m", *opens, f"-Duser.home={cwd}", "-cp", path, *words],
        capture_output=True, text=True, timeout=200, check=False, cwd=cwd,
        env={
            **os.environ, "FLINK_CONF_DIR": str(cwd),
            "FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {gateway.token}",
        },
    )  # fmt: skip
    return done.stdout + done.stderr


def libraries() -> list[Path]:
    folder = flink_folder()
    assert folder is not None
    return sorted((folder / "lib").glob("*.jar"))


def test_flink_sql_client_runs_statements(gateway: Gateway, tmp_path: Path) -> None:
    folder, jar = flink_folder(), flink_jar("flink-sql-gateway")
    assert folder is not None and jar is not None
    script = tmp_path / "script.sql"
    script.write_text(
        f"SET 'sql-client.execution.result-mode' = 'tableau';\n{SOURCE};\n{SINK};\nSHOW TABLES;\n"
        "SELECT a, COUNT(*) AS c FROM t GROUP BY a;\nINSERT INTO s SELECT a FROM t;\nSHOW JOBS;\n"
        "SELECT a\nFROM t WHERE nope > 1;\nSHOW CATALOGS;\n"
    )
    jars = [*libraries(), *(folder / "opt").glob("flink-sql-client*.jar"), jar]
    address = gateway.url.removeprefix("http://")
    words = ["org.apache.flink.table.client.SqlClient", "gateway", "--endpoint", address, "-f", str(script)]
    result = java(jars, gateway, *words, cwd=tmp_path)
    assert "|          s |\n|          t |\n+------------+\n2 rows in set" in result, result
    assert (
        "| op |           a |                    c |\n+----+-------------+----------------------+\n"
        "| +I |           1 |                    1 |\n| +I |           2 |                    1 |\n"
        "| +I |           3 |                    1 |\n+----+-------------+----------------------+\n"
        "Received a total of 3 rows"
    ) in result
    job = re.search("successfully submitted to the cluster:\\S*\nJob ID: ([0-9a-f]{32})", result)
    assert job is not None, result
    assert f"| {job[1]} | insert-into_default_catalog.default_database.s |" in result
    # The error has its position, and ends the script, as in Flink's client.
    assert "Column 'nope' not found in any table\n    FROM t WHERE nope > 1;\n                 ^" in result
    assert "catalog name" not in result


def test_flink_sql_client_deploys_script(gateway: Gateway, tmp_path: Path) -> None:
    folder, jar = flink_folder(), flink_jar("flink-sql-gateway")
    assert folder is not None and jar is not None
    script = tmp_path / "script.sql"
    script.write_text(f"{SOURCE};\n{SINK};\nINSERT INTO s SELECT a FROM t;\n")
    jars = [*libraries(), *(folder / "opt").glob("flink-sql-client*.jar"), jar]
    words = ["org.apache.flink.table.client.SqlClient", "gateway", "-e", gateway.url.removeprefix("http://")]
    words += ["-Dexecution.target=kubernetes-application", "-f", str(script)]
    result = java(jars, gateway, *words, cwd=tmp_path)
    assert re.search("Cluster ID: script-[0-9a-f]{32}", result), result
    end = time.monotonic() + 60
    while [e.view.status.name for e in gateway.registry.entries()] != ["FINISHED"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_flink_jdbc_driver_runs_statements(gateway: Gateway, tmp_path: Path) -> None:
    driver = flink_jar("flink-sql-jdbc-driver-bundle")
    assert driver is not None
    # The driver's bundle contains no logging library.
    logging = [jar for jar in libraries() if jar.name.startswith(("log4j", "flink-dist"))]
    source = str(ROOT / "tests" / "sql" / "flink" / "JdbcStatements.java")
    values = "SELECT TIMESTAMP '2024-01-02 03:04:05.1' ts, CAST(1.5 AS DECIMAL(38, 18)) de, CAST(NULL AS INT) nu"
    statements = [SOURCE, SINK, "SELECT a, a * 2 AS d FROM t", values, "INSERT INTO s SELECT a FROM t", "SHOW JOBS"]
    result = java([driver, *logging], gateway, source, gateway.url.removeprefix("http://"), *statements, cwd=tmp_path)
    lines = [line for line in result.splitlines() if line.startswith(("[", "OK", "default"))]
    assert lines[:6] == [
        "default_catalog.default_database", "OK", "OK", "[a=1, d=2]", "[a=2, d=4]", "[a=3, d=6]",
    ], result  # fmt: skip
    assert lines[6] == "[ts=2024-01-02 03:04:05.1, de=1.500000000000000000, nu=null]"
    job = re.fullmatch(r"\[job id=([0-9a-f]{32})\]", lines[7])
    assert job is not None and lines[8].startswith(f"[job id={job[1]}, job name=insert-into_")
