"""`millstream sql-gateway`: SQL over REST, for Flink's SQL client and JDBC driver."""

from __future__ import annotations

import shlex
import signal
import threading

import click

from millstream.cli.settings import DEFINES, PARALLELISM, as_settings
from millstream.common.known_keys import check_keys
from millstream.common.pipeline_options import ENGINE, EngineChoice
from millstream.datastream.launch_context import end_signals


@click.command("sql-gateway")
@PARALLELISM
@click.option("-m", "--master", help="Spark master; local[*] when not given.")
@click.option("--local", is_flag=True, help="Run jobs in this process, without Spark.")
@DEFINES
def sql_gateway(parallelism: int | None, master: str | None, local: bool, defines: tuple[str, ...]) -> None:
    """Serve SQL to Flink's SQL client and JDBC driver, until Ctrl-C; the jobs are served at the same address."""
    from millstream.gateway.server import Gateway

    settings = as_settings(defines, parallelism, master)
    if local and master is not None:
        raise click.UsageError("--local runs without Spark, and -m says where Spark is: give one of them.")
    if local:
        settings[ENGINE.key] = ENGINE.text(EngineChoice.LOCAL)
    check_keys(settings.keys())
    gateway = Gateway(settings)
    is_over = threading.Event()
    for number in end_signals():
        signal.signal(number, lambda *_: is_over.set())
    gateway.start()
    click.echo(f"The SQL gateway is at {gateway.url}.")
    if gateway.token_file is not None:
        click.echo(
            f"Its token is in {gateway.token_file}. For Flink's SQL client and JDBC driver:\n"
            f'export FLINK_REST_CLIENT_HEADERS="Authorization:Bearer $(cat {shlex.quote(gateway.token_file)})"'
        )
    is_over.wait()
    gateway.stop()
