"""Messages of the command line for unknown options and commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli.main import cli

PROGRAM = """
from millstream.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(str).print()
env.execute()
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.py").write_text(PROGRAM)
    return str(tmp_path / "job.py")


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["run", "--paralelism", "3"], "--parallelism"),
        (["run", "--from-savepiont", "x"], "--from-savepoint"),
        (["info", "--sgv"], "--svg"),
        (["savepoint", "check", "--jsn"], "--json"),
        (["rnu"], "'run'"),
        (["savepiont"], "savepoint"),
    ],
)
def test_cli_suggests_misspelt_option_or_command(job: str, arguments: list[str], suggestion: str) -> None:
    done = CliRunner().invoke(cli, [*arguments, job])
    assert done.exit_code == 2
    assert suggestion in done.output.partition("Did you mean")[2]


def test_run_rejects_setting_without_value(job: str) -> None:
    done = CliRunner().invoke(cli, ["run", "-D", "parallelism.default", job])
    assert (done.exit_code, "-D parallelism.default is not of the form key=value." in done.output) == (2, True)


def planned(*arguments: str) -> list[dict[str, Any]]:
    """Run `info` in a process of its own, since settings of a command line apply to the whole process."""
    command = [sys.executable, "-m", "millstream.cli.main", "info", *arguments]
    nodes: list[dict[str, Any]] = json.loads(subprocess.check_output(command))["nodes"]
    return nodes


def test_options_after_program_are_passed_to_program(job: str) -> None:
    assert len(planned(job, "--paralelism", "3")) == 3


def test_info_applies_settings_and_prints_source_lines(job: str) -> None:
    nodes = planned("-D", "parallelism.default=3", job)
    assert [(n["type"], n["parallelism"], n["made_at"]) for n in nodes[1:]] == [
        ("Map", 3, "job.py:4"),
        ("Print to Std. Out", 3, "job.py:4"),
    ]


@pytest.mark.parametrize("master", ["spark://host:7077", "local[2]"])
def test_application_target_is_rejected_for_unsupported_master(job: str, master: str) -> None:
    reported = CliRunner().invoke(cli, ["run", "-t", "application", "-m", master, job])
    assert reported.exit_code == 2
    assert f"not on {master}: use -m yarn or -m k8s://..." in reported.output


def test_yarn_master_requires_hadoop_conf_dir(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    # In process: the message of a submitted program; as a subprocess: that of a program that is run.
    reported = CliRunner().invoke(cli, ["run", "-t", "yarn-application", job])
    assert "set the variable HADOOP_CONF_DIR" in str(reported.exception)
    command = [sys.executable, "-m", "millstream", "run", "-m", "yarn", job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("spark.master is yarn: set the variable HADOOP_CONF_DIR")
