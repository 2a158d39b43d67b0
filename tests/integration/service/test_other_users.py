"""The access of another user of the machine, user 65534, in separate processes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millstream.checkpoint.manifest import NAME, Manifest, encode_manifest
from millstream.checkpoint.snapshot import Snapshot
from millstream.cli.main import main
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.private_files import NotPrivateError, make_private_directory, runtime_directory
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.gateway.server import Gateway
from millstream.service.app import Service, make_app
from millstream.service.archive import ArchiveStore
from millstream.service.client import services
from millstream.service.logs import RecentLines
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.run_file import RunFile, TokenFile, running_services
from millstream.service.server import PublicServer, public_service
from millstream.service.session.program_store import Uploads
from millstream.service.session.programs import Programs, SlotPool
from millstream.service.session.session_api import Cluster, cluster_app
from millstream.spark.session_attachment import Attachment
from tests.support.helpers import job_of

SETTINGS = {"millstream.engine": "local", "millstream.quiet": "true", "sql-gateway.endpoint.rest.port": "auto"}
OTHER = 65534

as_nobody = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")


def run_as_nobody(code: str, *words: str) -> str:
    """Run Python code as another user; return its output."""
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-I", "-c", code, *words],
        user=OTHER, group=OTHER, extra_groups=[], capture_output=True, text=True, cwd="/", timeout=60, check=False,
        env={"PATH": os.environ["PATH"] + ":/usr/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory that all users share, and no runtime directory."""
    shared = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    shared.chmod(0o1777)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    yield shared
    subprocess.run(["rm", "-rf", str(shared)], check=True)


# --- run files

_PLANT = """
import json, os, sys
directory, url, leaving, owner = sys.argv[1:]
os.mkdir(directory)
os.chmod(directory, 0o755)
service = {"url": url, "token": None, "kind": "cluster", "owner": json.loads(owner), "leavings": [leaving], "log": None}
for name, at in (("1.json", owner), ("2.json", None)):
    about = {**service, "owner": json.loads(owner) if at else {**json.loads(owner), "pid": 2**22 - 1}}
    with open(os.path.join(directory, name), "w") as file:
        json.dump(about, file)
"""


def _plant(shared: Path, victim: Path) -> None:
    from millstream.checkpoint.store import this_process

    where = shared / f"millstream-run-{os.geteuid()}"
    run_as_nobody(_PLANT, str(where), "http://127.0.0.1:9", str(victim), json.dumps(this_process("service")))


