"""`millstream run -t session`: a program that runs beside a cluster, and whose jobs are the cluster's."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from millstream.service.client import ServiceClient, ServiceError, cluster_of, is_local_service, use_leader

_POLL_SECONDS = 0.2
# How long a program on another machine may take to start its first job.
_START_SECONDS = 330.0
# An interrupt at the terminal leaves the jobs to the cluster.
_INTERRUPTED = 130


def run_in_session(
    program: str,
    arguments: list[str],
    settings: dict[str, str],
    last_word: dict[str, str],
    *,
    address: str | None,
    detached: bool,
    pyflink: bool,
) -> int:
    """Have a cluster run a program; return the exit code.

    Args:
        program: the program.
        arguments: what it finds in sys.argv.
        settings: settings that it can change.
        last_word: settings that count whatever it sets.
        address: the cluster; None for this user's.
        detached: whether to return as soon as it has started a job.
        pyflink: whether `import pyflink` means millstream.
    """
    try:
        use_leader(settings)
        client = cluster_of(address, os.environ.get("MILLSTREAM_TOKEN"))
        if not is_local_service(client):
            return _run_uploaded(client, program, arguments, settings, last_word)
        body = {
            "path": os.path.abspath(program),
            "arguments": arguments,
            "directory": os.getcwd(),
            "settings": settings,
            "last_word": last_word,
            "pyflink": pyflink,
        }
        program_id = client.ask("/programs", "POST", body)["program-id"]
        return _detached(client, program_id) if detached else _attached(client, program_id)
    except ServiceError as e:
        click.echo(str(e), err=True)
        return 1


def _run_uploaded(
    client: ServiceClient, program: str, arguments: list[str], settings: dict[str, str], last_word: dict[str, str]
) -> int:
    """Upload a program to a cluster elsewhere, which runs it; what it prints stays there."""
    uploaded = client.upload(program)
    body: dict[str, Any] = {"programArgsList": arguments, "flinkConfiguration": {**settings, **last_word}}
    _print_job(client.ask(f"/jars/{uploaded}/run", "POST", body, _START_SECONDS)["jobid"])
    return 0


def _print_job(job_id: str) -> None:
    # Flink's words, which scripts look for.
    click.echo(f"Job has been submitted with JobID {job_id}")


def _detached(client: ServiceClient, program_id: str) -> int:
    """Wait until a program has started a job, or ended without."""
    while True:
        about = client.ask(f"/programs/{program_id}")
        if about["jobs"]:
            _print_job(about["jobs"][0])
            return 0
        if about["exit-code"] is not None:
            _Output(client, program_id).show()
            click.echo("The program has ended and has started no job.", err=True)
            return int(about["exit-code"]) or 1
        time.sleep(_POLL_SECONDS)


def _attached(client: ServiceClient, program_id: str) -> int:
    """Show what a program prints until it and its jobs have ended."""
    output, told = _Output(client, program_id), 0
    try:
        while True:
            about = client.ask(f"/programs/{program_id}")
            for job_id in about["jobs"][told:]:
                click.echo(f"millstream: job {job_id} runs on the cluster at {client.url}", err=True)
            told = len(about["jobs"])
            output.show()
            if about["exit-code"] is not None:
                return int(about["exit-code"])
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        jobs = client.ask(f"/programs/{program_id}")["jobs"]
        click.echo(f"\nThe program goes on; end it with: millstream cancel {jobs[0] if jobs else '<job>'}", err=True)
        return _INTERRUPTED


class _Output:
    """What a program has printed, passed on as it comes."""

    def __init__(self, client: ServiceClient, program_id: str) -> None:
        self._client = client
        self._program_id = program_id
        self._shown = {"out": 0, "err": 0}
        self._url = client.url

    def show(self) -> None:
        if self._client.url != self._url:
            # Another leader has started the program again.
            self._url, self._shown = self._client.url, {"out": 0, "err": 0}
        for stream, terminal in (("out", sys.stdout), ("err", sys.stderr)):
            text = b"..."
            while text:
                text, self._shown[stream] = self._client.output(self._program_id, stream, self._shown[stream])
                terminal.buffer.write(text)
                terminal.flush()
