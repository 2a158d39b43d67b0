"""The process of a program that was submitted to a cluster: runs its main, and stays until its jobs have ended."""

from __future__ import annotations

import json
import runpy
import signal
import sys
from typing import Any

import click

from millstream.cli.program import run_program
from millstream.common import pyflink_names
from millstream.common.configuration import Configuration
from millstream.common.error_rendering import render_program_error
from millstream.common.pipeline_options import ENGINE, EngineChoice
from millstream.datastream.launch_context import end_program, set_command_line, watch_jobs
from millstream.leader.leadership import Leadership, lead
from millstream.leader.options import HaOptions
from millstream.service.session.program_process import ClusterMember
from millstream.service.session.programs import SUSPENDED

_FAILED, _TERMINATED = 1, 143


def main(path: str, descriptor: int) -> int:
    """Run a program; return its exit code."""
    with open(path) as file:
        spec: dict[str, Any] = json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: end_program(_TERMINATED))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    member = ClusterMember(spec["home"], spec["attachment"], descriptor)
    member.start()
    watch_jobs(member.add)
    if spec["pyflink"]:
        pyflink_names.install()
    _follow(spec)
    master = spec["attachment"]["master"]
    last_word = {**spec["last_word"], ENGINE.key: ENGINE.text(EngineChoice.SPARK), "spark.master": master}
    try:
        code = _run(spec, {**spec["settings"], "spark.master": master}, last_word)
        if code != _TERMINATED:
            member.await_jobs()
    except SystemExit:
        # Terminated, while it waited for jobs that outlive the program.
        code = _TERMINATED
    if code == _TERMINATED:
        member.leave_jobs()
    return SUSPENDED if member.is_suspended else code


def _follow(spec: dict[str, Any]) -> None:
    """Let the jobs of this process run under the cluster's leader, where there may be several."""
    options = HaOptions.read(Configuration.from_dict(spec["settings"]))
    if options is not None and spec["term"] is not None:
        lead(Leadership(options, options.open(), spec["term"], spec["id"]))


def _run(spec: dict[str, Any], settings: dict[str, str], last_word: dict[str, str]) -> int:
    """Run the program's main; return what it ended with. Its jobs go on, however that was."""
    try:
        if spec["module"]:
            set_command_line(settings, last_word)
            sys.path.insert(0, spec["path"])
            sys.argv = [spec["path"], *spec["arguments"]]
            runpy.run_module(spec["module"], run_name="__main__")
        else:
            run_program(spec["path"], spec["arguments"], settings, last_word)
    except SystemExit as e:
        if isinstance(e.code, str):
            click.echo(e.code, err=True)
        return e.code if isinstance(e.code, int) else 0 if e.code is None else _FAILED
    except Exception as e:
        click.echo(render_program_error(e) or repr(e), err=True, nl=False)
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
