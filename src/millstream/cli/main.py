"""`millstream`: runs programs, inspects their plans and state, checks the machine."""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from millstream import __version__
from millstream.cli.output import JSON, print_json, print_result
from millstream.cli.program import load_plan, run_program
from millstream.cli.progress_line import LiveLine
from millstream.cli.settings import (
    CONFIG,
    DEFINES,
    PARALLELISM,
    PROGRAM,
    as_settings,
    choose_engine,
    may_use_ha,
    start_settings,
)
from millstream.common import pyflink_names
from millstream.common.display_text import closest
from millstream.common.error_rendering import render_program_error
from millstream.datastream.launch_context import end_on_signals, watch_jobs
from millstream.graph.plan import draw

# Module and function of a command, by name.
_LAZY_COMMANDS = {
    "cancel": ("millstream.cli.job_commands", "cancel"),
    "checkpoint": ("millstream.cli.job_commands", "checkpoint"),
    "cluster": ("millstream.cli.cluster", "cluster"),
    "completion": ("millstream.cli.main", "completion"),
    "demo": ("millstream.cli.demo", "demo"),
    "explain": ("millstream.cli.explain_and_logs", "explain"),
    "history": ("millstream.cli.history", "history"),
    "init": ("millstream.cli.init", "init"),
    "list": ("millstream.cli.job_commands", "list_jobs"),
    "logs": ("millstream.cli.explain_and_logs", "logs"),
    "replay": ("millstream.cli.replay", "replay"),
    "rescale": ("millstream.cli.job_commands", "rescale"),
    "savepoint": ("millstream.cli.savepoint", "savepoint"),
    "sql": ("millstream.cli.sql", "sql"),
    "sql-gateway": ("millstream.cli.sql", "sql_gateway"),
    "state": ("millstream.cli.state", "state"),
    "stop": ("millstream.cli.job_commands", "stop"),
    "top": ("millstream.cli.top", "top"),
}


class Commands(click.Group):
    """The commands of `millstream`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LAZY_COMMANDS])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as e:
            match = closest(args[0], self.list_commands(ctx), 0.6)
            hint = f" Did you mean '{match}'?" if match and "Did you mean" not in e.message else ""
            raise click.UsageError(e.message + hint, ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LAZY_COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, name = _LAZY_COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: put `eval "$(millstream completion bash)"` in ~/.bashrc."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "millstream", "_MILLSTREAM_COMPLETE").source())


# Exit codes; see docs/reference/cli.md.
FAILED, USAGE, INTERRUPTED = 1, 2, 130
# Millstream's name, and Flink's for YARN and Kubernetes.
APPLICATION = ("application", "yarn-application", "kubernetes-application")


@click.group(cls=Commands)
@click.version_option(__version__, prog_name="millstream")
def cli() -> None:
    """Flink programs in Python, on Spark."""


@cli.command(context_settings=PROGRAM)
@PARALLELISM
@click.option("-m", "--master", help="Spark master, default local[*]; with -t session the cluster's host:port.")
@click.option(
    "-t",
    "--target",
    type=click.Choice(["local", "remote", "session", *APPLICATION]),
    help="session: a running cluster; application: the program's main runs on YARN or Kubernetes, too.",
)
@click.option("-d", "--detached", is_flag=True, help="Return once the job is started; implies -t session.")
@click.option("--local", is_flag=True, help="Run in this process, without Spark: starts in a fraction of a second.")
@CONFIG
@DEFINES
@click.option("-s", "--from-savepoint", metavar="PATH", help="Start from a savepoint.")
@click.option("--from-checkpoint", metavar="PATH|latest", help="Start from a checkpoint, or from the newest one.")
@click.option("-n", "--allow-non-restored-state", is_flag=True, help="Skip state that matches no operator.")
@click.option(
    "--claim-mode",
    type=click.Choice(["CLAIM", "NO_CLAIM"], case_sensitive=False),
    help="CLAIM deletes the restored snapshot once the job has its own checkpoint.",
)
@click.option("-pyfs", "--pyFiles", "files", help="Modules, packages or zips for the workers, separated by commas.")
@click.option("-pyarch", "--pyArchives", "archives", help="Archives to unpack for the workers: path[#name], ...")
@click.option("-pyreq", "--pyRequirements", "requirements", help="Packages for the workers: path[#directory].")
@click.option("-pyexec", "--pyExecutable", "executable", help="The workers' Python.")
@click.option("--pyflink", is_flag=True, help="Let `import pyflink` in the program import millstream.")
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    parallelism: int | None,
    master: str | None,
    target: str | None,
    detached: bool,
    local: bool,
    config_file: Path | None,
    defines: tuple[str, ...],
    from_savepoint: str | None,
    from_checkpoint: str | None,
    allow_non_restored_state: bool,
    claim_mode: str | None,
    files: str | None,
    archives: str | None,
    requirements: str | None,
    executable: str | None,
    pyflink: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program, from its beginning or from a checkpoint or savepoint."""
    # A detached job runs on a session cluster.
    is_session = target in ("remote", "session") or (detached and target is None)
    if target == "yarn-application":
        master = master or "yarn"
    settings = as_settings(defines, parallelism, None if is_session else master, config_file)
    dependencies = {
        "python.files": files,
        "python.archives": archives,
        "python.requirements": requirements,
        "python.executable": executable,
    }
    settings |= {key: value for key, value in dependencies.items() if value is not None}
    overrides = start_settings(from_savepoint, from_checkpoint, allow_non_restored_state, claim_mode)
    if is_session and local:
        raise click.UsageError("--local runs in this process, and -t session (or -d) on a cluster: use one of them.")
    if is_session:
        from millstream.cli.session.submit import run_in_session

        submission = list(arguments), _absolute(settings), overrides
        sys.exit(run_in_session(program, *submission, address=master, detached=detached, pyflink=pyflink))
    if target in APPLICATION:
        from millstream.cli.application import Application, run_on_cluster

        program = os.path.abspath(program)
        application = Application(program, list(arguments), _absolute(settings), overrides, pyflink)
        sys.exit(run_on_cluster(application, detached))
    if detached:
        raise click.UsageError("-d runs a job on a cluster, and -t local in this process: use one of them.")
    if pyflink:
        pyflink_names.install()
    if sys.stderr.isatty():
        watch_jobs(lambda job: LiveLine(job, sys.stderr).start())
    end_on_signals()
    choose_engine(overrides, local, master)
    run_it = partial(run_program, program, list(arguments), settings, overrides)
    if not may_use_ha(settings):
        run_it()
        return
    from millstream.cli.leader_candidate import restart_as_standby, run_with_ha

    run_with_ha(settings, run_it, restart_as_standby)


