"""Asks a checkpoint for the state of a key."""

from __future__ import annotations

from itertools import islice
from typing import Any

from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.state_rows import StateRow
from millstream.state.columns import jsonable, text_of


def is_key(key: Any, wanted: str) -> bool:
    """Tell whether a key is the one that somebody has typed: as it is shown, or as plain text."""
    return wanted in (str(key), repr(key), text_of(key))


def row_as_json(row: StateRow) -> dict[str, Any]:
    """Return a row as plain values."""
    return {"key": jsonable(row.key), "namespace": jsonable(row.namespace), "value": jsonable(row.value)}


def states_as_json(inspection: Inspection) -> list[dict[str, Any]]:
    """Return which operators have which states, with how much they hold."""
    return [
        {
            "operator": operator.id,
            "uid": operator.uid,
            "name": operator.name,
            "states": [{"name": s.name, "kind": s.kind, "type": s.type, "rows": s.rows} for s in operator.states],
        }
        for operator in inspection.operators()
        if operator.states
    ]


def rows_as_json(inspection: Inspection, operator: str, state: str, key: str | None, most: int) -> dict[str, Any]:
    """Return the rows of a state, of one key or of all.

    Args:
        inspection: the checkpoint.
        operator: its uid, id or name.
        state: the state's name.
        key: only rows of this key, as it is shown or as plain text; None for all.
        most: so many rows at most.
    """
    owner = inspection.operator(operator)
    found = inspection.state(owner, state)
    rows = (row for row in inspection.rows(owner, found) if key is None or is_key(row.key, key))
    some = list(islice(rows, most + 1))
    about = {"operator": owner.id, "uid": owner.uid, "state": found.name, "kind": found.kind}
    return {**about, "rows": [row_as_json(row) for row in some[:most]], "complete": len(some) <= most}
