"""The process of a program submitted to a cluster: runs its main, and waits for its jobs."""

from __future__ import annotations

import json
import runpy
import signal
import sys

import click

from millstream.cli.program import run_program
from millstream.common import pyflink_names
from millstream.common.aliases import Json
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
        spec: dict[str, Json] = json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: end_program(_TERMINATED))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    member = ClusterMember(spec["home"], spec["attachment"], descriptor)
    member.start()
    watch_jobs(member.add)
    if spec["pyflink"]:
        pyflink_names.install()
    _set_leadership(spec)
    master = spec["attachment"]["master"]
    overrides = {**spec["overrides"], ENGINE.key: ENGINE.text(EngineChoice.SPARK), "spark.master": master}
    try:
        code = _run(spec, {**spec["settings"], "spark.master": master}, overrides)
        if code != _TERMINATED:
            member.await_jobs()
    except SystemExit:
        # SIGTERM during the wait for jobs that outlive the program.
        code = _TERMINATED
    if code == _TERMINATED:
        member.leave_jobs()
    return SUSPENDED if member.is_suspended else code


def _set_leadership(spec: dict[str, Json]) -> None:
    """Fence the jobs of this process with the leader's term, if the cluster is highly available."""
    options = HaOptions.read(Configuration.from_dict(spec["settings"]))
    if options is not None and spec["term"] is not None:
        lead(Leadership(options, options.open(), spec["term"], spec["id"]))


def _run(spec: dict[str, Json], settings: dict[str, str], overrides: dict[str, str]) -> int:
    """Run the program's main; return its exit code. Its jobs continue in any case."""
    try:
        if spec["module"]:
            set_command_line(settings, overrides)
            sys.path.insert(0, spec["path"])
            sys.argv = [spec["path"], *spec["arguments"]]
            runpy.run_module(spec["module"], run_name="__main__")
        else:
            run_program(spec["path"], spec["arguments"], settings, overrides)
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