@cli.command(context_settings=PROGRAM)
@PARALLELISM
@CONFIG
@DEFINES
@click.option("--svg", is_flag=True, help="Draw the job graph instead of printing the plan.")
@click.option("--memory", is_flag=True, help="Print the memory model of the settings instead; needs no program.")
@JSON
@click.argument("program", type=click.Path(exists=True, dir_okay=False), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def info(
    parallelism: int | None,
    config_file: Path | None,
    defines: tuple[str, ...],
    svg: bool,
    memory: bool,
    as_json: bool,
    program: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Print a program's plan as JSON, without running it."""
    settings = as_settings(defines, parallelism, None, config_file)
    if memory:
        from millstream.cli.memory import facts, report
        from millstream.common.configuration import Configuration

        config = Configuration.from_dict(settings)
        print_json(facts(config)) if as_json else click.echo(report(config))
        return
    if svg and as_json:
        raise click.UsageError("--svg draws the job graph, and --json prints the plan: use one of them.")
    if program is None:
        raise click.UsageError("Missing argument 'PROGRAM'.")
    planned = load_plan(program, list(arguments), settings)
    click.echo(draw(planned.job_graph()) if svg else planned.json())


@cli.command()
@click.option("-m", "--master", help="Check all machines of a cluster: its Spark master.")
@DEFINES
@JSON
def doctor(master: str | None, defines: tuple[str, ...], as_json: bool) -> None:
    """Check this machine, or every machine of a cluster, and print the problems."""
    from millstream.cli.doctor import cluster_facts, cluster_report, facts, report

    findings = facts()
    lines = report(findings)
    if master is not None and findings["ready"]:
        findings = cluster_facts(as_settings(defines, None, master))
        lines = cluster_report(findings)
    print_result(as_json, "\n".join(lines), **findings)
    sys.exit(0 if findings["ready"] else 1)


def _absolute(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings with absolute paths of the program's files."""
    paths = ("python.files", "python.archives", "python.requirements")
    return {k: ",".join(map(os.path.abspath, v.split(","))) if k in paths else v for k, v in settings.items()}


def main() -> None:
    """Run the command line; errors that the user can fix are printed with the user's own stack frames only."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as e:
        e.show()
        sys.exit(USAGE)
    except click.Abort:
        sys.exit(INTERRUPTED)
    except Exception as e:
        text = render_program_error(e)
        if text is None:
            raise
        click.echo(text + _advice(e), err=True, nl=False)
        sys.exit(FAILED)


def _advice(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "pyflink":
        return "Run it with `millstream run --pyflink`, which imports millstream as pyflink.\n"
    return ""


if __name__ == "__main__":
    main()
