"""Every response of the service matches Flink's OpenAPI file, except for tests/openapi/left_out.yaml."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.venvs import existing_venv
from starlette.testclient import TestClient

from millstream.common import WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.job_client import JobClient
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.service.app import make_app
from millstream.service.archive import Archiver, ArchiveStore, history_app
from millstream.service.logs import RecentLines
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.server import PublicServer, service_of
from millstream.service.session.program_store import Uploads
from millstream.service.session.programs import Programs, SlotPool
from millstream.service.session.session_api import Cluster, cluster_app
from millstream.spark.session_attachment import Attachment
from tests.support.helpers import job_of
from tests.support.paths import TESTS

FOLDER = TESTS / "openapi"
STORED = yaml.safe_load((FOLDER / "left_out.yaml").read_text())
LEFT_OUT, CORRECTED = STORED["not_served"], STORED["corrected"]
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in yaml.safe_load((FOLDER / "flink-rest-v1-2.3.0.yml").read_text())["paths"].items()
    for method in methods
]
# Only a cluster runs programs.
OF_CLUSTER = {o for o in OPERATIONS if o.split()[1].startswith(("/jars", "/cluster"))}
SCHEMATHESIS = existing_venv("schemathesis")
TOKEN = "t" * 32

PROGRAM = """
import sys
from millstream.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).map(lambda x: x).key_by(lambda x: x).reduce(max).print()
print("its main runs", sys.argv[1:])
env.execute("planned")
"""

needs_schemathesis = pytest.mark.skipif(
    SCHEMATHESIS is None,
    reason="schemathesis is not installed: `make test-openapi` installs it into a venv of its own",
)


def test_left_out_operations_are_in_openapi_file_and_not_served() -> None:
    assert set(LEFT_OUT) <= set(OPERATIONS) and all(LEFT_OUT.values())
    assert all(entry["reason"] for entry in CORRECTED.values())
    client = TestClient(make_app(service_of(Registry(), {}, None, 1000)))
    for operation in LEFT_OUT:
        method, path = operation.split()
        response = client.request(method, path.replace("{", "").replace("}", ""))
        assert response.status_code in (400, 404, 405), f"{operation} is answered: take it off the list"


def _slowly(x: int) -> int:
    time.sleep(0.002)
    return x


def _start(registry: Registry) -> JobClient:
    settings = {
        "millstream.engine": "local",
        "millstream.quiet": "true",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 h",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    numbers = env.from_source(NumberSequenceSource(1, 10**12), WatermarkStrategy.no_watermarks(), "numbers")
    # The map sleeps, so that the interpreter serves requests.
    numbers.map(_slowly).key_by(lambda x: x % 10).reduce(lambda a, b: a + b).add_sink(lambda v: None)
    client = env.execute_async("queried")
    registry.add(job_of(client), settings)
    return client


def _conform(tmp_path: Path, app: Any, left_out: set[str], **world: Any) -> None:
    options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto"}))
    assert options is not None
    empty: dict[str, Any] = {"parameters": {}, "special": {}, "bodies": {}, "queries": {}, "headers": {}, "once": []}
    corrected = {name: entry["schema"] for name, entry in CORRECTED.items()}
    about = {**empty, **world, "left_out": sorted(left_out), "corrected": corrected}
    (tmp_path / "world.json").write_text(json.dumps(about))
    server = PublicServer(app, options)
    server.start()
    try:
        done = subprocess.run(
            [str(SCHEMATHESIS), str(FOLDER / "conform.py"), server.url, str(tmp_path / "world.json")],
            capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
    finally:
        server.stop()
    assert done.returncode == 0, done.stdout + done.stderr


@needs_schemathesis
def test_job_responses_match_openapi_file(tmp_path: Path) -> None:
    registry = Registry()
    service = service_of(registry, {"parallelism.default": "2"}, TOKEN, 1000)
    shown = {"Authorization": f"Bearer {TOKEN}"}
    job, stopped, cancelled = (_start(registry) for _ in range(3))
    try:
        _take_checkpoints(registry, job)
        view = registry.entries()[0].view
        saved: Any = job.trigger_savepoint(str(tmp_path / "saved")).result()
        parameters = {
            "jobid": view.job_id,
            "vertexid": view.plan.vertices[1].head.id,
            "subtaskindex": 0,
            "attempt": 0,
            "checkpointid": view.checkpoints.history[-1].id,
            "taskmanagerid": "local",
            "triggerid": "ab" * 16,
        }
        app = make_app(service)
        client = TestClient(app, headers=shown)
        begun = {"target-directory": str(tmp_path), "triggerId": parameters["triggerid"]}
        for path in ("savepoints", "checkpoints"):
            assert client.post(f"/jobs/{view.job_id}/{path}", json=begun).status_code == 202
        disposed = client.post("/savepoint-disposal", json={"savepoint-path": "nowhere"}).json()["request-id"]
        special = {"GET /savepoint-disposal/{triggerid}": {"triggerid": disposed}}
        bodies = {
            "POST /jobs/{jobid}/savepoints": {"target-directory": str(tmp_path), "cancel-job": False},
            "POST /jobs/{jobid}/checkpoints": {},
            "POST /savepoint-disposal": {"savepoint-path": saved},
        }
        queries = {"GET /jobs/metrics": {"get": "uptime"}}
        _conform(
            tmp_path, app, {*LEFT_OUT, *OF_CLUSTER, *STEERING}, parameters=parameters, bodies=bodies,
            queries=queries, once=list(bodies), special=special, headers=shown,
        )  # fmt: skip
        # Operations that end a job run last, each with its own job.
        parameters["jobid"] = str(stopped.get_job_id())
        special = {"PATCH /jobs/{jobid}": {"jobid": str(cancelled.get_job_id())}}
        others = set(OPERATIONS) - STEERING
        once = sorted(STEERING)
        _conform(tmp_path, app, others, parameters=parameters, once=once, special=special, headers=shown, bodies={
            "POST /jobs/{jobid}/stop": {"targetDirectory": str(tmp_path), "drain": False},
            "PUT /jobs/{jobid}/resource-requirements": {
                parameters["vertexid"]: {"parallelism": {"lowerBound": 1, "upperBound": 2}}
            },
        }, queries={"PATCH /jobs/{jobid}/rescaling": {"parallelism": 3}})  # fmt: skip
    finally:
        for client_of_job in (job, stopped, cancelled):
            client_of_job.cancel().result()


# Operations that change the job.
STEERING = {
    "PATCH /jobs/{jobid}",
    "PATCH /jobs/{jobid}/rescaling",
    "POST /jobs/{jobid}/stop",
    "PUT /jobs/{jobid}/resource-requirements",
}


def _take_checkpoints(registry: Registry, *jobs: JobClient) -> None:
    for job in jobs:
        job.trigger_checkpoint().result()
    end = time.monotonic() + 20
    while not any(e.view.checkpoints.completed for e in registry.entries()):
        assert time.monotonic() < end
        time.sleep(0.02)


@needs_schemathesis
def test_archived_job_responses_match_openapi_file(tmp_path: Path) -> None:
    registry = Registry()
    job = _start(registry)
    _take_checkpoints(registry, job)
    job.cancel().result()
    (entry,) = registry.entries()
    archives = ArchiveStore()
    archives.put(Archiver(service_of(registry, {}, None, 1000), lambda entry, archive: None).now(entry))
    parameters = {
        "jobid": entry.view.job_id,
        "vertexid": entry.view.plan.vertices[1].head.id,
        "subtaskindex": 0,
        "attempt": 0,
        "checkpointid": entry.view.checkpoints.history[-1].id,
    }
    of_jobs = {o for o in OPERATIONS if o.startswith("GET /jobs") or o == "GET /overview"}
    ends = ("{triggerid}", "resource-requirements", "jm-operator-metrics")
    not_kept = {o for o in of_jobs if o.endswith(ends)}
    not_kept.add("GET /jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}/attempts/{attempt}/accumulators")
    left_out = {*LEFT_OUT, *(set(OPERATIONS) - of_jobs), *not_kept}
    _conform(tmp_path, history_app(archives, {}, None, 1000), left_out, parameters=parameters)


@needs_schemathesis
def test_cluster_responses_match_openapi_file(tmp_path: Path) -> None:
    uploads = Uploads(str(tmp_path / "uploads"))
    head = b'--x\r\nContent-Disposition: form-data; name="jarfile"; filename="job.py"\r\n\r\n'
    form = head + PROGRAM.encode() + b"\r\n--x--\r\n"
    retained, deleted = (uploads.take("multipart/form-data; boundary=x", form) for _ in range(2))
    ended: list[bool] = []
    app = cluster_app(
        Cluster(
            programs=Programs(SlotPool(4), ArchiveStore(), {}, Attachment(0, "", None, "local").as_dict(), 1.0),
            archives=ArchiveStore(),
            uploads=uploads,
            settings={},
            token=None,
            submit_token=TOKEN,
            refresh_ms=1000,
            submits=True,
            max_upload=10_000,
            cache_seconds=0.0,
            end=lambda: ended.append(True),
            log=RecentLines(),
        )
    )
    client = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"})
    assert client.post("/jars/upload", files={"jarfile": ("a.py", b"1")}).json()["status"] == "success"
    refused = client.post("/programs", json={"path": "/nowhere/job.py"})
    assert refused.status_code == 400 and "There is no program /nowhere/job.py" in refused.json()["errors"][0]
    assert client.post("/programs", json={"path": __file__, "arguments": "-x"}).status_code == 400
    body = {"programArgsList": ["a"], "parallelism": 3}
    plan = client.post(f"/jars/{retained.id}/plan", json=body).json()["plan"]
    assert plan["name"] == "planned" and [n["parallelism"] for n in plan["nodes"]] == [1, 3, 3]
    assert plan["nodes"][2]["inputs"][0]["ship_strategy"] == "HASH"
    assert client.get(f"/jars/{retained.id}/plan?parallelism=2").json()["plan"]["nodes"][1]["parallelism"] == 2
    ends = uploads.take("multipart/form-data; boundary=x", head + b"import os; os._exit(3)\r\n--x--\r\n")
    refused = client.post(f"/jars/{ends.id}/plan")
    assert refused.status_code == 400 and "ended with code 3 without a plan" in refused.json()["errors"][0]
    uploads.delete(ends.id)
    # Running a job needs Spark: tests/spark/test_session.py.
    of_cluster = {*OF_CLUSTER, "GET /overview", "GET /taskmanagers", "GET /config"} - {"POST /jars/{jarid}/run"}
    left_out = {*LEFT_OUT, *(set(OPERATIONS) - of_cluster), "POST /jars/upload"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    special = {"POST /jars/{jarid}/plan": {"jarid": retained.id}}
    once = ["POST /jars/{jarid}/plan"]
    _conform(tmp_path, app, left_out, parameters={"jarid": deleted.id}, headers=headers, special=special, once=once)
    assert ended and [u.id for u in uploads.all() if u.id in (retained.id, deleted.id)] == [retained.id]
