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
from typing import Any

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
@click.option("--failure", "number", type=click.IntRange(min=1), help="Which failure; the last when not given.")
@click.option("--pdb", "debugs", is_flag=True, help="Stop in Python's debugger where it fails.")
@DEFINES
def replay(job: str, number: int | None, debugs: bool, defines: tuple[str, ...]) -> None:
    """Run the operator that failed on what it failed on, alone, in this process.

    JOB is a job's id, the beginning of it or its name, an archive (DIRECTORY/ID), or the file of a failure.
    """
    settings = as_settings(defines)
    try:
        kept = _find(job, number, Configuration.from_dict(settings))
        error = _run(kept, settings)
    except MillstreamError as e:
        click.echo(str(e), err=True)
        sys.exit(1)
    click.echo(_about(kept), err=True)
    if error is None:
        return
    if debugs:
        debug(error)
    sys.exit(1)


def _find(job: str, number: int | None, config: Configuration) -> FailureReport:
    if "://" in job:
        raise MillstreamError(
            f"{job}: what is replayed is run, and nothing is run from the network; copy it here first."
        )
    if os.path.isfile(job) and ".failure-" in os.path.basename(job):
        return read(job)
    beside, name = os.path.split(job)
    directory = beside if os.path.isfile(job) else directory_of(config)
    found = files_of(directory, name if os.path.isfile(job) else job)
    jobs = {os.path.basename(f).partition(".")[0] for f in found}
    if not found:
        raise MillstreamError(f"No failure of job {job} is kept in {directory}.")
    if len(jobs) > 1:
        raise MillstreamError(f"Several jobs are meant by {job}: {', '.join(sorted(jobs))}. Give more of the id.")
    by_number = {int(f.rpartition("-")[2]): f for f in found}
    if number is not None and number not in by_number:
        raise MillstreamError(f"Failure {number} of job {job} is not kept: {_listed(by_number)}.")
    return read(found[-1] if number is None else by_number[number])


def _listed(by_number: dict[int, str]) -> str:
    return f"there {'is' if len(by_number) == 1 else 'are'} {', '.join(map(str, by_number))}"


def _run(kept: FailureReport, settings: dict[str, str]) -> Exception | None:
    """Run it, and print what came of it; return the error of the user's function, if it raised one again."""
    made = _made(kept, settings)
    found: list[str] = []
    try:
        made.open()
        found = list(_state(made))
        try:
            made.run()
        finally:
            made.close()
    except Exception as e:
        error: Exception | None = locate(e).error
        assert error is not None
        click.echo(with_source_lines(user_traceback(error)).rstrip())
    else:
        error = None
        _print_emitted(made, bool(found) and not made.is_exact)
    for line in ("", *_given(made), *found):
        click.echo(line, err=True)
    if note := kept.failure.note:
        click.echo(f"note: {note}", err=True)
    return error


def _made(kept: FailureReport, settings: dict[str, str]) -> Replay:
    """Make the operator in this process, as it was made in a worker."""
    failure, about = kept.failure, kept.settings
    if failure.kept is None:
        raise MillstreamError(f"It cannot be replayed: {failure.note}.")
    sys.path.extend(p for p in kept.path if p not in sys.path)
    if kept.as_pyflink:
        pyflink_names.install()

    def context(metrics: MetricGroup, state: KeyedState | None) -> RuntimeContext:
        place = failure.operator, failure.subtask, failure.parallelism, about["max_parallelism"], about["attempt"]
        return RuntimeContext(*place, {**about["parameters"], **settings}, metrics, state)

    with naming_missing_classes():
        node = pickle.loads(base64.b64decode(kept.node))
        return Replay(node, failure.kept, context, about["batch"], requests)


def _print_emitted(made: Replay, may_be_late: bool) -> None:
    for one in made.emitted:
        tag = "" if one.tag is None else f"side output {one.tag!r}: "
        click.echo(f"{tag}{one.value!r}" + ("" if one.timestamp is None else f"  (timestamp {one.timestamp})"))
    click.echo(f"It did not fail this time, and emitted {count(len(made.emitted), 'record')}.", err=True)
    if may_be_late:
        text = "The state below is as it was when the function raised: if it had changed it by then, that is why."
        click.echo(text, err=True)


def _given(made: Replay) -> Iterator[str]:
    """Yield what the operator was given, a line each."""
    given = made.given
    if given.is_record:
        yield f"record: {shorten(repr(given.value), 300)}"
        if given.timestamp is not None:
            yield f"timestamp: {given.timestamp}"
    else:
        shown = (given.timestamp, given.value)
        yield f"fired: {' '.join(str(one) for one in shown if one is not None)}"
    if made.state is not None and given.key is not None:
        yield f"key: {thaw(given.key)!r}"


def _state(made: Replay) -> Iterator[str]:
    """Yield the key's state, a line each."""
    tables = {} if made.state is None else made.state.tables
    for name, table in tables.items():
        # Of columns nothing is kept.
        for row, content in rows_of_key(table, made.given.key) if table.address != BY_GROUP else ():
            shown = f"timer at {row[0]}" if table.address == BY_TIME else f"{name} = {shorten(repr(content), 300)}"
            yield f"state: {shown}"


def _about(kept: FailureReport) -> str:
    failure, when = kept.failure, datetime.fromtimestamp(kept.at).strftime("%Y-%m-%d %H:%M:%S")
    made = f", made at {failure.made_at}" if failure.made_at else ""
    return (
        f"failure {kept.number} of job '{kept.job_name}' ({kept.job_id}) at {when}, in operator '{failure.operator}'"
        f"{made}, subtask {failure.subtask + 1}/{failure.parallelism}"
    )


def debug(error: Exception) -> None:
    """Stop where an error was raised: in the user's own frame, with those it has called below it."""
    below = _below_user(error.__traceback__)
    debugger = Pdb()
    debugger.rcLines += ["up"] * below
    debugger.reset()
    debugger.interaction(None, error if sys.version_info >= (3, 13) else error.__traceback__)  # type: ignore[arg-type]


def _below_user(tb: TracebackType | None) -> int:
    """Return how many frames are below the last one of the user's own."""
    frames: list[TracebackType] = []
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    own = [i for i, frame in enumerate(frames) if _is_users(frame)]
    return len(frames) - 1 - own[-1] if own else 0


def _is_users(frame: TracebackType) -> bool:
    path: Any = frame.tb_frame.f_code.co_filename
    installed = os.path.dirname(os.__file__)
    return not is_ours(frame) and not path.startswith((installed, "<frozen"))
