"""`millstream state`: inspects checkpoints and savepoints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from millstream.checkpoint.checkpoint_diff import RowDifference, StateDifference, differences
from millstream.checkpoint.inspect import Inspection, OperatorInfo, StateInfo, is_key, row_as_json
from millstream.checkpoint.signing import signing_keys
from millstream.checkpoint.state_rows import StateRow
from millstream.checkpoint.storage import is_remote, local_path, storage_options
from millstream.cli.output import JSON, count, limited, print_json, shorten, table
from millstream.cli.settings import DEFINES, as_settings
from millstream.common.aliases import Json, Value
from millstream.common.configuration import Configuration
from millstream.common.display_text import in_bytes
from millstream.common.errors import InvalidProgramError, MissingClassError
from millstream.common.pickles import load
from millstream.common.restricted_pickles import load_restricted
from millstream.state.columns import jsonable, text_of
from millstream.state.kinds import COLUMNS

_OPERATOR = click.option("-o", "--operator", help="Only this operator: its uid, id or name.")
_TRUST = click.option(
    "--trust",
    is_flag=True,
    help="Create objects of the program's classes. Can run code: only for state of a trusted writer.",
)
_STATE = click.option("-s", "--state", "state_name", help="Only the state with this name.")


@click.group()
def state() -> None:
    """Inspect checkpoints and savepoints: PATH, or a job for its last complete checkpoint."""


def open_inspection(path: str, defines: tuple[str, ...], trust: bool = False) -> Inspection:
    """Open a checkpoint or savepoint, or the last complete checkpoint of a job.

    The job retains that checkpoint until the command has ended.

    Args:
        path: the path, or the job.
        defines: settings, of storage and of the signing key.
        trust: whether to create objects of the program's classes, which can run code, instead of placeholders.
    """
    loads = load if trust else load_restricted
    config = Configuration.from_dict(as_settings(defines))
    is_path = is_remote(path) or os.path.exists(local_path(path)) or os.sep in path
    location = path if is_path else click.get_current_context().with_resource(_last_checkpoint_of(path))
    return Inspection.open(location, storage_options(config), loads, signing_keys(config))


@contextlib.contextmanager
def _last_checkpoint_of(job: str) -> Iterator[str]:
    """Yield the location of the last complete checkpoint of a job in another process, and lease it."""
    # A lazy import: a path needs no client.
    from millstream.service.client import ServiceError, leased_checkpoint, service_of

    with contextlib.ExitStack() as stack:
        try:
            client, job_id = service_of(job, None, None)
            if client.ask(f"/jobs/{job_id}")["end-time"] == -1:
                location = stack.enter_context(leased_checkpoint(client, job_id))
            else:
                location = _retained_checkpoint(job_id, client.ask(f"/jobs/{job_id}/checkpoints"))
        except ServiceError as e:
            raise InvalidProgramError(f"{job} is neither a file nor a reachable job. {e}") from None
        yield location


def _retained_checkpoint(job_id: str, statistics: dict[str, Json]) -> str:
    latest = statistics["latest"].get("completed")
    if latest is None:
        raise InvalidProgramError(f"Job {job_id} has ended without a complete checkpoint.")
    return str(latest["external_path"])


def _chosen(inspection: Inspection, operator: str | None, name: str | None) -> Iterator[tuple[OperatorInfo, StateInfo]]:
    """Yield the selected states."""
    if operator is not None:
        operator_info = inspection.operator(operator)
        operators = [inspection.counted(operator_info.id)]
        if name is not None:
            state_info = inspection.state(operator_info, name)
            counted = [s for s in operators[0].states if (s.scope, s.table) == (state_info.scope, state_info.table)]
            yield operators[0], (counted or [state_info])[0]
            return
    else:
        operators = inspection.operators()
    matches = [(o, s) for o in operators for s in o.states if name is None or name in (s.name, s.table)]
    if name is not None and not matches:
        raise InvalidProgramError(f"No operator of {inspection.location} has a state {name!r}.")
    yield from matches


# --- ls


@state.command(name="ls")
@click.argument("path")
@JSON
@DEFINES
def list_states(path: str, as_json: bool, defines: tuple[str, ...]) -> None:
    """List operators, their states, and the positions of sources."""
    inspection = open_inspection(path, defines)
    if as_json:
        print_json(_described(inspection))
        return
    click.echo(heading(inspection))
    lines = [line for o in inspection.operators() for line in _operator_lines(o)]
    header = ["OPERATOR", "UID", "ID", "PARALLELISM", "MAX", "STATE", "KIND", "TYPE", "TTL", "ROWS", "BYTES"]
    click.echo("\n" + table(header, lines, right=["PARALLELISM", "MAX", "ROWS", "BYTES"]))
    sources = [[s.name, s.uid or "", text_of(s.position)] for s in inspection.sources()]
    if sources:
        click.echo("\n" + table(["SOURCE", "UID", "POSITION"], sources))


def heading(inspection: Inspection) -> str:
    """Return the lines that describe a checkpoint or savepoint."""
    manifest, snapshot = inspection.manifest, inspection.snapshot
    taken = datetime.fromtimestamp(manifest.timestamp / 1000, UTC)
    return (
        f"{manifest.kind.capitalize():<11}{inspection.location}\n"
        f"{'Job':<11}{snapshot.job_name} ({snapshot.job_id})\n"
        f"{'Taken':<11}{taken:%Y-%m-%d %H:%M:%S} UTC, after epoch {snapshot.epoch}"
    )


def _operator_lines(operator: OperatorInfo) -> Iterator[list[str]]:
    spread = [str(operator.parallelism), str(operator.max_parallelism)]
    first = [operator.name, operator.uid or "", operator.id[:8], *spread]
    if not operator.states:
        yield [*first, *[""] * 6]
    for state_info in operator.states:
        yield [
            *first,
            state_info.name,
            state_info.kind,
            state_info.type,
            state_info.ttl,
            str(state_info.rows),
            in_bytes(state_info.size),
        ]
        first = [""] * 5


def _described(inspection: Inspection) -> dict[str, Json]:
    manifest, snapshot = inspection.manifest, inspection.snapshot
    return {
        "location": inspection.location,
        "kind": manifest.kind,
        "job": {"id": snapshot.job_id, "name": snapshot.job_name},
        "timestamp": manifest.timestamp,
        "epoch": snapshot.epoch,
        "operators": [_described_operator(o) for o in inspection.operators()],
        "sources": [
            {"operator": s.operator, "uid": s.uid, "name": s.name, "position": jsonable(s.position)}
            for s in inspection.sources()
        ],
    }


def _described_operator(operator: OperatorInfo) -> dict[str, Json]:
    return {
        "id": operator.id,
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "states": [
            {
                "name": s.name,
                "table": s.table,
                "scope": s.scope,
                "kind": s.kind,
                "address": s.address,
                "type": s.type,
                "ttl": s.ttl,
                "rows": s.rows,
                "bytes": s.size,
            }
            for s in operator.states
        ],
    }


# --- show


@state.command()
@click.argument("path")
@_OPERATOR
@_STATE
@click.option("-k", "--key", help="Only rows of this key, as shown or as plain text.")
@click.option("-n", "--limit", type=click.IntRange(min=0), default=20, help="Rows of each state; 0 for all.")
@_TRUST
@JSON
@DEFINES
def show(
    path: str,
    operator: str | None,
    state_name: str | None,
    key: str | None,
    limit: int,
    trust: bool,
    as_json: bool,
    defines: tuple[str, ...],
) -> None:
    """Print the rows of states."""
    inspection = open_inspection(path, defines, trust)
    printed: list[dict[str, Json]] = []
    unreadable = []
    for owner, state_info in _chosen(inspection, operator, state_name):
        rows = (r for r in inspection.rows(owner, state_info) if key is None or is_key(r.key, key))
        try:
            some, more = limited(rows, limit)
        except MissingClassError as e:
            unreadable.append(str(e))
            continue
        if as_json:
            about = {"operator": owner.id, "uid": owner.uid, "state": state_info.name, "kind": state_info.kind}
            printed.append({**about, "rows": [row_as_json(r) for r in some], "complete": not more})
        elif some or key is None:
            click.echo(_rows_text(owner, state_info, some, more))
    if as_json:
        print_json(printed)
    for problem in unreadable:
        click.echo(problem, err=True)
    if unreadable:
        sys.exit(1)


def _rows_text(operator: OperatorInfo, state_info: StateInfo, rows: list[StateRow], more: bool) -> str:
    kind = f"{state_info.kind}, {state_info.type}" if state_info.type else state_info.kind
    title = f"{operator.label} / {state_info.name} ({kind}): {count(state_info.rows, 'row')}"
    if not rows:
        return title
    if state_info.kind == COLUMNS.name:
        text = f"{title}\n{_columns_text(rows)}"
    else:
        cells = [[_shown(r.key), _shown(r.namespace), repr(r.value)] for r in rows]
        text = f"{title}\n{table(['KEY', 'NAMESPACE', 'VALUE'], cells, indent=2)}"
    return f"{text}\n  ... and more (--limit 0 shows all)" if more else text


def _columns_text(rows: list[StateRow]) -> str:
    """Format rows of SQL state as a table, the columns of the key first."""
    header = [name for part in (rows[0].key, rows[0].value) if part is not None for name in part.as_dict()]
    cells = [[_cell(v) for part in (r.key, r.value) if part is not None for v in part] for r in rows]
    return table(header, cells, indent=2)


def _cell(value: Value) -> str:
    return "NULL" if value is None else shorten(str(value))


def _shown(part: Value) -> str:
    return "" if part is None else repr(part)


# --- diff


@state.command()
@click.argument("first")
@click.argument("second")
@click.option("-n", "--limit", type=click.IntRange(min=0), default=5, help="Examples of each state.")
@_TRUST
@JSON
@DEFINES
def diff(first: str, second: str, limit: int, trust: bool, as_json: bool, defines: tuple[str, ...]) -> None:
    """Print the differences between two checkpoints or savepoints, by key."""
    before, after = open_inspection(first, defines, trust), open_inspection(second, defines, trust)
    changed = list(differences(before, after, limit))
    if as_json:
        print_json([_difference_as_json(d) for d in changed])
        return
    cells = [
        [d.operator, d.state, str(d.added), str(d.removed), str(d.changed), str(d.unchanged), _only_in(d)]
        for d in changed
    ]
    header = ["OPERATOR", "STATE", "ADDED", "REMOVED", "CHANGED", "SAME", "ONLY IN"]
    click.echo(table(header, cells, right=header[2:6]) if cells else "Neither of them has state.")
    for d in changed:
        if d.examples:
            click.echo(f"\n{d.operator} / {d.state}")
            for example in d.examples:
                click.echo(f"  {_difference_text(example)}")
            left = d.added + d.removed + d.changed - len(d.examples)
            if left:
                click.echo(f"  ... and {left} more")
    if all(d.is_empty and not d.only_in for d in changed):
        click.echo("\nNo differences.")


def _only_in(difference: StateDifference) -> str:
    return f"the {difference.only_in}" if difference.only_in else ""


def _difference_text(difference: RowDifference) -> str:
    row = difference.row
    where = " ".join(_shown(part) for part in (row.key, row.namespace) if part is not None) or "None"
    values = [shorten(repr(r.value)) for r in (difference.before, difference.after) if r is not None]
    return f"{difference.sign} {where}: {' -> '.join(values)}"


def _difference_as_json(difference: StateDifference) -> dict[str, Json]:
    return {
        "operator": difference.operator,
        "state": difference.state,
        "only_in": difference.only_in,
        "added": difference.added,
        "removed": difference.removed,
        "changed": difference.changed,
        "same": difference.unchanged,
        "examples": [
            {
                "key": jsonable(e.row.key),
                "namespace": jsonable(e.row.namespace),
                "before": None if e.before is None else jsonable(e.before.value),
                "after": None if e.after is None else jsonable(e.after.value),
            }
            for e in difference.examples
        ],
    }


# --- export


@state.command()
@click.argument("path")
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--format", "form", type=click.Choice(["parquet", "jsonl"]), default="parquet", show_default=True)
@_OPERATOR
@_STATE
@_TRUST
@DEFINES
def export(
    path: str,
    directory: str,
    form: str,
    operator: str | None,
    state_name: str | None,
    trust: bool,
    defines: tuple[str, ...],
) -> None:
    """Write the rows of states to DIRECTORY, one file per state."""
    inspection = open_inspection(path, defines, trust)
    os.makedirs(directory, exist_ok=True)
    for owner, state_info in _chosen(inspection, operator, state_name):
        name = os.path.join(directory, f"{_file_name(owner.uid or owner.id[:8])}.{_file_name(state_info.name)}.{form}")
        if os.path.exists(name):
            raise InvalidProgramError(f"{name} already exists: use a directory without this file.")
        rows = inspection.rows(owner, state_info)
        written = _write_parquet(name, rows) if form == "parquet" else _write_lines(name, rows)
        click.echo(f"{name}: {count(written, 'row')}")


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)


def _write_parquet(name: str, rows: Iterator[StateRow]) -> int:
    # Lazy imports: only this format needs pyarrow.
    import pyarrow as pa
    import pyarrow.parquet as pq

    from millstream.state.columns import column

    all_rows = list(rows)
    columns = {part: column(getattr(r, part) for r in all_rows) for part in ("key", "namespace", "value")}
    pq.write_table(pa.table(columns), name)
    return len(all_rows)


def _write_lines(name: str, rows: Iterator[StateRow]) -> int:
    written = 0
    # Under a temporary name until it is complete.
    unfinished = f"{name}.inprogress"
    with open(unfinished, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row_as_json(row), ensure_ascii=False) + "\n")
            written += 1
    os.replace(unfinished, name)
    return written
