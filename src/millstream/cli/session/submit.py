"""`millstream run -t session`: runs a program whose jobs run on a cluster."""

from __future__ import annotations

import os
import sys
import time

import click

from millstream.common.aliases import Json
from millstream.service.client import ServiceClient, ServiceError, cluster_of, is_local_service, use_leader

_POLL_SECONDS = 0.2
# Timeout of a remote program's first job.
_START_SECONDS = 330.0
# The exit code after an interrupt, which leaves the jobs running.
_INTERRUPTED = 130


def run_in_session(
    program: str,
    arguments: list[str],
    settings: dict[str, str],
    overrides: dict[str, str],
    *,
    address: str | None,
    detached: bool,
    pyflink: bool,
) -> int:
    """Run a program on a cluster; return the exit code.

    Args:
        program: the program.
        arguments: its sys.argv.
        settings: settings that it can change.
        overrides: settings that override the program's own.
        address: the cluster; None for this user's.
        detached: whether to return once it has started a job.
        pyflink: whether `import pyflink` imports millstream.
    """
    try:
        use_leader(settings)
        client = cluster_of(address, os.environ.get("MILLSTREAM_TOKEN"))
        if not is_local_service(client):
            return _run_uploaded(client, program, arguments, settings, overrides)
        body = {
            "path": os.path.abspath(program),
            "arguments": arguments,
            "directory": os.getcwd(),
            "settings": settings,
            "overrides": overrides,
            "pyflink": pyflink,
        }
        program_id = client.ask("/programs", "POST", body)["program-id"]
        return _detached(client, program_id) if detached else _attached(client, program_id)
    except ServiceError as e:
        click.echo(str(e), err=True)
        return 1


def _run_uploaded(
    client: ServiceClient, program: str, arguments: list[str], settings: dict[str, str], overrides: dict[str, str]
) -> int:
    """Upload a program to a remote cluster, which runs it; its output remains there."""
    uploaded = client.upload(program)
    body: dict[str, Json] = {"programArgsList": arguments, "flinkConfiguration": {**settings, **overrides}}
    _print_job(client.ask(f"/jars/{uploaded}/run", "POST", body, _START_SECONDS)["jobid"])
    return 0


def _print_job(job_id: str) -> None:
    # Flink's message, which scripts parse.
    click.echo(f"Job has been submitted with JobID {job_id}")


def _detached(client: ServiceClient, program_id: str) -> int:
    """Wait until a program has started a job, or has ended."""
    while True:
        program = client.ask(f"/programs/{program_id}")
        if program["jobs"]:
            _print_job(program["jobs"][0])
            return 0
        if program["exit-code"] is not None:
            _Output(client, program_id).show()
            click.echo("The program ended without starting a job.", err=True)
            return int(program["exit-code"]) or 1
        time.sleep(_POLL_SECONDS)


def _attached(client: ServiceClient, program_id: str) -> int:
    """Print a program's output until it and its jobs have ended."""
    output, reported = _Output(client, program_id), 0
    try:
        while True:
            program = client.ask(f"/programs/{program_id}")
            for job_id in program["jobs"][reported:]:
                click.echo(f"millstream: job {job_id} runs on the cluster at {client.url}", err=True)
            reported = len(program["jobs"])
            output.show()
            if program["exit-code"] is not None:
                return int(program["exit-code"])
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        jobs = client.ask(f"/programs/{program_id}")["jobs"]
        click.echo(
            f"\nThe program continues on the cluster; cancel it with: millstream cancel {jobs[0] if jobs else '<job>'}",
            err=True,
        )
        return _INTERRUPTED


class _Output:
    """Prints the output of a program incrementally."""

    def __init__(self, client: ServiceClient, program_id: str) -> None:
        self._client = client
        self._program_id = program_id
        self._shown = {"out": 0, "err": 0}
        self._url = client.url

    def show(self) -> None:
        if self._client.url != self._url:
            # Another leader has restarted the program.
            self._url, self._shown = self._client.url, {"out": 0, "err": 0}
        for stream, terminal in (("out", sys.stdout), ("err", sys.stderr)):
            text = b"..."
            while text:
                text, self._shown[stream] = self._client.output(self._program_id, stream, self._shown[stream])
                terminal.buffer.write(text)
                terminal.flush()
