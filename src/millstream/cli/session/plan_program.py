"""The process that plans an uploaded program: runs its main up to the first execute()."""

from __future__ import annotations

import json
import os
import sys
import uuid

import click

from millstream.cli.program import load_plan
from millstream.common import pyflink_names
from millstream.common.aliases import Json
from millstream.common.error_rendering import render_program_error
from millstream.service.responses.jobs import plan_of


def main(path: str) -> int:
    """Plan a program, and write the plan to the requested file; return the exit code."""
    with open(path) as file:
        spec: dict[str, Json] = json.load(file)
    if spec["pyflink"]:
        pyflink_names.install()
    try:
        planned = load_plan(spec["path"], spec["arguments"], {**spec["settings"], **spec["overrides"]}, spec["module"])
        graph = planned.job_graph()
        plan = plan_of(uuid.uuid4().hex, graph.job_name, "STREAMING", graph.vertices)
    except SystemExit as e:
        click.echo(f"The program exited with code {e.code} before a call of execute(): there is no plan.", err=True)
        return 1
    except Exception as e:
        click.echo(render_program_error(e) or repr(e), err=True, nl=False)
        return 1
    with open(spec["plan"], "w") as file:
        json.dump(plan, file)
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once: the program's own threads may still be running.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
