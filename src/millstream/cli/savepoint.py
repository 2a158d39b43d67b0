"""`millstream savepoint`: takes, checks, signs and deletes savepoints."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path

import click

from millstream.checkpoint.compatibility import Finding, Match, UpgradeReport, check_upgrade, declared_states
from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.savepoint_editor import dispose_savepoint, sign_savepoint
from millstream.cli.job_commands import at_service, take_savepoint
from millstream.cli.output import JSON, print_json, print_result, table
from millstream.cli.program import load_plan
from millstream.cli.settings import CONFIG, DEFINES, PARALLELISM, PROGRAM, as_settings
from millstream.cli.state import heading, open_inspection
from millstream.common.configuration import Configuration
from millstream.datastream.launch_context import ProgramPlanned
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.vertex import JobSettings


class _Savepoints(click.Group):
    """The subcommands; any other argument is a job to take a savepoint of, as in Flink's command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            args = ["take", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Savepoints)
def savepoint() -> None:
    """Take a savepoint of a job (`millstream savepoint JOB [DIRECTORY]`), check and delete savepoints."""


@savepoint.command()
@click.argument("job")
@click.argument("directory", required=False)
@JSON
@at_service
def take(job: str, directory: str | None, as_json: bool, address: str | None, token: str | None) -> None:
    """Take a savepoint of JOB in DIRECTORY, or in the configured one."""
    take_savepoint(job, directory, as_json, address, token)


@savepoint.command(context_settings=PROGRAM)
@PARALLELISM
@click.option("-n", "--allow-non-restored-state", is_flag=True, help="Allow state that matches no operator.")
@JSON
@CONFIG
@DEFINES
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("path")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def check(
    parallelism: int | None,
    allow_non_restored_state: bool,
    as_json: bool,
    config_file: Path | None,
    defines: tuple[str, ...],
    program: str,
    path: str,
    arguments: tuple[str, ...],
) -> None:
    """Check whether PROGRAM can restore the state at PATH.

    The program is planned, not run; functions that can have state are opened. Exit code 0: it fits; 1: state would be
    lost, or is incompatible with the program's declarations.
    """
    inspection = open_inspection(path, defines)
    # The program's output is not part of the result.
    with contextlib.redirect_stdout(sys.stderr):
        plan = _job_plan(load_plan(program, list(arguments), as_settings(defines, parallelism, None, config_file)))
        report = check_upgrade(inspection, plan, declared_states(plan))
    is_compatible = report.is_compatible(allow_non_restored_state)
    if as_json:
        print_json({"fits": is_compatible, **dataclasses.asdict(report)})
    else:
        click.echo(_report_text(inspection, report, program, is_compatible, allow_non_restored_state))
    sys.exit(0 if is_compatible else 1)


def _job_plan(planned: ProgramPlanned) -> JobPlan:
    graph = planned.job_graph()
    parameters = {k: v for k, v in planned.configuration.to_dict().items() if not k.startswith("spark.")}
    settings = JobSettings(job_id="check", job_name=graph.job_name, attempt=0, batch=False, job_parameters=parameters)
    return JobPlan(settings=settings, vertices=graph.vertices)


def _report_text(
    inspection: Inspection, report: UpgradeReport, program: str, is_compatible: bool, allow_lost: bool
) -> str:
    parts = [heading(inspection)]
    if report.matches:
        header = ["OPERATOR", "UID", "PARALLELISM", "MAX PARALLELISM", "STATE"]
        parts.append("Restored\n" + table(header, [_match_cells(m) for m in report.matches], indent=2))
    allowed = ", which is allowed" if allow_lost else ""
    for title, findings in (
        ("New", report.new),
        (f"Lost{allowed}", report.lost),
        ("Changed", report.changed),
        ("Could not be compared", report.unknown),
        ("Warnings", report.warnings),
    ):
        if findings:
            parts.append("\n".join([title, *(f"  {_finding_text(f)}" for f in findings)]))
    parts.append(_summary(report, program, is_compatible))
    return "\n\n".join(parts)


def _match_cells(match: Match) -> list[str]:
    before, now = match.max_parallelism
    return [
        match.operator,
        match.uid or "",
        _change(*match.parallelism),
        "" if before == now else _change(before, now),
        ", ".join(match.restores) or "empty state",
    ]


def _change(before: int, now: int) -> str:
    return str(now) if before == now else f"{before} -> {now}"


def _finding_text(finding: Finding) -> str:
    state = "" if finding.state is None else f", state '{finding.state}'"
    return f"'{finding.operator}'{state}: {finding.text}."


def _summary(report: UpgradeReport, program: str, is_compatible: bool) -> str:
    if not is_compatible:
        lost = " To discard the lost state, use --allow-non-restored-state." if report.lost else ""
        return f"{program} is not compatible.{lost}"
    return f"{program} is compatible{', as far as known' if report.unknown else ''}."


@savepoint.command()
@click.argument("path")
@JSON
@DEFINES
def sign(path: str, as_json: bool, defines: tuple[str, ...]) -> None:
    """Sign the savepoint at PATH with the key of millstream.state.signing-key-file. Only if you trust its writer."""
    location = sign_savepoint(path, Configuration.from_dict(as_settings(defines)))
    print_result(as_json, f"{location} was signed.", signed=location)


@savepoint.command()
@click.argument("path")
@JSON
@DEFINES
def dispose(path: str, as_json: bool, defines: tuple[str, ...]) -> None:
    """Delete the savepoint at PATH, but no other files."""
    inspection = open_inspection(path, defines)
    left = dispose_savepoint(inspection)
    note = f"; its directory has other files and remains: {', '.join(sorted(left)[:3])}" if left else ""
    location = inspection.location
    print_result(as_json, f"{location} was deleted{note}.", deleted=location, left=sorted(left))
