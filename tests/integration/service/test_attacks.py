"""Attacks on the job service: web pages, other users of the machine, and slow, numerous or huge requests."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from millstream.common import WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.job_client import JobClient
from millstream.common.masking import masked_text
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.service import request_limits
from millstream.service.app import make_app
from millstream.service.archive import ArchiveStore
from millstream.service.logs import RecentLines
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.server import PublicServer, service_of
from millstream.service.session import programs
from millstream.service.session.program_store import Uploads
from millstream.service.session.programs import Programs, SlotPool
from millstream.service.session.session_api import Cluster, cluster_app
from millstream.spark.session_attachment import Attachment
from tests.support.helpers import job_of

SETTINGS = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1"}
TOKEN = "t" * 32


class Target:
    """A service that runs a job, and a client that sends raw bytes."""

    def __init__(self, **settings: str) -> None:
        self.registry = Registry()
        defaults = {"rest.port": "auto"} | {k.replace("__", "."): v for k, v in settings.items()}
        options = ServiceOptions.read(Configuration.from_dict(defaults))
        assert options is not None
        self.server = PublicServer(make_app(service_of(self.registry, defaults, options.token, 1000)), options)
        self.server.start()
        self.port = int(self.server.url.rpartition(":")[2])
        self.jobs: list[JobClient] = []

    def start(self, function: Any = lambda x: x) -> str:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(SETTINGS))
        numbers = env.from_source(NumberSequenceSource(1, 10**12), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(function).add_sink(lambda v: None)
        job = env.execute_async("attacked")
        self.jobs.append(job)
        self.registry.add(job_of(job), SETTINGS)
        end = time.monotonic() + 20
        while self.state() in ("INITIALIZING", "CREATED"):
            assert time.monotonic() < end
            time.sleep(0.01)
        return str(job.get_job_id())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def send(self, line: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Send a request with these headers; return the status code and the body."""
        all_headers = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(body)), "Connection": "close"}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
        with self.connect() as client:
            client.sendall(f"{line} HTTP/1.1\r\n{head}\r\n".encode() + body)
            received = b""
            with contextlib.suppress(ConnectionError):
                while part := client.recv(65536):
                    received += part
        response_head, _, answer = received.partition(b"\r\n\r\n")
        return int(response_head.split()[1]) if response_head else 0, answer

    def state(self) -> str:
        return self.registry.entries()[0].view.status.name

    def close(self) -> None:
        for job in self.jobs:
            job.cancel().result()
        self.server.stop()


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


def test_service_rejects_foreign_host_header(target: Target) -> None:
    # A page of evil.example, whose DNS name now resolves to 127.0.0.1, is same-site for the browser.
    status, answer = target.send("GET /jobs/overview", Host=f"evil.example:{target.port}")
    assert status == 403 and b"not called 'evil.example'" in answer
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST.", "jobs.localhost", "127.8.8.8"):
        assert target.send("GET /jobs/overview", Host=f"{name}:{target.port}")[0] == 200, name
    # Names that only resemble this machine.
    for name in ("localhost.evil.example", "127.0.0.1.evil.example", "evil.example#localhost", "0.0.0.0"):
        assert target.send("GET /jobs/overview", Host=f"{name}:{target.port}")[0] in (400, 403), name


def test_service_accepts_configured_host_name() -> None:

    settings = {"rest.port": "auto", "rest.address": "flow.example", "rest.bind-address": "127.0.0.1"}
    options = ServiceOptions.read(Configuration.from_dict(settings))
    assert options is not None and options.names == {"127.0.0.1", "flow.example"}  # type: ignore[comparison-overlap]


def test_service_rejects_requests_of_other_origins(target: Target) -> None:
    job = target.start()
    cross_site = {"Origin": "https://evil.example", "Sec_Fetch_Site": "cross-site"}
    simple = {"Content_Type": "text/plain"}
    stop = json.dumps({"targetDirectory": "/tmp", "drain": False}).encode()
    # Requests that a page may send without a preflight: forms, images, links.
    assert target.send(f"POST /jobs/{job}/stop", stop, **cross_site, **simple)[0] == 403
    assert target.send(f"POST /v1/jobs/{job}/savepoints", b"{}", **cross_site, **simple)[0] == 403
    assert target.send(f"GET /jobs/{job}/yarn-cancel", Sec_Fetch_Site="cross-site")[0] == 403
    assert target.send(f"GET /jobs/{job}/yarn-cancel", Origin="null")[0] == 403
    # A page served by another program of this machine has another origin, too.
    assert (
        target.send(f"GET /jobs/{job}/yarn-cancel", Origin="http://localhost:3000", Sec_Fetch_Site="same-site")[0]
        == 403
    )
    assert target.send("OPTIONS /jobs/overview", **cross_site, Access_Control_Request_Method="PATCH")[0] == 403  # type: ignore[arg-type]
    assert target.state() == "RUNNING"
    # A link from any site may lead to the page, which then sends its own requests.
    assert target.send("GET /ui/index.html", Sec_Fetch_Site="cross-site")[0] == 200
    own = {"Origin": target.server.url, "Sec_Fetch_Site": "same-origin"}
    assert target.send(f"PATCH /jobs/{job}?mode=cancel", b"{}", **own)[0] == 202
    status, _ = target.send("GET /jobs/overview", Sec_Fetch_Site="none")
    assert status == 200


