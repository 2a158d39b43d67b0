"""`millstream replay`: runs an operator on the one record, or timer, that it has failed on, in this process."""

from __future__ import annotations

import base64
import os
import pickle
import sys
from collections.abc import Iterator
from datetime import datetime
from pdb import Pdb
from types import TracebackType

import click

from millstream.cli.output import count, shorten
from millstream.cli.settings import DEFINES, as_settings
from millstream.common import pyflink_names
from millstream.common.configuration import Configuration
from millstream.common.error_rendering import with_source_lines
from millstream.common.errors import MillstreamError
from millstream.common.pickles import naming_missing_classes
from millstream.jobmaster.failure_reports import FailureReport, directory_of, files_of, read
from millstream.operators.diagnostics.failures import is_ours, locate, user_traceback
from millstream.operators.diagnostics.replay import Replay
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.runtime_services import requests
from millstream.state.key_groups import thaw
from millstream.state.keyed import KeyedState, rows_of_key
from millstream.state.table import BY_GROUP, BY_TIME


@click.command()
@click.argument("job")
@click.option("--failure", "number", type=click.IntRange(min=1), help="The number of the failure; default: the last.")
@click.option("--pdb", "debugs", is_flag=True, help="Start Python's debugger at the failure.")
@DEFINES
def replay(job: str, number: int | None, debugs: bool, defines: tuple[str, ...]) -> None:
    """Run a failed operator on its failed input, in this process.

    JOB is a job's id, a prefix of it or its name, an archive (DIRECTORY/ID), or the file of a failure.
    """
    settings = as_settings(defines)
    try:
        report = _find(job, number, Configuration.from_dict(settings))
        error = _run(report, settings)
    except MillstreamError as e:
        click.echo(str(e), err=True)
        sys.exit(1)
    click.echo(_summary(report), err=True)
    if error is None:
        return
    if debugs:
        debug(error)
    sys.exit(1)


def _find(job: str, number: int | None, config: Configuration) -> FailureReport:
    if "://" in job:
        raise MillstreamError(
            f"{job} is on the network, and a replay runs the code in the file: copy it to this machine first."
        )
    if os.path.isfile(job) and ".failure-" in os.path.basename(job):
        return read(job)
    parent, name = os.path.split(job)
    directory = parent if os.path.isfile(job) else directory_of(config)
    files = files_of(directory, name if os.path.isfile(job) else job)
    jobs = {os.path.basename(f).partition(".")[0] for f in files}
    if not files:
        raise MillstreamError(f"{directory} has no failure of job {job}.")
    if len(jobs) > 1:
        raise MillstreamError(f"{job} matches several jobs ({', '.join(sorted(jobs))}): give a longer prefix.")
    by_number = {int(f.rpartition("-")[2]): f for f in files}
    if number is not None and number not in by_number:
        raise MillstreamError(f"Job {job} has no failure {number}: {_listed(by_number)}.")
    return read(files[-1] if number is None else by_number[number])


def _listed(by_number: dict[int, str]) -> str:
    return f"there {'is' if len(by_number) == 1 else 'are'} {', '.join(map(str, by_number))}"


def _run(report: FailureReport, settings: dict[str, str]) -> Exception | None:
    """Run the operator, and print the result; return the error of the user's function, if it raised again."""
    operator = _restored(report, settings)
    state_lines: list[str] = []
    try:
        operator.open()
        state_lines = list(_state(operator))
        try:
            operator.run()
        finally:
            operator.close()
    except Exception as e:
        error: Exception | None = locate(e).error
        assert error is not None
        click.echo(with_source_lines(user_traceback(error)).rstrip())
    else:
        error = None
        _print_emitted(operator, bool(state_lines) and not operator.is_exact)
    for line in ("", *_input_lines(operator), *state_lines):
        click.echo(line, err=True)
    if note := report.failure.note:
        click.echo(f"note: {note}", err=True)
    return error


def _restored(report: FailureReport, settings: dict[str, str]) -> Replay:
    """Create the operator in this process, as in a worker."""
    failure, job = report.failure, report.settings
    if failure.replay_input is None:
        raise MillstreamError(f"The failure cannot be replayed: {failure.note}.")
    sys.path.extend(p for p in report.path if p not in sys.path)
    if report.as_pyflink:
        pyflink_names.install()

    def context(metrics: MetricGroup, state: KeyedState | None) -> RuntimeContext:
        subtask = failure.operator, failure.subtask, failure.parallelism, job["max_parallelism"], job["attempt"]
        return RuntimeContext(*subtask, {**job["parameters"], **settings}, metrics, state)

    with naming_missing_classes():
        node = pickle.loads(base64.b64decode(report.node))
        return Replay(node, failure.replay_input, context, job["batch"], requests)


def _print_emitted(operator: Replay, may_be_late: bool) -> None:
    for emission in operator.emitted:
        tag = "" if emission.tag is None else f"side output {emission.tag!r}: "
        click.echo(
            f"{tag}{emission.value!r}" + ("" if emission.timestamp is None else f"  (timestamp {emission.timestamp})")
        )
    click.echo(f"The operator did not fail this time, and emitted {count(len(operator.emitted), 'record')}.", err=True)
    if may_be_late:
        text = "The state below is the one at the failure: the function may have changed it before it raised."
        click.echo(text, err=True)


def _input_lines(operator: Replay) -> Iterator[str]:
    """Yield lines that describe the operator's input."""
    input_ = operator.failed_input
    if input_.is_record:
        yield f"record: {shorten(repr(input_.value), 300)}"
        if input_.timestamp is not None:
            yield f"timestamp: {input_.timestamp}"
    else:
        shown = (input_.timestamp, input_.value)
        yield f"fired: {' '.join(str(part) for part in shown if part is not None)}"
    if operator.state is not None and input_.key is not None:
        yield f"key: {thaw(input_.key)!r}"


def _state(operator: Replay) -> Iterator[str]:
    """Yield the lines of the key's state."""
    tables = {} if operator.state is None else operator.state.tables
    for name, table in tables.items():
        # Failure reports have no columnar state.
        for row, content in rows_of_key(table, operator.failed_input.key) if table.address != BY_GROUP else ():
            shown = f"timer at {row[0]}" if table.address == BY_TIME else f"{name} = {shorten(repr(content), 300)}"
            yield f"state: {shown}"


def _summary(report: FailureReport) -> str:
    failure, time_text = report.failure, datetime.fromtimestamp(report.at).strftime("%Y-%m-%d %H:%M:%S")
    location = f", made at {failure.made_at}" if failure.made_at else ""
    return (
        f"failure {report.number} of job '{report.job_name}' ({report.job_id}) at {time_text}, in operator "
        f"'{failure.operator}'{location}, subtask {failure.subtask + 1}/{failure.parallelism}"
    )


def debug(error: Exception) -> None:
    """Start the debugger in the user's innermost frame of an error."""
    below = _below_user(error.__traceback__)
    debugger = Pdb()
    debugger.rcLines += ["up"] * below
    debugger.reset()
    debugger.interaction(None, error if sys.version_info >= (3, 13) else error.__traceback__)  # type: ignore[arg-type]


def _below_user(tb: TracebackType | None) -> int:
    """Return the number of frames below the user's innermost one."""
    frames: list[TracebackType] = []
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    own = [i for i, frame in enumerate(frames) if _is_users(frame)]
    return len(frames) - 1 - own[-1] if own else 0


def _is_users(frame: TracebackType) -> bool:
    path = frame.tb_frame.f_code.co_filename
    installed = os.path.dirname(os.__file__)
    return not is_ours(frame) and not path.startswith((installed, "<frozen"))
