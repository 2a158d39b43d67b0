"""Diagnosis commands for jobs of other processes: explain and logs."""

from __future__ import annotations

import sys
import time

import click

from millstream.cli.job_commands import at_service
from millstream.cli.output import JSON, print_json
from millstream.service.client import NO_SERVICE, ServiceClient, ServiceError, service_of, services

_POLL_SECONDS = 1.0
_SIGNS = {"high": ("!!", "red"), "low": ("! ", "yellow"), "ok": ("  ", "green")}


@click.command()
@click.argument("job")
@JSON
@at_service
def explain(job: str, as_json: bool, address: str | None, token: str | None) -> None:
    """Print the bottlenecks of JOB, the reasons of late windows, and skewed subtasks."""
    client, job_id = service_of(job, address, token)
    explanations = client.ask(f"/jobs/{job_id}/explanations")["explanations"]
    if as_json:
        print_json(explanations)
        return
    if not explanations:
        click.echo("No bottleneck found.")
    for explanation in explanations:
        sign, colour = _SIGNS[explanation["level"]]
        title = (
            click.style(f"{sign} {explanation['title']}", fg=colour, bold=True)
            if sys.stdout.isatty()
            else explanation["title"]
        )
        click.echo(f"{title}\n   {explanation['text']}")


@click.command()
@click.option("-n", "--lines", type=click.IntRange(min=1), default=100, show_default=True, help="Number of last lines.")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they are logged.")
@click.option("--stdout", "printed", is_flag=True, help="Print the output of the job's functions instead.")
@click.argument("job", required=False)
@JSON
@at_service
def logs(
    lines: int,
    follow: bool,
    printed: bool,
    job: str | None,
    as_json: bool,
    address: str | None,
    token: str | None,
) -> None:
    """Print the log of JOB or of one of your services: warnings, restarts, log lines of user code."""
    if printed and job is None:
        raise click.UsageError("--stdout needs a job: name one.")
    client, path = _log_location(job, printed, address, token)
    shown = client.text(path).splitlines()
    if as_json:
        print_json({"service": client.url, "lines": shown[-lines:]})
        return
    click.echo("".join(f"{line}\n" for line in shown[-lines:]), nl=False)
    while follow:
        time.sleep(_POLL_SECONDS)
        current = client.text(path).splitlines()
        # The service discards old lines: search for the last printed line from the end.
        known = len(current) - current[::-1].index(shown[-1]) if shown and shown[-1] in current else 0
        click.echo("".join(f"{line}\n" for line in current[known:]), nl=False)
        shown = current or shown


def _log_location(job: str | None, printed: bool, address: str | None, token: str | None) -> tuple[ServiceClient, str]:
    """Return the service that has a log, and the log's path."""
    if job is not None:
        client, job_id = service_of(job, address, token)
        return client, f"/jobs/{job_id}/{'stdout' if printed else 'log'}"
    clients = list(services(address, token))
    if not clients:
        raise ServiceError(NO_SERVICE)
    if len(clients) > 1:
        addresses = ", ".join(client.url.partition("://")[2] for client in clients)
        raise ServiceError(f"You have several services: choose one with -m ({addresses}).")
    return clients[0], "/jobmanager/log"
