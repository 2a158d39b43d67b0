"""The SQL gateway: the responses of Flink's gateway, tokens, cancellation, idle sessions."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.gateway.completion import Vocabulary, candidates
from millstream.gateway.operation import Operation, OperationError
from millstream.gateway.row_formats import values_as_json
from millstream.gateway.server import Gateway
from millstream.gateway.session import Outcome, Session
from millstream.gateway.sessions import Sessions
from millstream.service.registry import Registry
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.schema import Field, Fields
from millstream.sql.types import DataTypes
from millstream.table.table_result import OkResult
from tests.integration.checkpoint.test_signing import foreign_savepoint
from tests.sql import gateway as flinks

SETTINGS = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1"}
ENDLESS = "CREATE TABLE endless (n BIGINT) WITH ('connector'='datagen','rows-per-second'='1000')"


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder; yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    gateway = Gateway({**SETTINGS, "sql-gateway.endpoint.rest.port": "auto"})
    gateway.start()
    yield gateway
    gateway.stop()


class Client:
    """A client with its own session."""

    def __init__(self, gateway: Gateway, **properties: str) -> None:
        self.url, self.token = gateway.url, gateway.token
        status, opened = self.send("/v4/sessions", "POST", {"properties": properties})
        assert status == 200
        self.path = f"/v4/sessions/{opened['sessionHandle']}"

    def send(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        return flinks.send(self.url, path, method, body, self.token)

    def begin(self, statement: str, **more: Any) -> str:
        _, operation = self.send(f"{self.path}/statements", "POST", {"statement": statement, **more})
        return f"{self.path}/operations/{operation['operationHandle']}"

    def rows(self, statement: str, **more: Any) -> list[Any]:
        uri = f"{self.begin(statement, **more)}/result/0?rowFormat=JSON"
        rows: list[Any] = []
        while True:
            status, piece = self.send(uri)
            assert status == 200, piece
            if piece["resultType"] == "EOS":
                return rows
            rows += [row["fields"] for row in piece.get("results", {"data": []})["data"]]
            uri = piece["nextResultUri"]

    def refused(self, statement: str) -> str:
        uri = f"{self.begin(statement)}/result/0?rowFormat=JSON"
        while True:
            status, piece = self.send(uri)
            if status != 200:
                return flinks.last_cause("\n".join(piece["errors"]))
            assert piece["resultType"] != "EOS"
            uri = piece["nextResultUri"]


def test_gateway_answers_statements_like_flink(gateway: Gateway) -> None:
    expected = json.loads(flinks.RECORDED.read_text())
    for (statement, _), ours, theirs in zip(
        flinks.STATEMENTS, flinks.results(gateway.url, gateway.token), expected, strict=True
    ):
        assert ours == theirs, statement


def test_gateway_serves_paths_of_each_version(gateway: Gateway) -> None:
    client = Client(gateway)
    later = {"configure-session": 2, "scripts": 4, "materialized-tables/a.b.c/refresh": 3}
    for version in (1, 2, 3, 4):
        root = client.path.replace("/v4", f"/v{version}")
        assert client.send(f"/v{version}/info")[1] == {"productName": "Apache Flink", "version": "2.3.0"}
        assert client.send(f"/v{version}/api_versions")[1] == {"versions": ["V1", "V2", "V3", "V4"]}
        assert client.send(f"{root}/heartbeat", "POST", {}) == (200, {})
        for path, since in later.items():
            status, _ = client.send(f"{root}/{path}", "POST", {"statement": "SET 'x' = 'y'"})
            assert (status == 404) == (version < since), (version, path)
    assert client.send(client.path)[1]["properties"]["x"] == "y"
    assert client.send("/v5/info")[0] == 404
    # The next result is requested at the same version; version 1 knows one format.
    operation = client.begin("SHOW CATALOGS").replace("/v4", "/v1")
    eventually(lambda: client.send(f"{operation}/status")[1]["status"] == "FINISHED")
    assert client.send(f"{operation}/result/0")[1]["nextResultUri"] == f"{operation}/result/1"


def test_gateway_shows_describes_and_stops_jobs(gateway: Gateway, tmp_path: Path) -> None:
    client = Client(gateway, **{"execution.checkpointing.savepoint-dir": str(tmp_path)})
    for statement in (ENDLESS, "CREATE TABLE s (n BIGINT) WITH ('connector'='blackhole')"):
        assert client.rows(statement) == [["OK"]]
    ((job,),) = client.rows("INSERT INTO s SELECT n FROM endless")
    shown = {row[0]: row for row in client.rows("SHOW JOBS")}
    assert shown[job][1] == "insert-into_default_catalog.default_database.s"
    assert client.rows(f"DESCRIBE JOB '{job}'")[0][0] == job
    # The jobs are served at the same address, too.
    _, overview = client.send("/jobs/overview")
    assert job in [j["jid"] for j in overview["jobs"]]
    eventually(lambda: client.rows(f"DESCRIBE JOB '{job}'")[0][2] == "RUNNING")
    ((path,),) = client.rows(f"STOP JOB '{job}' WITH SAVEPOINT")
    assert (Path(path) / "_metadata").exists()
    assert client.rows(f"DESCRIBE JOB '{job}'")[0][2] == "FINISHED"
    ((other,),) = client.rows("INSERT INTO s SELECT n FROM endless")
    assert client.rows(f"STOP JOB '{other}'") == [["OK"]]
    assert client.rows(f"DESCRIBE JOB '{other}'")[0][2] == "CANCELED"
    assert "The job 'abc' does not exist" in client.refused("STOP JOB 'abc'")


def test_gateway_cancel_of_query_cancels_its_job(gateway: Gateway) -> None:
    client = Client(gateway)
    client.rows(ENDLESS)
    operation = client.begin("SELECT n FROM endless")
    uri = f"{operation}/result/0?rowFormat=JSON"
    result: dict[str, Any] = {}
    while not result.get("results", {"data": []})["data"]:
        _, result = client.send(uri)
        uri = result["nextResultUri"]
    assert client.send(f"{operation}/status")[1] == {"status": "RUNNING"}
    assert client.send(f"{operation}/cancel", "POST", {}) == (200, {"status": "CANCELED"})
    status, reported = client.send(uri)
    assert status == 500 and "in CANCELED status" in reported["errors"][0]
    eventually(lambda: client.rows(f"DESCRIBE JOB '{result['jobID']}'")[0][2] == "CANCELED")
    assert client.send(f"{operation}/close", "DELETE") == (200, {"status": "CLOSED"})
    assert client.send(f"{operation}/status")[0] == 500


def test_gateway_close_session_cancels_queries_but_not_inserts(gateway: Gateway) -> None:
    client, other = Client(gateway), Client(gateway)
    client.rows(ENDLESS)
    client.rows("CREATE TABLE s (n BIGINT) WITH ('connector'='blackhole')")
    ((inserting,),) = client.rows("INSERT INTO s SELECT n FROM endless")
    query = client.begin("SELECT n FROM endless")
    eventually(lambda: "jobID" in client.send(f"{query}/result/0?rowFormat=JSON")[1])
    reading = client.send(f"{query}/result/0?rowFormat=JSON")[1]["jobID"]
    assert client.send(client.path, "DELETE") == (200, {"status": "CLOSED"})
    eventually(lambda: other.rows(f"DESCRIBE JOB '{reading}'")[0][2] == "CANCELED")
    assert other.rows(f"DESCRIBE JOB '{inserting}'")[0][2] == "RUNNING"
    other.rows(f"STOP JOB '{inserting}'")
    status, reported = client.send(f"{client.path}/statements", "POST", {"statement": "SELECT 1"})
    assert status == 500 and "does not exist" in reported["errors"][0]


def test_gateway_statement_settings_apply_to_that_statement_only(gateway: Gateway) -> None:
    client = Client(gateway)
    query = "SELECT a, COUNT(*) FROM (VALUES (1), (1)) AS v(a) GROUP BY a"
    assert client.rows(query, executionConfig={"execution.runtime-mode": "batch"}) == [[1, 2]]
    assert client.rows(query) == [[1, 1], [1, 1], [1, 2]]
    assert "execution.runtime-mode" not in client.send(client.path)[1]["properties"]


def test_gateway_reset_restores_settings_of_open_session(gateway: Gateway) -> None:
    client = Client(gateway, first="1")
    for statement in ("SET 'first' = '2'", "SET 'second' = '2'", "RESET"):
        client.rows(statement)
    properties = client.send(client.path)[1]["properties"]
    assert properties["first"] == "1" and "second" not in properties
    client.rows("SET 'first' = '3'")
    client.rows("RESET 'first'")
    assert client.send(client.path)[1]["properties"]["first"] == "1"


def test_gateway_statement_set_is_one_job_of_inserts(gateway: Gateway) -> None:
    client = Client(gateway)
    for name in ("s1", "s2"):
        client.rows(f"CREATE TABLE {name} (n INT) WITH ('connector'='blackhole')")
    assert "'END' statement should be used after 'BEGIN STATEMENT SET'" in client.refused("END")
    client.rows("BEGIN STATEMENT SET")
    client.rows("INSERT INTO s1 SELECT 1")
    assert "Only 'INSERT/CREATE TABLE AS' statement is allowed" in client.refused("SELECT 1")
    # An invalid statement is not added.
    assert "Object 'nowhere' not found" in client.refused("INSERT INTO s2 SELECT n FROM nowhere")
    client.rows("INSERT INTO s2 SELECT 2")
    ((job,),) = client.rows("END")
    name = client.rows(f"DESCRIBE JOB '{job}'")[0][1]
    assert name == "insert-into_default_catalog.default_database.s1,default_catalog.default_database.s2"


SCRIPT = """
-- Nothing of it is seen by the session.
CREATE TABLE numbers (n BIGINT) WITH ('connector'='datagen', 'fields.n.kind'='sequence', 'fields.n.start'='1',
    'fields.n.end'='3', 'number-of-rows'='3');
