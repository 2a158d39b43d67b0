"""State that operators of SQL keep as columns, as rows that a person reads: with the names the query gave. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.checkpoint.sql_state_diff import parts_of
from millstream.checkpoint.state_rows import Address, StateRow
from millstream.common.restricted_pickles import load_restricted
from millstream.common.types import Row
from millstream.state.column_table import HASH, RowChange

# What files say of a row besides its columns.
_NUMBER = "number"
_INNER = frozenset([HASH, _NUMBER, "mark", "order", "updated_at"])
_KEY = re.compile(r"k(\d+)")
_COLUMN = re.compile(r"c(\d+)")
# What an int begins with among objects; a pickle never begins so.
_INT = b"\0"
_KEYS = ("groupBy", "partitionBy", "key")


def column_rows(changes: Iterable[RowChange], names: Mapping[str, str]) -> Iterator[tuple[Address, StateRow]]:
    """Yield the rows that changes come to, one after the other, with what tells each from the others.

    Args:
        changes: what was set and removed, oldest first.
        names: how columns are called, by what files call them.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for change in changes:
        if change.gone is not None:
            for address in _addresses(change.gone, is_gone=True):
                found.pop(address, None)
        shown = [n for n in change.rows.schema.names if n not in _INNER]
        columns = {name: _values(name, change.rows.column(name)) for name in shown}
        for place, address in enumerate(_addresses(change.rows, is_gone=False)):
            found[address] = {name: values[place] for name, values in columns.items()}
    for address, row in found.items():
        keys = {names.get(n, n): v for n, v in row.items() if _KEY.fullmatch(n)}
        rest = {names.get(n, n): v for n, v in row.items() if not _KEY.fullmatch(n)}
        yield (address, None), StateRow(Row(**keys) if keys else None, None, Row(**rest))


def _addresses(batch: pa.RecordBatch, is_gone: bool) -> list[tuple[Any, ...]]:
    """Return what tells rows apart: the number of each, or its key."""
    names = batch.schema.names
    hashes = batch.column(0).to_pylist()
    if _NUMBER in names or (is_gone and not any(_KEY.fullmatch(n) for n in names)):
        number = batch.column(_NUMBER) if _NUMBER in names else batch.column(batch.num_columns - 1)
        return list(zip(hashes, number.to_pylist(), strict=True))
    keys = [map(repr, batch.column(n).to_pylist()) for n in names if _KEY.fullmatch(n)]
    return list(zip(hashes, *keys, strict=True))


def _values(name: str, column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if not pa.types.is_binary(column.type) or _KEY.fullmatch(name) or _COLUMN.fullmatch(name):
        return values
    # What an aggregate keeps of a key is no value of a column, but any object: see `sql.columns.keyed.written`.
    return [None if body is None else _object(body) for body in values]


def _object(body: bytes) -> Any:
    return int.from_bytes(body[1:], "little", signed=True) if body[:1] == _INT else load_restricted(body)


def names_of(operator: str, state: str, columns: Sequence[str]) -> dict[str, str]:
    """Return how the columns of a state are called in the query, as far as the name of its operator says so.

    Example:
        >>> names_of("GroupAggregate(groupBy=[k], select=[k, SUM(n) AS s])", "groups", ["k0", "a0"])
        {'k0': 'k', 'a0': 'SUM(n)'}
        >>> names_of("Join(where=[(id = id0)], select=[id, v, id0, w])", "right", ["c0", "c1"])
        {'c0': 'id0', 'c1': 'w'}
    """
    keys = next((listed for word in _KEYS if (listed := _part(operator, word))), [])
    selected = _part(operator, "select")
    names = {f"k{i}": _called(key) for i, key in enumerate(keys)}
    own = [c for c in columns if _COLUMN.fullmatch(c)]
    if own and len(own) <= len(selected):
        of_state = selected[-len(own) :] if state == "right" else selected[: len(own)]
        names |= {f"c{i}": _called(one) for i, one in enumerate(of_state)}
    calls = [c for c in selected if "(" in c]
    for column in columns:
        # An accumulator may have several columns.
        accumulator = re.fullmatch(r"a(\d+)(?:\.value)?(\..*)?", column)
        if accumulator is not None and int(accumulator[1]) < len(calls):
            names[column] = calls[int(accumulator[1])].partition(" AS ")[0] + (accumulator[2] or "")
    found = {column: name for column, name in names.items() if column in columns}
    # Two columns of one name could not be told apart.
    return found if len(set(found.values())) == len(found) else {}


def _part(operator: str, word: str) -> list[str]:
    """Return what an operator's name lists under a word."""
    parts, depth = [""], 0
    for character in parts_of(operator).get(word, ""):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [p.strip() for p in parts if p.strip()]


def _called(column: str) -> str:
    return column.rpartition(" AS ")[2]
