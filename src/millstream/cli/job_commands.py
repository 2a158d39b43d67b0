"""Commands about jobs that run in another process: list, cancel, stop, checkpoint, rescale, and taking savepoints."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from millstream.checkpoint.storage import absolute_url
from millstream.cli.output import JSON, print_json, table, tell
from millstream.cli.settings import as_settings
from millstream.service.client import (
    NO_SERVICE,
    ServiceClient,
    ServiceError,
    is_local_service,
    service_of,
    services,
    use_leader,
)
from millstream.service.run_file import KilledService


def at_service(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which service is meant."""
    for option in (
        click.option("-m", "--jobmanager", "address", metavar="HOST:PORT", help="The service; yours when not given."),
        click.option("--token", envvar="MILLSTREAM_TOKEN", help="What the service asks to be shown."),
        click.option("-D", "defines", multiple=True, metavar="KEY=VALUE", help="high-availability.*: ask who leads."),
    ):
        command = option(command)

    @functools.wraps(command)
    def run(*args: Any, defines: tuple[str, ...] = (), **kwargs: Any) -> None:
        try:
            use_leader(as_settings(defines))
            command(*args, **kwargs)
        except ServiceError as e:
            click.echo(str(e), err=True)
            sys.exit(1)

    return run


def _when(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M:%S")


def _length(milliseconds: int) -> str:
    """Write a length of time.

    Example:
        >>> _length(3_725_000), _length(4_200)
        ('1 h 2 min', '4 s')
    """
    seconds = milliseconds // 1000
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


@click.command(name="list")
@click.option("-r", "--running", is_flag=True, help="Only jobs that run.")
@click.option("-s", "--scheduled", is_flag=True, help="Only jobs that wait to run.")
@click.option("-a", "--all", "every", is_flag=True, help="Also jobs that have ended.")
@JSON
@at_service
def list_jobs(
    running: bool, scheduled: bool, every: bool, as_json: bool, address: str | None, token: str | None
) -> None:
    """List the jobs of this user's processes, or of one service."""
    found = []
    asked = 0
    gone: list[KilledService] = []
    for client in services(address, token, gone):
        asked += 1
        found += [{**job, "service": client.url} for job in client.jobs()]
    waiting = ("CREATED", "INITIALIZING")
    if not every:
        found = [j for j in found if j["end-time"] == -1]
    if running and not scheduled:
        found = [j for j in found if j["state"] not in waiting]
    if scheduled and not running:
        found = [j for j in found if j["state"] in waiting]
    for lost in gone:
        click.echo(str(lost), err=True)
    if as_json:
        print_json(found)
        return
    if not asked:
        click.echo(NO_SERVICE, err=True)
    elif not found:
        click.echo("There are no jobs." if every else "No jobs run.")
    else:
        rows = [
            [j["jid"], j["name"], j["state"], _when(j["start-time"]), _length(j["duration"]), j["service"]]
            for j in sorted(found, key=lambda j: j["start-time"])
        ]
        click.echo(table(["JOB", "NAME", "STATE", "STARTED", "DURATION", "SERVICE"], rows))


@click.command()
@click.argument("job")
@click.option(
    "-s", "--withSavepoint", "savepoint", is_flag=False, flag_value="", help="Take a savepoint first, in DIR."
)
@JSON
@at_service
def cancel(job: str, savepoint: str | None, as_json: bool, address: str | None, token: str | None) -> None:
    """Cancel JOB: its id, the beginning of it, or its name."""
    client, job_id = service_of(job, address, token)
    if savepoint is not None:
        body = {"target-directory": _target(client, savepoint), "cancel-job": True}
        begun = client.ask(f"/jobs/{job_id}/savepoints", "POST", body)
        done = client.finished(f"/jobs/{job_id}/savepoints", begun["request-id"])
        place = done["location"]
        tell(as_json, f"Job {job_id} is cancelled, with a savepoint: {place}", job=job_id, savepoint=place)
        return
    client.ask(f"/jobs/{job_id}?mode=cancel", "PATCH", {})
    tell(as_json, f"Job {job_id} is being cancelled.", job=job_id, savepoint=None)


@click.command()
@click.argument("job")
@click.option("-p", "--savepointPath", "directory", help="Where the savepoint goes.")
@click.option("-d", "--drain", is_flag=True, help="Let all windows and timers fire first.")
@JSON
@at_service
def stop(job: str, directory: str | None, drain: bool, as_json: bool, address: str | None, token: str | None) -> None:
    """Stop JOB with a savepoint, from which it can go on."""
    client, job_id = service_of(job, address, token)
    body = {"targetDirectory": _target(client, directory), "drain": drain}
    begun = client.ask(f"/jobs/{job_id}/stop", "POST", body)
    done = client.finished(f"/jobs/{job_id}/savepoints", begun["request-id"])
    place = done["location"]
    tell(as_json, f"Job {job_id} is stopped, with a savepoint: {place}", job=job_id, savepoint=place)


def _target(client: ServiceClient, directory: str | None) -> str | None:
    """Return where a savepoint goes: on this machine, a relative path is relative to where the command is given."""
    if not directory:
        return None
    return absolute_url(directory) if is_local_service(client) else directory


def take_savepoint(job: str, directory: str | None, as_json: bool, address: str | None, token: str | None) -> None:
    """Take a savepoint of a job that runs."""
    client, job_id = service_of(job, address, token)
    body = {"target-directory": _target(client, directory), "cancel-job": False}
    begun = client.ask(f"/jobs/{job_id}/savepoints", "POST", body)
    done = client.finished(f"/jobs/{job_id}/savepoints", begun["request-id"])
    tell(as_json, f"Savepoint of job {job_id}: {done['location']}", job=job_id, savepoint=done["location"])


@click.command()
@click.argument("job")
@JSON
@at_service
def checkpoint(job: str, as_json: bool, address: str | None, token: str | None) -> None:
    """Take a checkpoint of JOB now."""
    client, job_id = service_of(job, address, token)
    begun = client.ask(f"/jobs/{job_id}/checkpoints", "POST", {})
    done = client.finished(f"/jobs/{job_id}/checkpoints", begun["request-id"])
    number = done["checkpointId"]
    tell(as_json, f"Checkpoint {number} of job {job_id} is complete.", job=job_id, checkpoint=number)


@click.command()
@click.argument("job")
@click.option("-p", "--parallelism", type=click.IntRange(min=1), required=True, help="How many subtasks from now on.")
@JSON
@at_service
def rescale(job: str, parallelism: int, as_json: bool, address: str | None, token: str | None) -> None:
    """Let JOB go on with another parallelism."""
    client, job_id = service_of(job, address, token)
    begun = client.ask(f"/jobs/{job_id}/rescaling?parallelism={parallelism}", "PATCH", {})
    client.finished(f"/jobs/{job_id}/rescaling", begun["request-id"])
    tell(as_json, f"Job {job_id} runs with parallelism {parallelism}.", job=job_id, parallelism=parallelism)