def test_service_sends_no_cors_headers(target: Target) -> None:
    with target.connect() as client:
        client.sendall(b"GET /jobs/overview HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = client.makefile("rb").read().lower()
    assert b"200 ok" in answer and b"access-control" not in answer


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../../../../etc/passwd", "/ui/%2e%2e/%2e%2e/app.py", "/ui/..%2f..%2fapp.py", "/ui/%252e%252e%252fapp.py",
        "/ui//etc/passwd",
        "/jobmanager/logs/..%2f..%2fetc%2fpasswd", "/jobmanager/logs/%2e%2e",
        "/taskmanagers/local/logs/..%5c..%5cboot.ini",
        "/ui/\u202e", "/jobs/%ff%fe", "/jobs/%00", "/jobs/\u0661" * 3, "/v1/v1/jobs", "/jobs/" + "%f0%9f%92%a9" * 8,
    ],
)  # fmt: skip
def test_service_rejects_path_traversal(target: Target, path: str) -> None:
    status, answer = target.send(f"GET {path}")
    assert status in (400, 404) and b"root:" not in answer and b"import" not in answer


def test_service_rejects_oversized_requests(target: Target) -> None:
    assert target.send("GET /" + "a" * 5000)[0] == 414
    assert target.send("GET /jobs?x=" + "a" * 20_000)[0] == 414
    assert target.send("GET /jobs", X="a" * 60_000)[0] == 200
    assert target.send("GET /jobs", X="a" * 70_000)[0] in (0, 431)
    # A body without an end.
    with target.connect() as client, contextlib.suppress(ConnectionError):
        sent = 0
        while sent < 50_000_000:
            client.sendall(b"X-Header: " + b"a" * 90_000 + b"\r\n" if sent else b"GET /jobs HTTP/1.1\r\n")
            sent += 90_000
    assert sent < 20_000_000
    job = target.start()
    assert target.send(f"POST /jobs/{job}/savepoints", b"x" * (1 << 21))[0] == 413
    assert target.send(f"POST /jobs/{job}/savepoints", b"[" * 200_000)[0] == 400
    assert target.send(f"POST /jobs/{job}/savepoints", b'{"target-directory": "/nowhere/\\ud800"}')[0] in (202, 400)
    assert target.send(f"POST /jobs/{job}/savepoints", b'{"target-directory": 1' + b"0" * 5000 + b"}")[0] == 400
    assert target.state() == "RUNNING"