CREATE TABLE found (n BIGINT) WITH ('connector'='filesystem', 'path'='{path}', 'format'='csv');
SELECT COUNT(*) FROM numbers;
INSERT INTO found SELECT n * 2 FROM numbers WHERE n > 1;
QUIT;
SHOW NONSENSE;
"""


@pytest.mark.parametrize("field", ["script", "scriptUri"])
def test_gateway_script_runs_as_application(gateway: Gateway, tmp_path: Path, field: str) -> None:
    client, out = Client(gateway), tmp_path / "out"
    text = SCRIPT.format(path=out)
    (tmp_path / "a script.sql").write_text(text)
    sent = text if field == "script" else (tmp_path / "a script.sql").as_uri()
    status, reported = client.send(
        f"{client.path}/scripts", "POST", {field: sent, "executionConfig": {"pipeline.name": f"by {field}"}}
    )
    assert status == 200 and re.fullmatch("script-[0-9a-f]{32}", reported["clusterID"]), reported
    # It does not end with the session that sent it.
    assert client.send(client.path, "DELETE") == (200, {"status": "CLOSED"})
    client = Client(gateway)
    eventually(lambda: [r[2] for r in client.rows("SHOW JOBS") if r[1] == f"by {field}"] == ["FINISHED"] * 2)
    assert sorted(line for file in out.glob("part-*") for line in file.read_text().split()) == ["4", "6"]
    assert "found" not in {row[0] for row in client.rows("SHOW TABLES")}


def test_gateway_failed_script_cancels_its_jobs_and_is_listed(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(gateway)
    text = f"{ENDLESS}; CREATE TABLE s (n BIGINT) WITH ('connector'='blackhole'); INSERT INTO s SELECT n FROM endless;"
    _, reported = client.send(
        f"{client.path}/scripts", "POST", {"script": f"SET 'pipeline.name' = 'begun'; {text} SELECT m FROM endless"}
    )
    eventually(lambda: [r[2] for r in client.rows("SHOW JOBS") if r[1] == "begun"] == ["CANCELED"])
    reason = "Statement 5 of 5 of the script failed: SQL validation failed. At line 1, column 8: Column 'm'"
    assert reason in caplog.text
    # The returned id alone is enough to find the failure.
    (script,) = (row for row in client.rows("SHOW JOBS") if row[1] == reported["clusterID"])
    assert script[2] == "FAILED" and script[0] == reported["clusterID"].removeprefix("script-")
    assert client.rows(f"DESCRIBE JOB '{script[0]}'")[0][2] == "FAILED"
    status, exceptions = client.send(f"/jobs/{script[0]}/exceptions")
    assert status == 200 and exceptions["root-exception"].startswith(reason)
    assert client.send(f"/jobs/{script[0]}")[1]["state"] == "FAILED"
    assert client.send(f"/jobs/{script[0]}/config")[0] == 200


@pytest.mark.parametrize("protocol", ["http", "memory"])
def test_gateway_reads_script_from_uri(gateway: Gateway, tmp_path: Path, protocol: str) -> None:
    text = "CREATE TABLE void (n INT) WITH ('connector' = 'blackhole'); INSERT INTO void VALUES (1)"
    client = Client(gateway)
    with served(tmp_path) if protocol == "http" else nullcontext("memory://scripts") as base:
        if protocol == "http":
            (tmp_path / "a.sql").write_text(text)
        else:
            fsspec.filesystem("memory").pipe_file("/scripts/a.sql", text.encode())
        body = {"scriptUri": f"{base}/a.sql", "executionConfig": {"pipeline.name": f"from {protocol}"}}
        status, reported = client.send(f"{client.path}/scripts", "POST", body)
    assert status == 200, reported
    eventually(lambda: [r[2] for r in client.rows("SHOW JOBS") if r[1] == f"from {protocol}"] == ["FINISHED"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "Please specify script content or uri."),
        ({"script": "SHOW JOBS", "scriptUri": "/x"}, "either the script uri or the script content, but not both"),
        ({"script": "-- nothing"}, "The script has no statement."),
        ({"script": "SHOW JOBS; SELEKT 1"}, "SQL parse failed"),
        ({"scriptUri": "/nowhere/a.sql"}, "The script '/nowhere/a.sql' cannot be read"),
        ({"scriptUri": "nowhere://bucket/a.sql"}, "The script 'nowhere://bucket/a.sql' cannot be read: Protocol not"),
        ({"scriptUri": "http://127.0.0.1:1/a.sql"}, "The script 'http://127.0.0.1:1/a.sql' cannot be read: <urlopen"),
    ],
)
def test_gateway_rejects_invalid_scripts(gateway: Gateway, body: dict[str, str], reason: str) -> None:
    client = Client(gateway)
    status, reported = client.send(f"{client.path}/scripts", "POST", body)
    assert status == 500 and "Failed to deploy script to cluster." in reported["errors"][0]
    assert reason in reported["errors"][0]


def test_gateway_rejects_bad_requests(gateway: Gateway) -> None:
    client = Client(gateway)
    operation = client.begin("SHOW TABLES")
    assert client.send("/v4/sessions/xx")[0] == 400
    assert client.send(f"{operation}/result/x?rowFormat=JSON")[0] == 400
    assert client.send(f"{operation}/result/0?rowFormat=XML")[0] == 400
    assert client.send("/v4/sessions", "POST", {"properties": [1]})[0] == 400
    status, reported = client.send(f"{client.path}/configure-session", "POST", {"statement": "SELECT 1"})
    assert status == 500 and "Unsupported statement for configuring session" in reported["errors"][0]
    assert "There is no statement" in client.refused("")
    assert "JSON cannot represent" in client.refused("SELECT MAP[1, 2]")


def test_gateway_completes_statements(gateway: Gateway) -> None:
    client = Client(gateway)
    client.rows("CREATE TABLE orders (id INT, price INT) WITH ('connector'='blackhole')")
    request = {"statement": "SELECT * FROM or", "position": 16}
    assert client.send(f"{client.path}/complete-statement", "GET", request)[1] == {"candidates": ["orders"]}


def test_gateway_rejects_requests_without_token(gateway: Gateway) -> None:
    original = gateway.token
    settings = {**SETTINGS, "sql-gateway.endpoint.rest.port": "auto", "millstream.rest.token": "secret"}
    gateway = Gateway(settings)
    gateway.start()
    try:
        for token in (None, original):
            assert flinks.send(gateway.url, "/v2/sessions", "POST", {}, token)[0] == 401
        # The token is set by an option: it is in no file, and sessions do not show it.
        assert gateway.token == "secret" and gateway.token_file is None
        client = Client(gateway)
        assert "millstream.rest.token" not in client.send(client.path)[1]["properties"]
        # The page itself shows no job.
        with urllib.request.urlopen(f"{gateway.url}/ui", timeout=30) as page:
            assert page.status == 200
    finally:
        gateway.stop()
    with pytest.raises(InvalidProgramError, match="set millstream.rest.token"):
        Gateway({"sql-gateway.endpoint.rest.port": "auto", "sql-gateway.endpoint.rest.bind-address": "0.0.0.0"})


def test_gateway_generates_random_token(gateway: Gateway) -> None:
    another = Gateway({**SETTINGS, "sql-gateway.endpoint.rest.port": "auto"})
    another.start()
    another.stop()
    assert another.token != gateway.token and min(len(another.token), len(gateway.token)) >= 43


def test_gateway_restores_foreign_savepoint_only_with_token(gateway: Gateway, tmp_path: Path) -> None:
    mark = tmp_path / "attacked"
    location = foreign_savepoint(tmp_path / "foreign", mark)
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    key.chmod(0o600)
    client = Client(gateway, **{"execution.state-recovery.ignore-unclaimed-state": "true"})
    client.rows("CREATE TABLE few (n BIGINT) WITH ('connector'='datagen','number-of-rows'='1')")
    client.rows("CREATE TABLE s (n BIGINT) WITH ('connector'='blackhole')")
    attack = f"SET 'execution.state-recovery.path' = '{location}'"
    # The session id alone, without the token, is rejected at every version.
    for version in (1, 2, 3, 4):
        for path, body in (
            ("statements", {"statement": attack}),
            ("statements", {"statement": "INSERT INTO s SELECT n FROM few", "executionConfig": {}}),
            ("configure-session", {"statement": attack}),
        ):
            uri = f"{client.path.replace('/v4', f'/v{version}')}/{path}"
            for token in (None, "guessed"):
                assert flinks.send(gateway.url, uri, "POST", body, token)[0] == 401
    assert "execution.state-recovery.path" not in client.send(client.path)[1]["properties"]
    assert not mark.exists()
    # With the token, the state is restored, unless a signing key is set that did not sign it.
    client.rows(attack)
    client.rows(f"SET 'millstream.state.signing-key-file' = '{key}'")
    assert "_metadata is not signed" in client.refused("INSERT INTO s SELECT n FROM few")
    assert not mark.exists()
    client.rows("RESET 'millstream.state.signing-key-file'")
    client.rows("INSERT INTO s SELECT n FROM few")
    eventually(mark.exists)


# --- operations, without a gateway

FIELDS = Fields((Field("n", DataTypes.BIGINT()),))


def outcome(batches: Iterator[Batch]) -> Outcome:
    return Outcome(read_statement("SELECT 1"), FIELDS, batches, "UTC", False, True, OkResult())


def numbers(*values: int) -> Batch:
    return Batch([pa.array(values, pa.int64())])


def started(batches: Iterator[Batch], timeout: float = 0.0) -> Operation:
    operation = Operation(lambda: outcome(batches), timeout)
    operation.start()
    return operation


def fetched(operation: Operation, token: int) -> tuple[list[int], int | None]:
    piece = operation.fetch(token)
    return [v for b in piece.batches for v in b.columns[0].to_pylist()], piece.next_token


def test_operation_fetch_repeats_rows_of_last_token() -> None:
    operation = started(iter([numbers(1, 2)]))
    eventually(lambda: operation.status == "FINISHED")
    assert fetched(operation, 0) == ([1, 2], 1)
    assert fetched(operation, 0) == ([1, 2], 1)
    assert operation.fetch(1).kind == "EOS"
    assert operation.fetch(1).kind == "EOS"
    with pytest.raises(OperationError, match="Expecting token to be 1 or 0, but found 7"):
        operation.fetch(7)
    with pytest.raises(OperationError, match="from FINISHED to CANCELED"):
        operation.cancel()


def test_operation_fetch_returns_rows_before_failure() -> None:
    def failing() -> Iterator[Batch]:
        yield numbers(1)
        raise ValidationException("too much")

    operation = started(failing())
    eventually(lambda: operation.status == "ERROR")
    assert fetched(operation, 0) == ([1], 1)
    with pytest.raises(ValidationException, match="too much"):
        operation.fetch(1)


def test_operation_backpressures_query_when_rows_are_not_fetched() -> None:
    produced: list[int] = []

    def many() -> Iterator[Batch]:
        for i in range(100):
            produced.append(i)
            yield numbers(*range(1000))

    operation = started(many())
    eventually(lambda: len(produced) >= 6)
    time.sleep(0.2)
    assert len(produced) == 6
    rows, token = fetched(operation, 0)
    assert len(rows) == 5000 and token == 1
    eventually(lambda: len(produced) > 6)
    operation.close()


def test_operation_times_out() -> None:
    resume = threading.Event()

    def slow() -> Outcome:
        resume.wait(60)
        return outcome(iter([]))

    operation = Operation(slow, 0.01)
    operation.start()
    eventually(lambda: operation.status == "TIMEOUT")
    with pytest.raises(OperationError, match="in TIMEOUT status"):
        operation.fetch(0)
    resume.set()


# --- sessions, without a gateway


def test_sessions_close_when_idle_and_are_limited() -> None:
    now = [0.0]
    config = Configuration.from_dict({"sql-gateway.session.idle-timeout": "10 s", "sql-gateway.session.max-num": "2"})
    sessions = Sessions(lambda properties: Session({**SETTINGS, **properties}, Registry()), config, lambda: now[0])
    first, second = sessions.open({}), sessions.open({})
    with pytest.raises(TableException, match="exceeds the max count: 2"):
        sessions.open({})
    now[0] = 8.0
    sessions.find(second)
    now[0] = 12.0
    sessions.close_idle()
    with pytest.raises(TableException, match=f"Session '{first}' does not exist"):
        sessions.find(first)
    assert sessions.find(second)


# --- values and names


def test_values_as_json_encodes_nested_values_and_nulls() -> None:
    kind = DataTypes.ARRAY(DataTypes.ROW([DataTypes.FIELD("a", DataTypes.DECIMAL(38, 2))]))
    column = pa.array([[{"a": None}], None, [], [{"a": 10}, None]], pa.list_(pa.struct([("a", pa.decimal128(38, 2))])))
    assert values_as_json(column, kind) == ['[{"a":null}]', "null", "[]", '[{"a":10},null]']
    assert values_as_json(column.slice(3), kind) == ['[{"a":10},null]']
    max_decimal = pa.array([None, "99999999999999999999999999999999999999"], pa.string()).cast(pa.decimal128(38, 0))
    assert values_as_json(max_decimal, DataTypes.DECIMAL(38, 0)) == ["null", "9" * 38]


WORDS = Vocabulary({"orders": ["id", "price"], "pets": ["pet"]}, ["abs", "power"], "c.d", ["c"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM p", ["pets"]),
        ("SELECT * FROM orders, p", ["pets"]),
        ("INSERT INTO o", ["orders"]),
        ("SELECT p", ["PARTITION BY", "pet", "pets", "POWER", "price"]),
        ("SELECT o.p| FROM orders AS o", ["o.price"]),
        ("SELECT p| FROM orders WHERE", ["PARTITION BY", "pets", "POWER", "price"]),
        ("SHOW T", ["SHOW TABLES"]),
        ("SET 'a' = 'b'; SHOW TAB", ["SHOW TABLES"]),
        ("SELECT id FROM orders wh", ["WHEN", "WHERE"]),
    ],
)
def test_candidates_complete_words_by_position(text: str, expected: list[str]) -> None:
    position = text.find("|") if "|" in text else len(text)
    assert candidates(text.replace("|", ""), position, WORDS) == expected
