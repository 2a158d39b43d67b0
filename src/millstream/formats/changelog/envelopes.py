"""JSON envelopes of changelogs: how Debezium, Maxwell and Canal wrap changed rows.

Envelopes are shared by the schemas of DataStream programs (`messages.py`) and the table formats (`table.py`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, TypeAlias, TypeVar

from millstream.common.aliases import Json
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

R = TypeVar("R")
JsonObject: TypeAlias = dict[str, Json]
# The row kinds and rows of a message.
RowChanges: TypeAlias = Iterator[tuple[int, JsonObject]]

_NO_BEFORE = "; set REPLICA IDENTITY FULL if the table is in PostgreSQL"


class ChangelogEnvelope(ABC):
    """Parses and builds the messages of one program.

    Attributes:
        program: the name of the program, for errors.
    """

    program: ClassVar[str]

    @abstractmethod
    def changes(self, document: JsonObject) -> RowChanges:
        """Yield the changes of a message; raise ValueError, KeyError, AttributeError or TypeError for a malformed one.

        A message has any number of changes.
        """

    @abstractmethod
    def message(self, row: str, is_insert: bool) -> str:
        """Return the message that inserts or deletes a row.

        Args:
            row: the row as a JSON object.
            is_insert: whether the row is inserted (+I, +U) or deleted (-U, -D), as in Flink.
        """


def malformed_reason(error: Exception) -> str:
    """Return the reason why an envelope rejected a message."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _object(value: Json) -> JsonObject | None:
    return value if isinstance(value, dict) else None


def _present(row: R | None, name: str, op: str, hint: str = "") -> R:
    if row is None:
        raise ValueError(f"the '{name}' of '{op}' is missing{hint}")
    return row


def _rows(rows: Iterable[Json], kind: int, op: str) -> RowChanges:
    for row in rows:
        yield kind, _present(_object(row), "data", op)


def _updates(rows: Iterable[JsonObject], old_rows: Json, op: str) -> RowChanges:
    """Yield UPDATE_BEFORE and UPDATE_AFTER rows; the old rows of a message contain only the changed columns."""
    if not isinstance(old_rows, list):
        raise ValueError(f"the 'old' of '{op}' is missing")
    for row, old in zip(rows, old_rows, strict=True):
        yield UPDATE_BEFORE, {**row, **old}
        yield UPDATE_AFTER, row


def debezium_changes(op: Json, before: R | None, after: R | None) -> Iterator[tuple[int, R]]:
    """Yield the changes of a Debezium message, JSON or Avro; raise ValueError for a malformed one."""
    if op in ("c", "r"):
        yield INSERT, _present(after, "after", op)
    elif op == "u":
        yield UPDATE_BEFORE, _present(before, "before", op, _NO_BEFORE)
        yield UPDATE_AFTER, _present(after, "after", op)
    elif op == "d":
        yield DELETE, _present(before, "before", op, _NO_BEFORE)
    elif op == "t":
        raise ValueError("it truncates the table, and a changelog has no row kind for that")
    # "m" is a message of PostgreSQL's logical decoding, which changes no row.
    elif op != "m":
        raise ValueError(f"its 'op' is {op!r}, which is none of c, r, u, d")


class DebeziumEnvelope(ChangelogEnvelope):
    """`op` is `c` or `r` (inserts `after`), `u` (replaces `before` by `after`) or `d` (deletes `before`).

    Args:
        has_schema: whether messages contain their schema, and the change as `payload`.
    """

    program = "Debezium"

    def __init__(self, has_schema: bool = False) -> None:
        self._has_schema = has_schema

    def changes(self, document: JsonObject) -> RowChanges:
        if self._has_schema:
            document = _present(_object(document["payload"]), "payload", "schema-include")
        return debezium_changes(document.get("op"), _object(document.get("before")), _object(document.get("after")))

    def message(self, row: str, is_insert: bool) -> str:
        return f'{{"before":null,"after":{row},"op":"c"}}' if is_insert else f'{{"before":{row},"after":null,"op":"d"}}'


class MaxwellEnvelope(ChangelogEnvelope):
    """`data` is a row; `old` contains the previous values of the columns that an update changed."""

    program = "Maxwell"

    def changes(self, document: JsonObject) -> RowChanges:
        kind = document["type"]
        if kind in ("insert", "bootstrap-insert"):
            yield from _rows([document["data"]], INSERT, kind)
        elif kind == "update":
            yield from _updates([document["data"]], [document["old"]], kind)
        elif kind == "delete":
            yield from _rows([document["data"]], DELETE, kind)
        elif kind not in ("bootstrap-start", "bootstrap-complete"):
            raise ValueError(f"its 'type' is {kind!r}, which is none of insert, update, delete")

    def message(self, row: str, is_insert: bool) -> str:
        return f'{{"data":{row},"type":"{"insert" if is_insert else "delete"}"}}'


class CanalEnvelope(ChangelogEnvelope):
    """`data` is a list of rows; `old` lists the previous values of the columns that updates changed.

    Args:
        include: fields of messages, such as `database`, with the patterns that they must match; messages that do not
            match are skipped.
    """

    program = "Canal"

    def __init__(self, include: Sequence[tuple[str, re.Pattern[str]]] = ()) -> None:
        self._include = include

    def changes(self, document: JsonObject) -> RowChanges:
        if any(not pattern.fullmatch(str(document[field])) for field, pattern in self._include):
            return
        kind = document["type"]
        if kind == "CREATE" or document.get("isDdl"):
            return
        if kind == "UPDATE":
            yield from _updates(document["data"], document.get("old"), kind)
        elif kind in ("INSERT", "DELETE"):
            yield from _rows(document["data"], INSERT if kind == "INSERT" else DELETE, kind)
        else:
            raise ValueError(f"its 'type' is {kind!r}, which is none of INSERT, UPDATE, DELETE")

    def message(self, row: str, is_insert: bool) -> str:
        return f'{{"data":[{row}],"type":"{"INSERT" if is_insert else "DELETE"}"}}'
