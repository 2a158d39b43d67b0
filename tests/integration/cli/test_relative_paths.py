"""Relative paths refer to the working directory of the command or program that passes them, in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.checkpoint.inspect import Inspection
from millstream.cli.settings import as_settings, start_settings
from millstream.common.configuration import Configuration
from millstream.common.job_client import JobClient
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.jobmaster.job_launcher import _make_directory
from millstream.service.app import make_app
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.server import PublicServer, service_of
from tests.support.helpers import job_of


def started(**settings: str) -> JobClient:
    options = {k.replace("__", "."): v for k, v in settings.items()}
    config = Configuration.from_dict({"millstream.engine": "local", "millstream.quiet": "true", **options})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    numbers = env.from_source(DataGeneratorSource(lambda i: i, None, 1000))
    numbers.key_by(lambda i: i % 3).reduce(lambda a, b: b).name("Last").add_sink(lambda v: None)
    client = env.execute_async("relative")
    end = time.monotonic() + 20
    while job_of(client).view.progress.epochs < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    return client


def is_whole(location: str) -> bool:
    inspection = Inspection.open(location)
    return any(list(inspection.rows(o, s)) for o in inspection.operators() for s in o.states)


@pytest.mark.parametrize(("directory", "expected"), [("sp", "sp"), ("./sp/../other", "other"), ("~/mine", "mine")])
def test_savepoint_is_written_whole_to_relative_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    location = started().stop_with_savepoint(False, directory).result()
    assert os.path.dirname(location) == str(tmp_path / expected) and is_whole(location)


def test_relative_settings_refer_to_working_directory_of_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"execution.checkpointing.savepoint-dir": "saved", "execution.checkpointing.dir": "checkpoints"}
    first = started(**settings).cancel_with_savepoint().result()
    assert os.path.dirname(first) == str(tmp_path / "saved") and is_whole(first)
    again = started(**settings, **{"execution.state-recovery.path": os.path.relpath(first)})
    # A later chdir of the program has no effect.
    monkeypatch.chdir("/")
    assert is_whole(again.stop_with_savepoint(False, str(tmp_path / "saved")).result())


def test_temporary_directory_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    directory = _make_directory(Configuration.from_dict({"io.tmp.dirs": "temporary,/other"}), "job-")
    assert os.path.dirname(directory) == str(tmp_path / "temporary")


def test_paths_of_command_line_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = (
        "state.checkpoints.dir=cp",
        "millstream.rest.token-file=t",
        "pipeline.name=a/b",
        "web.upload.dir=s3://b/u",
    )
    assert as_settings(options) == {
        "state.checkpoints.dir": str(tmp_path / "cp"),
        "millstream.rest.token-file": str(tmp_path / "t"),
        "pipeline.name": "a/b",
        "web.upload.dir": "s3://b/u",
    }
    assert as_settings(("execution.state-recovery.path=latest",)) == {"execution.state-recovery.path": "latest"}
    path = "execution.state-recovery.path"
    assert start_settings("sp", None, False, None) == {path: str(tmp_path / "sp")}
    assert start_settings(None, "latest", False, None) == {path: "latest"}


def test_stop_command_resolves_path_in_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    client, registry = started(), Registry()
    registry.add(job_of(client), {})
    options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto", "millstream.rest.token": "secret"}))
    assert options is not None
    server = PublicServer(make_app(service_of(registry, {}, options.token, 1000)), options)
    server.start()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    try:
        command = [sys.executable, "-m", "millstream", "stop", "relative", "-p", "sp", "--json"]
        result = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        location = json.loads(result.stdout)["savepoint"]
        assert os.path.dirname(location) == str(elsewhere / "sp") and is_whole(location)
    finally:
        client.cancel().result()
        server.stop()
