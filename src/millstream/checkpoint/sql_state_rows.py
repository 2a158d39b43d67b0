"""Columnar state of SQL operators as readable rows, with the column names of the query. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from millstream.checkpoint.sql_state_diff import parts_of
from millstream.checkpoint.state_rows import Address, StateRow
from millstream.common.aliases import Value
from millstream.common.restricted_pickles import load_restricted
from millstream.common.types import Row
from millstream.state.column_table import HASH, RowChange

# Columns of the files that are not part of the row.
_NUMBER = "number"
_INNER = frozenset([HASH, _NUMBER, "mark", "order", "updated_at"])
_KEY = re.compile(r"k(\d+)")
_COLUMN = re.compile(r"c(\d+)")
# The first byte of an int among objects; no pickle begins with it.
_INT = b"\0"
_KEYS = ("groupBy", "partitionBy", "key")


def column_rows(changes: Iterable[RowChange], names: Mapping[str, str]) -> Iterator[tuple[Address, StateRow]]:
    """Yield the rows that result from changes, each with its address.

    Args:
        changes: rows that were set and removed, oldest first.
        names: the names of columns in the query, by their names in files.
    """
    rows: dict[tuple[Value, ...], dict[str, Value]] = {}
    for change in changes:
        if change.removed is not None:
            for address in _addresses(change.removed, removed=True):
                rows.pop(address, None)
        visible = [n for n in change.rows.schema.names if n not in _INNER]
        columns = {name: _values(name, change.rows.column(name)) for name in visible}
        for index, address in enumerate(_addresses(change.rows, removed=False)):
            rows[address] = {name: values[index] for name, values in columns.items()}
    for address, row in rows.items():
        keys = {names.get(n, n): v for n, v in row.items() if _KEY.fullmatch(n)}
        row_values = {names.get(n, n): v for n, v in row.items() if not _KEY.fullmatch(n)}
        yield (address, None), StateRow(Row(**keys) if keys else None, None, Row(**row_values))


def _addresses(batch: pa.RecordBatch, removed: bool) -> list[tuple[Value, ...]]:
    """Return the addresses of rows: the number of each, or its key."""
    names = batch.schema.names
    hashes = batch.column(0).to_pylist()
    if _NUMBER in names or (removed and not any(_KEY.fullmatch(n) for n in names)):
        number = batch.column(_NUMBER) if _NUMBER in names else batch.column(batch.num_columns - 1)
        return list(zip(hashes, number.to_pylist(), strict=True))
    keys = [map(repr, batch.column(n).to_pylist()) for n in names if _KEY.fullmatch(n)]
    return list(zip(hashes, *keys, strict=True))


def _values(name: str, column: pa.Array) -> list[Value]:
    values: list[Value] = column.to_pylist()
    if not pa.types.is_binary(column.type) or _KEY.fullmatch(name) or _COLUMN.fullmatch(name):
        return values
    # An aggregate's accumulator may be any object, not only a column value: see `sql.columns.keyed_columns.written`.
    return [None if body is None else _object(body) for body in values]


def _object(body: bytes) -> Value:
    return int.from_bytes(body[1:], "little", signed=True) if body[:1] == _INT else load_restricted(body)


def names_of(operator: str, state: str, columns: Sequence[str]) -> dict[str, str]:
    """Return the names of a state's columns in the query, as far as the operator's name contains them.

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
        names |= {f"c{i}": _called(expression) for i, expression in enumerate(of_state)}
    calls = [c for c in selected if "(" in c]
    for column in columns:
        # An accumulator may have several columns.
        accumulator = re.fullmatch(r"a(\d+)(?:\.value)?(\..*)?", column)
        if accumulator is not None and int(accumulator[1]) < len(calls):
            names[column] = calls[int(accumulator[1])].partition(" AS ")[0] + (accumulator[2] or "")
    known = {column: name for column, name in names.items() if column in columns}
    # Columns with equal names would be indistinguishable.
    return known if len(set(known.values())) == len(known) else {}


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