@as_nobody
def test_run_files_reject_directory_of_another_user(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "millstream-victim"
    victim.mkdir(0o700)
    _plant(shared, victim)
    with pytest.raises(NotPrivateError, match=f"belongs to user {OTHER}, .*set XDG_RUNTIME_DIR"):
        list(running_services())
    with pytest.raises(NotPrivateError):
        list(services(None, None))
    with pytest.raises(NotPrivateError):
        RunFile("http://127.0.0.1:1", "secret").write()
    assert victim.exists()
    monkeypatch.setattr("sys.argv", ["millstream", "list"])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert f"belongs to user {OTHER}" in capsys.readouterr().err


@as_nobody
def test_runtime_directory_ignores_xdg_of_another_user(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = shared / "foreign"
    foreign.mkdir()
    os.chown(foreign, OTHER, OTHER)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(foreign))
    assert runtime_directory() == str(shared / f"millstream-run-{os.geteuid()}")


@pytest.mark.parametrize("problem", ["link", "mode"])
def test_private_directory_rejects_link_or_open_mode(tmp_path: Path, problem: str) -> None:
    path = tmp_path / "run"
    if problem == "link":
        (tmp_path / "target").mkdir(0o700)
        path.symlink_to(tmp_path / "target")
    else:
        path.mkdir()
        path.chmod(0o750)
    with pytest.raises(NotPrivateError, match="is not a directory" if problem == "link" else r"mode 750"):
        make_private_directory(str(path))


def test_run_file_of_dead_process_deletes_only_private_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ours, open_to_others = tmp_path / "millstream-ours", tmp_path / "millstream-open"
    ours.mkdir(0o700)
    open_to_others.mkdir()
    open_to_others.chmod(0o777)
    RunFile("http://127.0.0.1:1", None, owned_directories=[str(ours), str(open_to_others)]).write()
    (written,) = (tmp_path / "millstream").iterdir()
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    about = json.loads(written.read_text())
    about["owner"]["pid"] = 2**22 - 1
    written.write_text(json.dumps(about))
    assert list(running_services()) == []
    assert (ours.exists(), open_to_others.exists()) == (False, True)


# --- the SQL gateway

_ASK = """
import sys, urllib.error, urllib.request
url, token_file = sys.argv[1:]
try:
    print(urllib.request.urlopen(urllib.request.Request(url + "/v2/sessions", b"{}"), timeout=30).status)
except urllib.error.HTTPError as e:
    print(e.code)
try:
    print(open(token_file).read())
except PermissionError:
    print("PermissionError")
"""


@as_nobody
def test_gateway_rejects_other_user_on_loopback(shared: Path) -> None:
    gateway = Gateway(SETTINGS)
    gateway.start()
    try:
        assert gateway.token_file is not None
        path = Path(gateway.token_file)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == gateway.token
        assert run_as_nobody(_ASK, gateway.url, str(path)).split() == ["401", "PermissionError"]
        # Its owner finds it.
        (service,) = running_services()
        assert (service.url, service.token) == (gateway.url, gateway.token)
        (client,) = services(None, None)
        assert client.jobs() == []
    finally:
        gateway.stop()
    assert not path.exists()


# --- the job service

_CHANGE = """
import json, sys, urllib.error, urllib.request
url, job, target, token_file = sys.argv[1:]
savepoint = {"target-directory": target, "targetDirectory": target}
for method, path, body in (
    ("GET", "/jobs/overview", None),
    ("POST", f"/jobs/{job}/savepoints", savepoint),
    ("POST", f"/v1/jobs/{job}/stop", savepoint),
    ("PATCH", f"/jobs/{job}?mode=cancel", {}),
    ("PATCH", f"/jobs/{job}/rescaling?parallelism=3", {}),
    ("PUT", f"/jobs/{job}/resource-requirements", {}),
    ("POST", f"/jobs/{job}/checkpoints", {}),
    ("POST", f"/jobs/{job}/state-leases", {}),
    ("GET", f"/v1/jobs/{job}/yarn-cancel", None),
    ("GET", f"/jobs/{job}/yarn-stop", None),
    ("GET", f"/jobs/{job}/state", None),
    ("GET", f"/v1/jobs/{job}/state/reduce/x", None),
    ("POST", "/savepoint-disposal", {"savepoint-path": target}),
):
    data = None if body is None else json.dumps(body).encode()
    try:
        print(urllib.request.urlopen(urllib.request.Request(url + path, data, method=method), timeout=30).status)
    except urllib.error.HTTPError as e:
        print(e.code)
try:
    print(open(token_file).read())
except PermissionError:
    print("PermissionError")
"""


@as_nobody
def test_service_is_read_only_for_other_user(shared: Path, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(SETTINGS))
    env.from_source(DataGeneratorSource(lambda i: i, None, 10)).add_sink(lambda v: None)
    job, registry = env.execute_async("looked at"), Registry()
    registry.add(job_of(job), SETTINGS)
    options = _options({"rest.port": "auto"})
    service = public_service(registry, SETTINGS, options)
    server = PublicServer(make_app(service), options, token=service.change_token)
    server.start()
    try:
        assert server.token_file is not None
        path, target = Path(server.token_file.path), tmp_path / "written"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == service.change_token
        reported = run_as_nobody(_CHANGE, server.url, str(job.get_job_id()), str(target), str(path)).split()
        assert reported == ["200", *["401"] * 12, "PermissionError"]
        assert not target.exists() and job.get_job_status().result().name == "RUNNING"
        # Commands of the owner find the token, also by another name of this machine.
        for address in (None, server.url, server.url.partition("://")[2].replace("127.0.0.1", "localhost")):
            (client,) = services(address, None)
            begun = client.ask(f"/jobs/{job.get_job_id()}/savepoints", "POST", {"target-directory": str(target)})
            done = client.finished(f"/jobs/{job.get_job_id()}/savepoints", begun["request-id"])
            assert done["location"].startswith(str(target))
    finally:
        job.cancel().result()
        server.stop()
    assert not path.exists()


@pytest.mark.parametrize("path", ["savepoints", "stop", "checkpoints", "yarn-cancel", "state"])
def test_cluster_changes_jobs_only_with_token(tmp_path: Path, path: str) -> None:
    programs = Programs(SlotPool(4), ArchiveStore(), {}, Attachment(0, "", None, "local").as_dict(), 1.0)
    app = cluster_app(
        Cluster(
            programs=programs, archives=ArchiveStore(), uploads=Uploads(str(tmp_path)), settings={}, token=None,
            submit_token="secret", refresh_ms=1000, submits=True, max_upload=1000, cache_seconds=0.0,
            end=lambda: None, log=RecentLines(),
        )
    )  # fmt: skip
    client, method = TestClient(app), "GET" if path in ("yarn-cancel", "state") else "POST"
    assert client.get("/jobs/overview").json() == {"jobs": []}
    uri = f"/jobs/{'0' * 32}/{path}"
    assert client.request(method, uri).status_code == 401
    assert client.request(method, uri, headers={"Authorization": "Bearer secret"}).status_code == 404
    programs.close()


def test_service_with_token_of_settings_needs_no_token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    options = _options({"rest.port": "auto", "millstream.rest.token": "secret"})
    service = public_service(Registry(), {}, options)
    assert service.token == service.change_token == "secret"
    server = PublicServer(make_app(service), options, token=service.change_token)
    server.start()
    server.stop()
    assert server.token_file is None and list((tmp_path / "millstream").iterdir()) == []


def test_token_file_of_dead_process_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    RunFile("http://127.0.0.1:1234", "secret").write()
    (written,) = (tmp_path / "millstream").iterdir()
    about = json.loads(written.read_text())
    about["owner"]["pid"] = 2**22 - 1
    written.write_text(json.dumps(about))
    token, other = TokenFile(1234, "secret"), TokenFile(1235, "other")
    token.write()
    other.write()
    # The file of a later service at the same port stays.
    TokenFile(1235, "secret").remove()
    assert list(running_services()) == []
    assert (os.path.exists(token.path), os.path.exists(other.path)) == (False, True)


def test_service_options_read_token_from_private_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    settings = {"rest.port": "auto", "rest.bind-address": "0.0.0.0", "millstream.rest.token-file": str(path)}
    path.chmod(0o640)
    with pytest.raises(NotPrivateError, match="mode 640"):
        _options(settings)
    path.chmod(0o600)
    assert _options(settings).token == "secret"
    with pytest.raises(InvalidProgramError, match="both set"):
        _options({**settings, "millstream.rest.token": "other"})
    path.write_text("")
    with pytest.raises(InvalidProgramError, match="is empty"):
        _options(settings)
    path.unlink()
    with pytest.raises(InvalidProgramError, match="cannot be read"):
        _options(settings)


def _options(settings: dict[str, str]) -> Any:
    return ServiceOptions.read(Configuration.from_dict(settings))


# --- paths that requests name


def test_service_deletes_savepoint_only_with_token(tmp_path: Path) -> None:
    location = tmp_path / "savepoint"
    location.mkdir()
    manifest = Manifest("savepoint", 1, 1, Snapshot("id", "job", 1), "")
    (location / NAME).write_bytes(encode_manifest(manifest))
    request = {"savepoint-path": str(location)}
    refused = TestClient(make_app(Service(Registry()))).post("/savepoint-disposal", json=request)
    assert refused.status_code == 403 and "millstream.rest.token-file" in refused.text
    client = TestClient(make_app(Service(Registry(), token="secret")))
    assert client.post("/savepoint-disposal", json=request).status_code == 401
    assert location.exists()
    shown = {"Authorization": "Bearer secret"}
    trigger = client.post("/savepoint-disposal", json=request, headers=shown).json()["request-id"]
    while client.get(f"/savepoint-disposal/{trigger}", headers=shown).json()["status"]["id"] != "COMPLETED":
        pass
    assert not location.exists()
