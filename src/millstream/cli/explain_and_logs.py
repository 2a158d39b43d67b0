"""Commands that tell of a job that runs in another process: explain and logs."""

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
    """Say what holds JOB up, why its windows do not fire, which subtask has too much to do."""
    client, job_id = service_of(job, address, token)
    found = client.ask(f"/jobs/{job_id}/explanations")["explanations"]
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("Nothing holds it up.")
    for one in found:
        sign, colour = _SIGNS[one["level"]]
        title = click.style(f"{sign} {one['title']}", fg=colour, bold=True) if sys.stdout.isatty() else one["title"]
        click.echo(f"{title}\n   {one['text']}")


@click.command()
@click.option("-n", "--lines", type=click.IntRange(min=1), default=100, show_default=True, help="The last so many.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on.")
@click.option("--stdout", "printed", is_flag=True, help="Of a job: what its functions print, instead.")
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
    """Print the log of JOB, or of a service of yours: warnings, restarts, what user code logs."""
    if printed and job is None:
        raise click.UsageError("--stdout is of a job: say which.")
    client, path = _log_location(job, printed, address, token)
    shown = client.text(path).splitlines()
    if as_json:
        print_json({"service": client.url, "lines": shown[-lines:]})
        return
    click.echo("".join(f"{line}\n" for line in shown[-lines:]), nl=False)
    while follow:
        time.sleep(_POLL_SECONDS)
        now = client.text(path).splitlines()
        # Old lines are forgotten there; what was shown last is looked for from the end.
        known = len(now) - now[::-1].index(shown[-1]) if shown and shown[-1] in now else 0
        click.echo("".join(f"{line}\n" for line in now[known:]), nl=False)
        shown = now or shown


def _log_location(job: str | None, printed: bool, address: str | None, token: str | None) -> tuple[ServiceClient, str]:
    """Return the service that has a log, and where it has it."""
    if job is not None:
        client, job_id = service_of(job, address, token)
        return client, f"/jobs/{job_id}/{'stdout' if printed else 'log'}"
    found = list(services(address, token))
    if not found:
        raise ServiceError(NO_SERVICE)
    if len(found) > 1:
        places = ", ".join(client.url.partition("://")[2] for client in found)
        raise ServiceError(f"There are several services of yours: say which with -m ({places}).")
    return found[0], "/jobmanager/log"
