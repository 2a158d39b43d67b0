"""`millstream`: run programs, look at their plans, check the machine."""

from __future__ import annotations

import sys

import click

from millstream import __version__
from millstream.cli.doctor import report
from millstream.cli.program import load_plan, run_program
from millstream.common import pyflink_names
from millstream.common.errors import MillstreamError
from millstream.graph.picture import draw

_PROGRAM = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _settings(parallelism: int | None, master: str | None, defines: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for define in defines:
        key, found, value = define.partition("=")
        if not found or not key:
            raise click.UsageError(f"-D {define}: write it as key=value.")
        settings[key] = value
    if parallelism is not None:
        settings["parallelism.default"] = str(parallelism)
    if master is not None:
        settings["spark.master"] = master
    return settings


@click.group()
@click.version_option(__version__, prog_name="millstream")
def cli() -> None:
    """Flink programs in Python, on Spark."""


@cli.command(context_settings=_PROGRAM)
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")
@click.option("-m", "--master", help="Spark master; local[*] when not given.")
@click.option("-D", "defines", multiple=True, metavar="KEY=VALUE", help="A setting; spark.* goes to Spark.")
@click.option("--pyflink", is_flag=True, help="Let `import pyflink` in the program mean millstream.")
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    parallelism: int | None,
    master: str | None,
    defines: tuple[str, ...],
    pyflink: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program."""
    if pyflink:
        pyflink_names.install()
    run_program(program, list(arguments), _settings(parallelism, master, defines))


@cli.command(context_settings=_PROGRAM)
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")
@click.option("--svg", is_flag=True, help="Draw the job graph instead of printing the plan.")
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def info(parallelism: int | None, svg: bool, program: str, arguments: tuple[str, ...]) -> None:
    """Print a program's plan as JSON, without running it."""
    planned = load_plan(program, list(arguments), _settings(parallelism, None, ()))
    click.echo(draw(planned.job_graph()) if svg else planned.json())


@cli.command()
def doctor() -> None:
    """Say what this machine has, and what is missing."""
    lines, healthy = report()
    for line in lines:
        click.echo(line)
    sys.exit(0 if healthy else 1)


def main() -> None:
    """Run the command line; errors that are the user's to fix are told without a traceback."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as e:
        e.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except MillstreamError as e:
        click.echo(str(e), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
