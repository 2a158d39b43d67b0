"""Commands for jobs of other processes: list, cancel, stop, checkpoint, rescale and savepoints."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import datetime

import click

from millstream.checkpoint.storage import absolute_url
from millstream.cli.output import JSON, print_json, print_result, table
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
    """Add the options that select a service to a command."""
    for option in (
        click.option("-m", "--jobmanager", "address", metavar="HOST:PORT", help="The service; default: your own."),
        click.option("--token", envvar="MILLSTREAM_TOKEN", help="The token of the service."),
        click.option("-D", "defines", multiple=True, metavar="KEY=VALUE", help="high-availability.*: find the leader."),
    ):
        command = option(command)

    @functools.wraps(command)
    def run(*args: object, defines: tuple[str, ...] = (), **kwargs: object) -> None:
        try:
            use_leader(as_settings(defines))
            command(*args, **kwargs)
        except ServiceError as e:
            click.echo(str(e), err=True)
            sys.exit(1)

    return run


def _time_text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M:%S")


def _duration_text(milliseconds: int) -> str:
    """Format a duration.

    Example:
        >>> _duration_text(3_725_000), _duration_text(4_200)
        ('1 h 2 min', '4 s')
    """
    seconds = milliseconds // 1000
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


@click.command(name="list")
@click.option("-r", "--running", is_flag=True, help="Only running jobs.")
@click.option("-s", "--scheduled", is_flag=True, help="Only jobs that are not running yet.")
@click.option("-a", "--all", "every", is_flag=True, help="Also ended jobs.")
@JSON
@at_service
def list_jobs(
    running: bool, scheduled: bool, every: bool, as_json: bool, address: str | None, token: str | None
) -> None:
    """List the jobs of this user's processes, or of one service."""
    jobs = []
    service_count = 0
    killed: list[KilledService] = []
    for client in services(address, token, killed):
        service_count += 1
        jobs += [{**job, "service": client.url} for job in client.jobs()]
    not_running = ("CREATED", "INITIALIZING")
    if not every:
        jobs = [j for j in jobs if j["end-time"] == -1]
    if running and not scheduled:
        jobs = [j for j in jobs if j["state"] not in not_running]
    if scheduled and not running:
        jobs = [j for j in jobs if j["state"] in not_running]
    for service in killed:
        click.echo(str(service), err=True)
    if as_json:
        print_json(jobs)
        return
    if not service_count:
        click.echo(NO_SERVICE, err=True)
    elif not jobs:
        click.echo("There are no jobs." if every else "No jobs are running.")
    else:
        rows = [
            [j["jid"], j["name"], j["state"], _time_text(j["start-time"]), _duration_text(j["duration"]), j["service"]]
            for j in sorted(jobs, key=lambda j: j["start-time"])
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
    """Cancel JOB: its id, a prefix of its id, or its name."""
    client, job_id = service_of(job, address, token)
    if savepoint is not None:
        body = {"target-directory": _target(client, savepoint), "cancel-job": True}
        trigger = client.ask(f"/jobs/{job_id}/savepoints", "POST", body)
        done = client.finished(f"/jobs/{job_id}/savepoints", trigger["request-id"])
        location = done["location"]
        print_result(
            as_json, f"Job {job_id} was cancelled with a savepoint: {location}", job=job_id, savepoint=location
        )
        return
    client.ask(f"/jobs/{job_id}?mode=cancel", "PATCH", {})
    print_result(as_json, f"Job {job_id} is being cancelled.", job=job_id, savepoint=None)


@click.command()
@click.argument("job")
@click.option("-p", "--savepointPath", "directory", help="The directory of the savepoint.")
@click.option("-d", "--drain", is_flag=True, help="Fire all windows and timers first.")
@JSON
@at_service
def stop(job: str, directory: str | None, drain: bool, as_json: bool, address: str | None, token: str | None) -> None:
    """Stop JOB with a savepoint, from which it can resume."""
    client, job_id = service_of(job, address, token)
    body = {"targetDirectory": _target(client, directory), "drain": drain}
    trigger = client.ask(f"/jobs/{job_id}/stop", "POST", body)
    done = client.finished(f"/jobs/{job_id}/savepoints", trigger["request-id"])
    location = done["location"]
    print_result(as_json, f"Job {job_id} was stopped with a savepoint: {location}", job=job_id, savepoint=location)


def _target(client: ServiceClient, directory: str | None) -> str | None:
    """Return a savepoint's directory: for a service on this machine, relative to the working directory."""
    if not directory:
        return None
    return absolute_url(directory) if is_local_service(client) else directory


def take_savepoint(job: str, directory: str | None, as_json: bool, address: str | None, token: str | None) -> None:
    """Take a savepoint of a running job."""
    client, job_id = service_of(job, address, token)
    body = {"target-directory": _target(client, directory), "cancel-job": False}
    trigger = client.ask(f"/jobs/{job_id}/savepoints", "POST", body)
    done = client.finished(f"/jobs/{job_id}/savepoints", trigger["request-id"])
    print_result(as_json, f"Savepoint of job {job_id}: {done['location']}", job=job_id, savepoint=done["location"])


@click.command()
@click.argument("job")
@JSON
@at_service
def checkpoint(job: str, as_json: bool, address: str | None, token: str | None) -> None:
    """Take a checkpoint of JOB now."""
    client, job_id = service_of(job, address, token)
    trigger = client.ask(f"/jobs/{job_id}/checkpoints", "POST", {})
    done = client.finished(f"/jobs/{job_id}/checkpoints", trigger["request-id"])
    number = done["checkpointId"]
    print_result(as_json, f"Checkpoint {number} of job {job_id} is complete.", job=job_id, checkpoint=number)


@click.command()
@click.argument("job")
@click.option("-p", "--parallelism", type=click.IntRange(min=1), required=True, help="The new parallelism.")
@JSON
@at_service
def rescale(job: str, parallelism: int, as_json: bool, address: str | None, token: str | None) -> None:
    """Change the parallelism of JOB."""
    client, job_id = service_of(job, address, token)
    trigger = client.ask(f"/jobs/{job_id}/rescaling?parallelism={parallelism}", "PATCH", {})
    client.finished(f"/jobs/{job_id}/rescaling", trigger["request-id"])
    print_result(as_json, f"Job {job_id} runs with parallelism {parallelism}.", job=job_id, parallelism=parallelism)