def test_service_drops_idle_connections(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(request_limits, "MAX_CONNECTIONS", 20)
    idle = [target.connect() for _ in range(50)]
    began = time.monotonic()
    with target.connect() as slow_client, contextlib.suppress(ConnectionError):
        while time.monotonic() - began < 5:
            slow_client.sendall(b"G")
            time.sleep(0.05)
    assert time.monotonic() - began < 3
    # Excess connections are closed at once, the others after a moment; then new ones are accepted.
    assert all(_is_disconnected(client) for client in idle)
    assert target.send("GET /jobs")[0] == 200
    # Also a connection with earlier requests.
    with target.connect() as client:
        client.sendall(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b'{"jobs":[]}'):
            answer += client.recv(65536)
        client.sendall(b"GET /jobs")
        client.settimeout(5)
        assert _is_disconnected(client)


def _is_disconnected(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
    finally:
        client.close()


def test_service_rejects_connections_over_limit(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_CONNECTIONS", 5)
    connections = [target.connect() for _ in range(5)]
    time.sleep(0.2)
    assert all(_is_disconnected(target.connect()) for _ in range(5))
    for client in connections:
        client.sendall(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        client.close()


def test_service_aborts_response_that_is_not_read(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(request_limits, "ANSWER_SECONDS", 0.6)
    for _ in range(3000):
        logging.getLogger("millstream").warning("x" * 8000)
    with target.connect() as client:
        client.sendall(b"GET /jobmanager/log HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(2)
        read = 0
        with contextlib.suppress(ConnectionError):
            while part := client.recv(1 << 20):
                read += len(part)
    assert read < 20_000_000
    monkeypatch.setattr(request_limits, "ANSWER_SECONDS", 60)
    assert len(target.send("GET /jobmanager/log")[1]) > 20_000_000


def test_service_times_out_missing_request_body(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.service.http.BODY_SECONDS", 0.3)
    job = target.start()
    with target.connect() as client:
        client.sendall(
            f"POST /jobs/{job}/savepoints HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{{".encode()
        )
        assert b" 408 " in client.recv(65536)


_TINY = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [_TINY * 40_000, (b"GET /jobs HTTP/1.1\r\n" + b"a:b\r\n" * 12_000 + b"\r\n") * 28],
    ids=["pipelined", "headers"],
)
def test_service_bounds_memory_of_requests_before_token(request_bytes: bytes) -> None:
    target = Target(millstream__rest__token=TOKEN)
    try:
        assert target.send("GET /jobs", Authorization=f"Bearer {TOKEN}")[0] == 200
        before = psutil.Process().memory_info().rss
        clients = [target.connect() for _ in range(33)]
        threads = [threading.Thread(target=_send_all, args=(c, request_bytes), daemon=True) for c in clients]
        for thread in threads:
            thread.start()
        slowest = 0.0
        max_memory = before
        while any(thread.is_alive() for thread in threads):
            began = time.monotonic()
            assert target.send("GET /jobs", Authorization=f"Bearer {TOKEN}")[0] == 200
            slowest = max(slowest, time.monotonic() - began)
            max_memory = max(max_memory, psutil.Process().memory_info().rss)
        for client in clients:
            client.close()
        # Without limits: 900 MB and 600 MB, and half a minute.
        assert max_memory - before < 150_000_000
        assert slowest < 5
    finally:
        target.close()


def _send_all(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        client.sendall(data)
        client.recv(1)


def test_service_answers_pipelined_requests_in_order(target: Target) -> None:
    with target.connect() as client:
        client.sendall(_TINY * 10 + b"GET /nope HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := client.recv(65536):
            answer += part
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200"] * 10 + [b"404"]
    with target.connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(_TINY * 1000)
        answer = b""
        while part := client.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1 200") < 100


def test_service_rejects_request_bodies_over_total_limit(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.service.http.MAX_BODIES", 1 << 20)
    job = target.start()
    head = f"POST /jobs/{job}/savepoints HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n".encode()
    clients = [target.connect() for _ in range(3)]
    for client in clients:
        client.sendall(head + b" " * 800_000)
    readable, _, _ = select.select(clients, [], [], 20)
    assert readable and b" 503 " in readable[0].recv(65536)
    for client in clients:
        client.close()
    # Input of closed connections no longer counts.
    end = time.monotonic() + 20
    while target.send(f"POST /jobs/{job}/savepoints", b" " * 900_000 + b"[]")[0] == 503:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_service_encodes_nan_metrics_as_json_strings(target: Target) -> None:
    job = target.start()
    view = target.registry.entries()[0].view
    vertex = view.plan.vertices[0].head.id
    from millstream.service.http import json_bytes
    from millstream.service.responses.metrics import aggregated_metrics

    shown = aggregated_metrics([{"lag": float("nan")}, {"lag": 1.0}], ["lag"], None)
    assert json.loads(json_bytes(shown))[0]["sum"] == "NaN"
    assert target.send(f"GET /jobs/{job}/vertices/{vertex}/subtasks/metrics?get=idleTimeMsPerSecond")[0] == 200


def test_mask_secrets_is_fast_on_long_words() -> None:
    began = time.process_time()
    for text in ("x" * 200_000, "password" * 20_000, "a://" * 40_000, "a://b:" * 20_000, "token'" * 20_000):
        assert masked_text(text + " password=abc").endswith("password=******")
    # CPU time: quadratic matching would take minutes.
    assert time.process_time() - began < 3


def test_service_masks_secrets_in_failures(target: Target) -> None:
    def breaks(x: int) -> int:
        raise ValueError("cannot connect to postgresql://ann:hunter2@db/x?sslpassword=hunter3")

    job = target.start(breaks)
    end = time.monotonic() + 20
    while b"cannot connect" not in (answer := target.send(f"GET /jobs/{job}/exceptions")[1]):
        assert time.monotonic() < end
        time.sleep(0.05)
    for path in (f"/jobs/{job}/exceptions", f"/jobs/{job}", f"/jobs/{job}/explanations", "/jobmanager/log"):
        answer = target.send(f"GET {path}")[1]
        assert b"hunter" not in answer, path


@pytest.fixture(params=[True])
def cluster(tmp_path: Any, request: pytest.FixtureRequest) -> Iterator[Target]:
    target = Target.__new__(Target)
    options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto"}))
    assert options is not None
    programs = Programs(SlotPool(4), ArchiveStore(), {}, Attachment(0, "", None, "local").as_dict(), 1.0)
    target.uploads = Uploads(str(tmp_path / "uploads"))  # type: ignore[attr-defined]
    app = cluster_app(
        Cluster(
            programs=programs, archives=ArchiveStore(), uploads=target.uploads, settings={}, token=None,  # type: ignore[attr-defined]
            submit_token=TOKEN, refresh_ms=1000, submits=request.param, max_upload=10_000, cache_seconds=0.0,
            end=lambda: None, log=RecentLines(),
        )
    )  # fmt: skip
    target.server = PublicServer(app, options)
    target.server.start()
    target.port = int(target.server.url.rpartition(":")[2])
    yield target
    target.server.stop()
    programs.close()


def _form(name: str, content: bytes = b"print()") -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--x--\r\n"


def test_cluster_keeps_uploads_in_upload_directory(cluster: Target, tmp_path: Any) -> None:
    mine = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "multipart/form-data; boundary=x"}
    for name in ("../../evil.py", "/etc/cron.d/evil.py", "..\\\\..\\\\evil.py", "a/../../evil.py"):
        status, answer = cluster.send("POST /jars/upload", _form(name), **mine)
        assert status == 200 and json.loads(answer)["filename"].startswith(str(tmp_path / "uploads")), name
    for name in ("evil.py\x00.txt", "evil.sh", ".py/", "\u202eyp.evil", "a" * 5000 + ".py", "evil.py; x=y.zip\x01"):
        assert cluster.send("POST /jars/upload", _form(name), **mine)[0] == 400, name
    assert cluster.send("POST /jars/upload", _form("big.py", b"x" * 20_000), **mine)[0] == 413
    assert cluster.send("POST /jars/upload", b"--x--", **mine)[0] == 400
    assert {p.parent for p in tmp_path.rglob("*evil.py")} == {tmp_path / "uploads"}
    # A link in that directory is no upload.
    (tmp_path / "secret.py").write_text("SECRET")
    linked = "0" * 36 + "_linked.py"
    (tmp_path / "uploads" / linked).symlink_to(tmp_path / "secret.py")
    assert linked.encode() not in cluster.send("GET /jars", **mine)[1]  # type: ignore[arg-type]
    for jar in (linked, "..%2fsecret.py", "%2e%2e%2fsecret.py"):
        assert cluster.send(f"POST /jars/{jar}/run", b"{}", **mine)[0] == 404, jar
        assert cluster.send(f"DELETE /jars/{jar}", **mine)[0] == 404, jar  # type: ignore[arg-type]
    assert (tmp_path / "secret.py").exists()


@pytest.mark.parametrize("cluster", [False], indirect=True)
def test_cluster_without_submission_rejects_uploads(cluster: Target) -> None:
    mine = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "multipart/form-data; boundary=x"}
    for line in ("POST /jars/upload", "GET /jars", "POST /programs", "POST /jars/a.py/run", "POST /jars/a.py/plan"):
        assert cluster.send(line, _form("a.py"), **mine)[0] == 404, line
    assert json.loads(cluster.send("GET /config")[1])["features"]["web-submit"] is False


def test_cluster_rejects_submit_and_shutdown_without_token(cluster: Target) -> None:
    form = {"Content_Type": "multipart/form-data; boundary=x"}
    for line in (
        "POST /jars/upload",
        "POST /programs",
        "DELETE /cluster",
        "GET /jars",
        "POST /jars/a/run",
        "POST /jars/a/plan",
        "POST /savepoint-disposal",
    ):
        for shown in (
            {},
            {"Authorization": "Bearer "},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": "Basic x"},
        ):
            assert cluster.send(line, _form("a.py"), **form, **shown)[0] == 401, (line, shown)


def test_program_output_is_limited_on_disk(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(programs, "_MAX_BYTES", 1 << 20)
    monkeypatch.setattr(programs, "_RETAINED_BYTES", 1 << 19)
    path = tmp_path / "out"
    with open(path, "wb") as file:
        for number in range(400_000):
            file.write(b"%07d\n" % number)
        file.flush()
        programs.trim(str(path))
        # The writer continues at its position.
        file.write(b"the end\n")
        file.flush()
        assert os.stat(path).st_blocks * 512 <= 1 << 20
    read, position = b"", 0
    while True:
        text, position = programs.read_from(str(path), position)
        if not text:
            break
        read += text
    assert read.endswith(b"0399999\nthe end\n") and b"\0" not in read and (1 << 18) < len(read) <= (1 << 20)
    assert position == os.path.getsize(path)
