"""The job service: REST over jobs that run in this process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from millstream.checkpoint.storage import open_storage
from millstream.cli.main import cli
from millstream.common import WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.common.job_client import JobClient
from millstream.common.masking import masked
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import SplitEnumerator
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.operators.runtime.messages import LogLine, SlotLocation, SlotReport
from millstream.service.app import Service, make_app
from millstream.service.archive import ArchiveDirectory, ArchiveStore, history_app
from millstream.service.auth_and_cache import Front
from millstream.service.logs import JobOutput
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.request_limits import RequestChecks
from millstream.service.responses.cluster import Slots
from millstream.service.run_file import running_services
from millstream.service.server import PublicServer, service_of
from millstream.service.workers import ExecutorUse, workers_of
from millstream.spark.executors import Executor
from tests.support.helpers import job_of

LOCAL = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "2"}


class World:
    """A registry, its jobs, and a client of the service."""

    def __init__(self) -> None:
        self.registry = Registry()
        app = make_app(Service(self.registry, {"s3.secret-key": "x"}, slots=4))
        self.client = TestClient(RequestChecks(app, frozenset({"testserver"})))
        self.started: list[JobClient] = []

    def start(
        self,
        name: str,
        function: Any = lambda x: x,
        end: int = 10**9,
        source: Any = NumberSequenceSource,
        **settings: str,
    ) -> str:
        configuration = Configuration.from_dict({**LOCAL, **{k.replace("__", "."): v for k, v in settings.items()}})
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        numbers = env.from_source(source(1, end), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(function).key_by(lambda x: x % 10).reduce(lambda a, b: a + b).add_sink(lambda v: None)
        client = env.execute_async(name)
        self.started.append(client)
        self.registry.add(job_of(client), configuration.to_dict())
        return str(client.get_job_id())

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def until(self, path: str, holds: Any) -> Any:
        end = time.monotonic() + 20
        while not holds(answer := self.get(path)):
            assert time.monotonic() < end, answer
            time.sleep(0.02)
        return answer


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for client in world.started:
        client.cancel().result()


def runs(job: dict[str, Any]) -> bool:
    return bool(job["state"] == "RUNNING" and job["status-counts"]["RUNNING"] == 2)


def test_rest_shows_job_vertices_subtasks_and_rates(world: World) -> None:
    job = world.start("counting")
    seen = world.until(f"/jobs/{job}", runs)
    assert seen["name"] == "counting" and seen["end-time"] == -1 and seen["timestamps"]["FAILED"] == 0
    source, reduce = seen["vertices"]
    assert source["name"] == "Source: numbers -> Map" and source["tasks"]["RUNNING"] == 2
    nodes = {n["id"]: n for n in seen["plan"]["nodes"]}
    assert nodes[reduce["id"]]["inputs"][0]["id"] == source["id"]
    world.registry.sample()
    path = f"/v1/jobs/{job}/vertices/{source['id']}"
    world.until(f"{path}/subtasks/metrics?get=numRecordsInPerSecond", lambda m: m[0]["min"] > 0)
    world.until(path, lambda v: all(s["metrics"]["read-records"] > 0 for s in v["subtasks"]))
    spent = world.get(f"{path}/subtasks/metrics?get=busyTimeMsPerSecond,idleTimeMsPerSecond&agg=max")
    assert [set(m) for m in spent] == [{"id", "max"}] * 2
    assert len(world.get(f"{path}/watermarks")) == 2
    assert {m["id"] for m in world.get(f"{path}/metrics")} >= {"0.numRecordsIn", "1.busyTimeMsPerSecond"}
    one = world.get(f"{path}/subtasks/1")
    assert one["subtask"] == 1 and set(one["status-duration"]) >= {"CREATED", "DEPLOYING", "RUNNING"}


class Waiting(NumberSequenceSource):
    """A source that reports its pending records."""

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        inner = super().create_enumerator(parallelism, restored)
        poll = inner.poll
        inner.poll = lambda budget, now: replace(poll(budget, now), unassigned={0: 17})  # type: ignore[method-assign]
        return inner


def test_rest_shows_source_lag_as_metric(world: World) -> None:
    job = world.start("behind", source=Waiting)
    seen = world.until(f"/jobs/{job}", runs)
    path = f"/jobs/{job}/vertices/{seen['vertices'][0]['id']}/subtasks/metrics?get=pendingRecords"
    metrics = world.until(path, lambda m: len(m) == 1)
    assert metrics[0]["sum"] == 17
    behind = f"/jobs/{job}/vertices/{seen['vertices'][1]['id']}/metrics"
    assert not any("pendingRecords" in m["id"] for m in world.get(behind))


def test_rest_job_lists_count_tasks(world: World) -> None:
    first, second = world.start("one"), world.start("two", end=10)
    jobs = world.until(
        "/jobs/overview", lambda o: {j["name"]: j["state"] for j in o["jobs"]} == {"one": "RUNNING", "two": "FINISHED"}
    )
    assert [j["jid"] for j in jobs["jobs"]] == [first, second]
    assert jobs["jobs"][1]["tasks"]["finished"] == jobs["jobs"][1]["tasks"]["total"] == 4
    assert world.get("/overview")["jobs-running"] == 1
    assert world.get(f"/jobs/{second}/execution-result")["job-execution-result"]["application-status"] == "SUCCEEDED"
    assert {a["status"] for a in world.get("/applications/overview")["applications"]} == {"RUNNING", "FINISHED"}


def test_rest_takes_savepoint_stops_and_cancels_jobs(world: World, tmp_path: Any) -> None:
    job, other = world.start("stopped"), world.start("cancelled")
    world.until(f"/jobs/{job}", runs)
    trigger = "ab" * 16
    body = {"target-directory": str(tmp_path), "cancel-job": False, "triggerId": trigger}
    begun = world.client.post(f"/jobs/{job}/savepoints", json=body)
    assert begun.status_code == 202 and begun.json() == {"request-id": trigger}
    done = world.until(f"/jobs/{job}/savepoints/{trigger}", lambda a: a["status"]["id"] == "COMPLETED")
    assert os.path.exists(os.path.join(done["operation"]["location"].removeprefix("file://"), "_metadata"))
    begun = world.client.post(f"/jobs/{job}/stop", json={"targetDirectory": str(tmp_path), "drain": False})
    path = f"/jobs/{job}/savepoints/{begun.json()['request-id']}"
    world.until(path, lambda a: a["status"]["id"] == "COMPLETED")
    world.until(f"/jobs/{job}", lambda j: j["state"] == "FINISHED")
    assert world.client.patch(f"/jobs/{other}?mode=cancel", json={}).status_code == 202
    world.until(f"/jobs/{other}", lambda j: j["state"] == "CANCELED")
    assert world.client.patch(f"/jobs/{job}?mode=cancel").status_code == 409
    assert world.client.post(f"/jobs/{job}/savepoints", json=body).status_code == 404


def test_rest_savepoint_failure_reports_cause(world: World) -> None:
    job = world.start("failing")
    world.until(f"/jobs/{job}", runs)
    refused = world.client.post(f"/jobs/{job}/savepoints", json={})
    assert refused.status_code == 400 and "savepoint-dir" in refused.json()["errors"][0]
    begun = world.client.post(f"/jobs/{job}/savepoints", json={"target-directory": "/proc/nowhere"})
    path = f"/jobs/{job}/savepoints/{begun.json()['request-id']}"
    done = world.until(path, lambda a: a["status"]["id"] == "COMPLETED")
    assert "/proc/nowhere" in done["operation"]["failure-cause"]["stack-trace"]


def test_rest_rescales_job(world: World) -> None:
    job = world.start("rescaled")
    world.until(f"/jobs/{job}", runs)
    assert world.client.patch(f"/jobs/{job}/rescaling?parallelism=nine").status_code == 400
    begun = world.client.patch(f"/jobs/{job}/rescaling?parallelism=3")
    path = f"/jobs/{job}/rescaling/{begun.json()['request-id']}"
    world.until(path, lambda a: a["status"]["id"] == "COMPLETED")
    assert {v["parallelism"] for v in world.until(f"/jobs/{job}", runs)["vertices"]} == {3}


def test_rest_shows_failures_with_user_traceback(world: World) -> None:
    def breaks(x: int) -> int:
        return x // (x - x)

    job = world.start("breaking", breaks)
    world.until(f"/jobs/{job}", lambda j: j["state"] == "FAILED")
    exceptions = world.get(f"/jobs/{job}/exceptions")
    (entry,) = exceptions["exceptionHistory"]["entries"]
    assert "ZeroDivisionError" in entry["stacktrace"] and "breaks" in entry["stacktrace"]
    assert entry["taskName"] == "Source: numbers -> Map"
    assert exceptions["root-exception"] == entry["stacktrace"]


def test_rest_counts_and_describes_checkpoints(world: World) -> None:
    job = world.start("checkpointed", execution__checkpointing__interval="50 ms")
    checkpoints = world.until(f"/jobs/{job}/checkpoints", lambda c: c["counts"]["completed"] > 1)
    newest = checkpoints["latest"]["completed"]
    assert newest["status"] == "COMPLETED" and newest["end_to_end_duration"] >= 0
    details = world.get(f"/jobs/{job}/checkpoints/details/{newest['id']}")
    assert len(details["tasks"]) == 2
    assert world.get(f"/jobs/{job}/checkpoints/config")["interval"] == 50
    world.get(f"/jobs/{job}/checkpoints/details/999999", 404)
    begun = world.client.post(f"/jobs/{job}/checkpoints", json={}).json()["request-id"]
    done = world.until(f"/jobs/{job}/checkpoints/{begun}", lambda a: a["status"]["id"] == "COMPLETED")
    assert done["operation"]["checkpointId"] > 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/jobs/xyz", 400),
        (f"/jobs/{'0' * 32}", 404),
        (f"/jobs/{'0' * 32}/checkpoints", 404),
        ("/taskmanagers/other", 404),
        ("/jobmanager/logs/..%2F..%2Fetc%2Fpasswd", 404),
        (f"/savepoint-disposal/{'0' * 32}", 404),
    ],
)
def test_rest_returns_errors_for_unknown_paths(world: World, path: str, status: int) -> None:
    assert list(world.get(path, status)) == ["errors"]


def test_rest_rejects_bad_requests(world: World) -> None:
    job = world.start("queried")
    path = f"/jobs/{job}/savepoints"
    assert world.client.post(path, content=b"not json").status_code == 400
    assert world.client.post(path, content=b"[1]").status_code == 400
    assert world.client.post(path, content=b"x" * (1 << 21)).status_code == 413
    assert world.client.get("/" + "a" * 5000).status_code == 414
    assert world.client.delete(f"/jobs/{job}").status_code == 405


def test_rest_masks_secrets(world: World) -> None:
    assert world.get("/jobmanager/config") == [{"key": "s3.secret-key", "value": "******"}]
    assert masked({"sasl.password": "a", "my.apiKey": "b", "x": "c"}) == {
        "sasl.password": "******",
        "my.apiKey": "******",
        "x": "c",
    }
    job = world.start("secret", my__token="no-hex-digits")
    assert world.get(f"/jobs/{job}/config")["execution-config"]["user-config"]["my.token"] == "******"
    assert "no-hex-digits" not in json.dumps(world.get(f"/jobs/{job}"))


def test_prometheus_endpoint_exports_job_and_task_metrics(world: World) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    job = world.start("watched", execution__checkpointing__interval="50 ms")
    world.until(f"/jobs/{job}/checkpoints", lambda c: c["counts"]["completed"] > 0)
    text = world.client.get("/metrics").text
    samples = {s.name: s for f in text_string_to_metric_families(text) for s in f.samples}
    assert samples["flink_jobmanager_job_numberOfCompletedCheckpoints"].value > 0
    read = samples["flink_taskmanager_job_task_numRecordsIn"]
    assert read.value > 0 and read.labels["job_name"] == "watched" and read.labels["subtask_index"] == "1"


def test_rest_rejects_requests_without_token() -> None:
    client = TestClient(make_app(Service(Registry(), token="right")))
    assert client.get("/jobs").status_code == 401
    assert client.get("/jobs", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/jobs", headers={"Authorization": "Bearer right"}).status_code == 200


def test_service_options_require_token_for_public_address() -> None:
    def read(**settings: str) -> ServiceOptions | None:
        return ServiceOptions.read(Configuration.from_dict({k.replace("__", "."): v for k, v in settings.items()}))

    assert read() is None
    with pytest.raises(InvalidProgramError, match=r"rest.bind-address is 0.0.0.0.*millstream.rest.token"):
        read(rest__port="8081", rest__address="0.0.0.0")
    with pytest.raises(InvalidProgramError, match=r"rest.bind-address is example.org.*millstream.rest.token"):
        read(rest__port="8081", rest__address="example.org")
    for own in ("localhost", "127.0.0.2", "::1"):
        assert read(rest__port="8081", rest__address=own) is not None
    options = read(rest__port="8081", rest__address="0.0.0.0", millstream__rest__token="t")
    assert options is not None and options.ports == (8081,)
    with pytest.raises(InvalidProgramError, match="a port, a range"):
        read(rest__port="80 81")


def ended(world: World, count: int) -> None:
    """Wait until the registry shows that `count` jobs have ended."""
    for client in world.started[:count]:
        client.get_job_execution_result().result()
    end = time.monotonic() + 10
    while any(e.ended_at is None for e in world.registry.entries()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_registry_expires_ended_jobs(world: World) -> None:
    now = [0.0]
    world.registry = Registry(lambda: now[0])
    world.registry.configure(
        Configuration.from_dict({"jobstore.max-capacity": "1", "jobstore.expiration-time": "10 s"})
    )
    first = world.start("a", end=3)
    ended(world, 1)
    now[0] += 1
    second = world.start("b", end=3)
    ended(world, 2)
    assert [e.view.job_id for e in world.registry.entries()] == [second] != [first]
    now[0] += 20
    assert world.registry.entries() == []


def test_cli_finds_jobs_of_other_processes(world: World, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    job = world.start("found", execution__checkpointing__interval="1 s")
    world.until(f"/jobs/{job}", runs)
    options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto", "millstream.rest.token": "secret"}))
    assert options is not None
    server = PublicServer(make_app(service_of(world.registry, {}, options.token, 1000)), options)
    server.start()
    try:
        (run_file,) = (tmp_path / "millstream").iterdir()
        assert stat.S_IMODE(run_file.stat().st_mode) == 0o600
        run = CliRunner().invoke
        assert job in run(cli, ["list"]).output
        listed = json.loads(run(cli, ["list", "--json"]).output)
        assert [j["jid"] for j in listed] == [job]
        assert "Source: numbers -> Map" in run(cli, ["top", "found"]).output
        assert run(cli, ["explain", "found"]).output == "No bottleneck found.\n"
        assert json.loads(run(cli, ["explain", "found", "--json"]).output) == []
        logging.getLogger("millstream").warning("something to be seen")
        assert "something to be seen" in run(cli, ["logs", "-n", "5"]).output
        result = run(cli, ["savepoint", job[:6], str(tmp_path / "saved")])
        assert "Savepoint of job" in result.output, result.output
        assert "is complete" in run(cli, ["checkpoint", job]).output
        result = json.loads(run(cli, ["checkpoint", job, "--json"]).output)
        assert result["job"] == job and result["checkpoint"] > 0
        result = json.loads(run(cli, ["savepoint", job, str(tmp_path / "saved"), "--json"]).output)
        assert result["job"] == job and result["savepoint"].startswith(str(tmp_path / "saved"))
        disposed = json.loads(run(cli, ["savepoint", "dispose", result["savepoint"], "--json"]).output)
        assert disposed == {"deleted": result["savepoint"], "left": []}
        result = json.loads(run(cli, ["rescale", job, "-p", "1", "--json"]).output)
        assert result == {"job": job, "parallelism": 1}
        assert "something to be seen" in "".join(json.loads(run(cli, ["logs", "--json"]).output)["lines"])
        assert "something to be seen" in run(cli, ["logs", "found"]).output
        assert json.loads(run(cli, ["logs", "found", "--stdout", "--json"]).output)["lines"] == []
        (vertex, _) = json.loads(run(cli, ["top", "found", "--json"]).output)
        assert {"name", "parallelism", "state", "busy", "back_pressured", "in", "out", "watermark"} <= set(vertex)
        (line,) = json.loads(run(cli, ["top", "--json"]).output)
        assert line["job"] == job and {"name", "state", "in", "busiest", "busy"} <= set(line)
        # The state of a key, while the job runs.
        result = run(cli, ["state", "show", "found", "-o", "Reduce", "-k", "7", "--json"])
        assert result.exit_code == 0, result.stderr
        shown = json.loads(result.output)
        ((row,),) = (s["rows"] for s in shown if s["rows"])
        assert row["key"] == 7 and row["value"] > 0
        refused = run(cli, ["cancel", "nobody"])
        assert refused.exit_code == 1 and "There is no job nobody" in refused.output
        assert json.loads(run(cli, ["cancel", job, "--json"]).output) == {"job": job, "savepoint": None}
        world.until(f"/jobs/{job}", lambda j: j["state"] == "CANCELED")
        assert json.loads(run(cli, ["list", "--json"]).output) == []
        refused = run(cli, ["list", "-m", server.url.removeprefix("http://"), "--token", "wrong"])
        assert refused.exit_code == 1 and "token" in refused.output
    finally:
        server.stop()
    assert list(running_services()) == []


def test_run_file_of_dead_process_is_deleted(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = tmp_path / "millstream"
    directory.mkdir(mode=0o700)
    import socket

    owner = {"job": "x", "host": socket.gethostname(), "pid": 2**22 - 1, "started": "1"}
    (directory / "77.json").write_text(
        json.dumps({"url": "http://127.0.0.1:1", "token": None, "kind": "jobs", "owner": owner})
    )
    assert list(running_services()) == []
    assert list(directory.iterdir()) == []


def test_environment_serves_nothing_by_default() -> None:
    before = threading.active_count()
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(LOCAL))
    env.from_collection([1]).add_sink(lambda v: None)
    env.execute()
    assert not any(t.name == "millstream-rest" for t in threading.enumerate())
    assert threading.active_count() <= before + 1


def test_environment_serves_jobs_when_rest_port_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**LOCAL, "rest.port": "auto", "millstream.quiet": "false"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.from_collection([1]).add_sink(lambda v: None)
    env.execute("served")
    reported = capsys.readouterr().err
    assert reported.count("millstream: jobs are served at http://127.0.0.1:") == 1
    url = reported.split("served at ")[1].split()[0]
    with urllib.request.urlopen(f"{url}/jobs/overview") as answer:
        # Other tests of this process may have started a server.
        assert "served" in [j["name"] for j in json.load(answer)["jobs"]]


def test_history_serves_archived_jobs(tmp_path: Any) -> None:
    def breaks(x: int) -> int:
        return 1 // (5 - x)

    archives = tmp_path / "archives"
    settings = {**LOCAL, "jobmanager.archive.fs.dir": str(archives), "execution.checkpointing.interval": "20 ms"}
    settings["restart-strategy.type"] = "none"
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.from_source(NumberSequenceSource(1, 1000), WatermarkStrategy.no_watermarks(), "numbers").add_sink(
        lambda v: None
    )
    done = env.execute("archived")
    env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "few").map(breaks).print()
    with pytest.raises(JobExecutionError):
        env.execute("broken")
    end = time.monotonic() + 10
    while len(list(archives.glob("?" * 32))) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    (archives / "0123").write_text("no archive")
    (archives / ("0" * 32)).write_text("{}")
    store = ArchiveStore()
    directory = ArchiveDirectory(open_storage(str(archives)), store)
    directory.refresh()
    client = TestClient(history_app(store, {}, None, 1000))

    def get(path: str, status: int = 200) -> Any:
        answer = client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    listed = get("/v1/jobs/overview")["jobs"]
    assert [(j["name"], j["state"]) for j in listed] == [("archived", "FINISHED"), ("broken", "FAILED")]
    job, broken = (j["jid"] for j in listed)
    assert job == done.get_job_id() and get("/overview")["jobs-failed"] == 1
    assert get("/config")["features"]["web-history"] is True
    seen = get(f"/jobs/{job}")
    (vertex,) = seen["vertices"]
    path = f"/jobs/{job}/vertices/{vertex['id']}"
    assert get(f"/jobs/{job}/status") == {"status": "FINISHED"} and seen["end-time"] > 0
    summed = get(f"{path}/subtasks/metrics?get=numRecordsIn&agg=sum,max")
    assert summed == [{"id": "numRecordsIn", "sum": 1000, "max": 500}]
    assert get(f"{path}/metrics?get=0.numRecordsIn") == [{"id": "0.numRecordsIn", "value": "500"}]
    assert get(f"{path}/subtasks/1/metrics?get=numRecordsIn") == [{"id": "numRecordsIn", "value": "500"}]
    assert get(f"{path}/subtasks/1")["status"] == "FINISHED" == get(path)["subtasks"][1]["status"]
    assert get(f"/jobs/{job}/checkpoints/config")["interval"] == 20
    assert "ZeroDivisionError" in get(f"/jobs/{broken}/exceptions")["root-exception"]
    get(f"/jobs/{job}/savepoints/{'0' * 32}", 404)
    get(f"{path}/subtasks/7", 404)
    assert client.patch(f"/jobs/{job}").status_code == 409
    assert client.post(f"/jobs/{job}/savepoints").status_code == 404
    (archives / job).unlink()
    directory.refresh()
    get(f"/jobs/{job}", 404)


def test_front_caches_answers_until_change() -> None:
    now = [0.0]
    requests: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        requests.append(scope["path"])
        await PlainTextResponse(str(len(requests)))(scope, receive, send)

    client = TestClient(Front(app, "t", 1.0, lambda: now[0]), headers={"Authorization": "Bearer t"})
    assert [client.get("/jobs").text for _ in range(3)] == ["1", "1", "1"]
    assert (
        client.get("/jobs?a=1").text == "2" and client.get("/jobs", headers={"Authorization": "x"}).status_code == 401
    )
    now[0] = 1.5
    assert client.get("/jobs").text == "3"
    client.patch("/jobs")
    assert client.get("/jobs").text == "5"
    polled = f"/jobs/{'0' * 32}/savepoints/{'1' * 32}"
    assert [client.get(polled).text for _ in range(2)] == ["6", "7"]
    assert [client.get("/jars").text for _ in range(2)] == ["8", "9"]


def test_rest_queries_state_by_operator_state_and_key(world: World) -> None:
    job = world.start("queried", execution__checkpointing__interval="1 h")
    world.until(f"/jobs/{job}", runs)
    assert "no complete checkpoint" in world.get(f"/jobs/{job}/state", 404)["errors"][0]
    begun = world.client.post(f"/jobs/{job}/checkpoints", json={}).json()["request-id"]
    world.until(f"/jobs/{job}/checkpoints/{begun}", lambda a: a["status"]["id"] == "COMPLETED")
    world.until(f"/jobs/{job}/checkpoints", lambda c: c["latest"].get("completed"))
    (operator,) = world.get(f"/jobs/{job}/state")["operators"]
    (state,) = operator["states"]
    assert state["rows"] == 10
    path = f"/jobs/{job}/state/{operator['operator']}/{state['name']}"
    answer = world.get(f"{path}?key=3")
    (row,) = answer["rows"]
    assert row["key"] == 3 and row["value"] > 0 and answer["complete"]
    assert len(world.get(path)["rows"]) == 10 and world.get(f"{path}?key=nobody")["rows"] == []
    assert "has no state 'other'" in world.get(f"/jobs/{job}/state/{operator['operator']}/other", 404)["errors"][0]
    # The query did not stop the job.
    assert world.get(f"/jobs/{job}")["state"] == "RUNNING"


def test_cli_prints_shell_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = CliRunner().invoke(cli, ["completion", "bash"]).output
    assert "_MILLSTREAM_COMPLETE=bash_complete" in reported
    monkeypatch.setenv("COMP_WORDS", "millstream sav")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_MILLSTREAM_COMPLETE", "bash_complete")
    assert "plain,savepoint" in CliRunner().invoke(cli, [], prog_name="millstream").output


def test_run_detached_requires_running_cluster(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    program = tmp_path / "job.py"
    program.write_text("raise AssertionError('not here')")
    run = CliRunner().invoke
    for words in (["run", "-d", str(program)], ["run", "-t", "session", str(program)], ["cluster", "status"]):
        result = run(cli, words)
        assert result.exit_code == 1 and "`millstream cluster start -d` starts one" in result.output
    assert run(cli, ["run", "-d", "--local", str(program)]).exit_code == 2
    assert run(cli, ["run", "-d", "-t", "local", str(program)]).exit_code == 2


def test_history_command_serves_archives(tmp_path: Any) -> None:
    job = "ab" * 16
    line = {"jid": job, "name": "old", "state": "FINISHED", "start-time": 1, "end-time": 2, "tasks": {"total": 0}}
    archived = [{"path": "/jobs/overview", "json": json.dumps({"jobs": [line]})}]
    (tmp_path / job).write_text(json.dumps({"archive": archived}))
    (tmp_path / "run").mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "history", str(tmp_path), "-p", "auto"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run")},
    )
    with process:
        try:
            assert process.stderr is not None
            message = process.stderr.readline()
            assert message.startswith(f"millstream: 1 ended job of {tmp_path} served at http://127.0.0.1:")
            with urllib.request.urlopen(f"{message.split()[-1]}/jobs") as answer:
                assert json.load(answer) == {"jobs": [{"id": job, "status": "FINISHED"}]}
        finally:
            process.terminate()
    assert process.returncode == 0
    assert list((tmp_path / "run" / "millstream").iterdir()) == []


class SlowAnswers:
    """An application with slow responses; `n_answers` counts them."""

    def __init__(self) -> None:
        self.n_answers = 0
        self.may_answer = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.n_answers += 1
        number = self.n_answers
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % number})


def request_task(front: Front) -> asyncio.Task[bytes]:
    async def request() -> bytes:
        body: list[bytes] = []

        async def send(message: Any) -> None:
            body.append(message.get("body", b""))

        scope = {"type": "http", "path": "/jobs", "method": "GET", "query_string": b"", "headers": []}
        await front(scope, None, send)  # type: ignore[arg-type]
        return b"".join(body)

    return asyncio.create_task(request())


def test_front_shares_answer_of_concurrent_requests() -> None:
    async def run() -> None:
        now = [0.0]
        app = SlowAnswers()
        front = Front(app, None, 1.0, lambda: now[0])
        clients = [request_task(front) for _ in range(200)]
        await asyncio.sleep(0)
        # Computing the response takes longer than the cache retains it.
        now[0] = 5.0
        app.may_answer.set()
        assert await asyncio.gather(*clients) == [b"1"] * 200
        assert await request_task(front) == b"1"
        now[0] = 6.5
        assert await request_task(front) == b"2"

    asyncio.run(run())


def test_front_repeats_answer_when_first_client_disconnects() -> None:
    async def run() -> None:
        app = SlowAnswers()
        front = Front(app, None, 1.0, lambda: 0.0)
        first, second = request_task(front), request_task(front)
        await asyncio.sleep(0)
        first.cancel()
        app.may_answer.set()
        assert await second == b"2"
        assert await request_task(front) == b"2"

    asyncio.run(run())


def test_job_output_is_stored_by_job_and_executor() -> None:
    job_output = JobOutput()
    for slot, executor in enumerate(("0", "1")):
        location = SlotLocation(executor, "host", 1)
        job_output.on_report("job", SlotReport(level=0, slot=slot, subtasks=[], printed="", location=location))
    line = LogLine("shop", logging.WARNING, "no price, token=abc", 12.0, "prices")
    job_output.on_report("job", SlotReport(level=0, slot=1, subtasks=[], printed="hello\n", logged=[line]))
    assert job_output.logged(executor="0") == [] and job_output.printed(executor="0") == ""
    ((source, text),) = job_output.logged(executor="1")
    assert source == 12.0 and "WARNING shop - [prices" in text and text.endswith("no price, token=******")
    assert job_output.logged(job="job") == job_output.logged() == [(source, text)]
    # print() writes on the driver, so its output belongs to the job.
    job_output.on_printed("job", "1> a\n")
    assert job_output.printed(job="job") == "hello\n1> a\n" and job_output.printed(executor="1") == "hello\n"


def test_executors_share_slots() -> None:
    def executor(name: str, cores: int) -> Executor:
        return Executor(
            id=name, address=f"host{name}:1", cores=cores, memory=100, used=1, active_tasks=0, failed_tasks=0,
            completed_tasks=0, started_ms=0, gc_ms=5, logs={"stderr": "http://host/logPage/?x"},
        )  # fmt: skip

    executors = [executor("10", 2), executor("2", 2), executor("0", 4)]
    workers = workers_of(executors, Slots(8, 3), {"0": ExecutorUse(4, 8, 1000), "2": ExecutorUse(1, 2, 1000)})
    assert [w.id for w in workers] == ["0", "2", "10"]
    assert [(w.slots.total, w.slots.free, w.tasks) for w in workers] == [(4, 0, 8), (2, 1, 2), (2, 2, 0)]
    assert workers[0].metrics["Status.JVM.GarbageCollector.All.Time"] == 5


def _commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from _commands(subcommand, (*words, name))
    else:
        yield words, command


# Commands that print no facts: they run programs, or write files.
NO_FACTS = {("run",), ("completion",), ("cluster", "start"), ("cluster", "stop"), ("state", "export"), ("replay",)}
# The SQL command prints rows; the gateway serves programs; init and demo talk to people.
NO_FACTS |= {("sql",), ("sql-gateway",), ("init",), ("demo",)}


def test_cli_commands_offer_json_output() -> None:
    commands = dict(_commands(cli))
    lacking = {words for words, command in commands.items() if not any("--json" in p.opts for p in command.params)}
    assert lacking <= NO_FACTS, lacking - NO_FACTS
    # Shells complete all of them, and their options.
    complete = ShellComplete(cli, {}, "millstream", "_MILLSTREAM_COMPLETE")
    for words, command in commands.items():
        offered = {item.value for item in complete.get_completions(list(words[:-1]), "")}
        assert words[-1] in offered, words
        options = {item.value for item in complete.get_completions(list(words), "--")}
        assert {o for p in command.params for o in p.opts if o.startswith("--")} <= options, words


def test_info_commands_print_json(tmp_path: Any) -> None:
    run = CliRunner().invoke
    result = json.loads(run(cli, ["doctor", "--json"]).output)
    assert (
        result["ready"] is (result["problems"] == [])
        and result["cores"] > 0
        and result["python"]["path"] == sys.executable
    )
    result = json.loads(run(cli, ["info", "--memory", "--json", "-D", "taskmanager.memory.process.size=2g"]).output)
    assert result["taskmanager"]["total-process-memory"] == 2 << 30 and result["jobmanager"] is None
    assert json.loads(run(cli, ["history", str(tmp_path), "--json"]).output) == []
    assert run(cli, ["history", "--json"]).exit_code == 2
