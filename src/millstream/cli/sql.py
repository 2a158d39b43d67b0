"""`millstream sql` and `millstream sql-gateway`: SQL at a prompt, from files, and over REST."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.settings import CONFIG, DEFINES, PARALLELISM, as_settings, choose_engine
from millstream.common.known_keys import check_keys
from millstream.datastream.launch_context import end_signals
from millstream.service.registry import Registry
from millstream.sql.errors import TableException

if TYPE_CHECKING:
    from millstream.cli.prompt.statement_runner import StatementRunner
    from millstream.jobmaster.job import JobMaster

HISTORY = ".millstream-sql-history"


@click.command()
@PARALLELISM
@click.option("-m", "--master", help="Spark master; default local[*].")
@click.option("--local", is_flag=True, help="Run in this process, without Spark: starts in a fraction of a second.")
@CONFIG
@DEFINES
@click.option("-i", "--init", help="Run the statements of a file or URL first, without printing them.")
@click.option("-f", "--file", "file", help="Run the statements of a file or URL.")
@click.option("-e", "--execute", "text", help="Run these statements.")
@click.option("-hist", "--history", type=click.Path(dir_okay=False), help="The file of the input history.")
def sql(
    parallelism: int | None,
    master: str | None,
    local: bool,
    config_file: Path | None,
    defines: tuple[str, ...],
    init: str | None,
    file: str | None,
    text: str | None,
    history: str | None,
) -> None:
    """Run SQL statements at a prompt, from a file or from the command line."""
    from millstream.cli.prompt.statement_runner import StatementRunner, is_screen
    from millstream.datastream.launch_context import watch_jobs
    from millstream.gateway.session import Session

    settings = as_settings(defines, parallelism, master, config_file)
    if file is not None and text is not None:
        raise click.UsageError("-f runs the statements of a file, and -e those of its argument: use one of them.")
    choose_engine(settings, local, master)
    settings.setdefault("millstream.quiet", "true")
    check_keys(settings.keys())
    # Before anything runs.
    init_text, file_text = (None if uri is None else _text_at(uri, settings) for uri in (init, file))
    jobs = Registry()

    def register(job: JobMaster) -> Callable[[], None]:
        jobs.add(job, settings)
        return lambda: None

    watch_jobs(register)
    session = Session(settings, jobs)
    is_typed = file is None and text is None
    runner = StatementRunner(session, sys.stdout, is_typed and is_screen())
    if init_text is not None and not _run(runner, init_text, is_shown=False):
        sys.exit(1)
    if is_typed:
        from millstream.cli.prompt.loop import Loop

        Loop(runner, session.vocabulary, Path(history) if history else Path.home() / HISTORY).run()
        sys.exit(_end(jobs, runner, cancels=True))
    statements = file_text if file_text is not None else str(text)
    if file is not None:
        runner.info("Executing SQL from file.\n")
    succeeded = _run(runner, statements, is_shown=file is not None)
    sys.exit(_end(jobs, runner, cancels=not succeeded) or int(not succeeded))


def _text_at(uri: str, settings: dict[str, str]) -> str:
    from millstream.gateway.script_text import script_at

    try:
        return script_at(uri, settings)
    except TableException as e:
        raise click.UsageError(str(e)) from None


def _run(runner: StatementRunner, text: str, is_shown: bool) -> bool:
    """Run the statements of a text until one fails; return whether all succeeded."""
    from millstream.cli.prompt.loop import PROMPT
    from millstream.gateway.script_text import statements_of

    for statement in statements_of(text):
        if is_shown:
            click.echo(f"{PROMPT}{statement}")
        if not runner.run(statement):
            return False
    return True


def _end(jobs: Registry, runner: StatementRunner, cancels: bool) -> int:
    """Wait for the jobs of this process, or cancel them; return the exit code."""
    running_jobs = [e for e in jobs.entries() if not e.job.result.done()]
    if running_jobs:
        jobs_are = "1 job is" if len(running_jobs) == 1 else f"{len(running_jobs)} jobs are"
        runner.info(f"{jobs_are} {'cancelled with this prompt' if cancels else 'still running; waiting'}.")
    failed = 0
    for entry in jobs.entries():
        if cancels:
            entry.job.cancel()
        try:
            error = entry.job.result.exception()
        except KeyboardInterrupt:
            entry.job.cancel()
            error = entry.job.result.exception()
        failed |= error is not None and not cancels and entry.view.status.name == "FAILED"
    return int(failed)


@click.command("sql-gateway")
@PARALLELISM
@click.option("-m", "--master", help="Spark master; default local[*].")
@click.option("--local", is_flag=True, help="Run jobs in this process, without Spark.")
@DEFINES
def sql_gateway(parallelism: int | None, master: str | None, local: bool, defines: tuple[str, ...]) -> None:
    """Serve SQL to Flink's SQL client and JDBC driver, until Ctrl-C; the jobs are served at the same address."""
    from millstream.gateway.server import Gateway

    settings = as_settings(defines, parallelism, master)
    choose_engine(settings, local, master)
    check_keys(settings.keys())
    gateway = Gateway(settings)
    is_stopped = threading.Event()
    for number in end_signals():
        signal.signal(number, lambda *_: is_stopped.set())
    gateway.start()
    click.echo(f"The SQL gateway is at {gateway.url}.")
    if gateway.token_file is not None:
        click.echo(
            f"Its token is in {gateway.token_file}. For Flink's SQL client and JDBC driver:\n"
            f'export FLINK_REST_CLIENT_HEADERS="Authorization:Bearer $(cat {shlex.quote(gateway.token_file)})"'
        )
    is_stopped.wait()
    gateway.stop()
