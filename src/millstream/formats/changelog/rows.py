"""JSON messages that tell changes of rows, as Debezium, Maxwell and Canal write them: read and written."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row, RowKind
from millstream.formats.json.values import JsonError, reader_of, writer_of
from millstream.formats.text_values import check_row_type
from millstream.operators.diagnostics.failures import shorten

__all__ = [
    "CanalJsonDeserializationSchema",
    "CanalJsonSerializationSchema",
    "ChangeDeserializationSchema",
    "DebeziumJsonDeserializationSchema",
    "DebeziumJsonSerializationSchema",
    "MaxwellJsonDeserializationSchema",
    "MaxwellJsonSerializationSchema",
]

# A kind of change, and the row as JSON has it.
Told = Iterator[tuple[RowKind, Any]]

_INSERT, _BEFORE, _AFTER, _DELETE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


class ChangeDeserializationSchema(DeserializationSchema, ABC):
    """Reads rows with their kind of change; an update is two rows, so a message may have several.

    KafkaSource takes it as it is; elsewhere `stream.flat_map(schema.deserialize_all)` makes rows of messages.
    """

    format = ""

    def __init__(self, row_type: TypeInformation, ignore_parse_errors: bool = False) -> None:
        self._type = check_row_type(row_type, type(self).__name__)
        self._lenient = ignore_parse_errors
        self._make: Callable[[Any], Row] | None = None
        self._exact = "BigDecimal" in str(self._type)
        reader_of(self._type, False, ignore_parse_errors)

    @abstractmethod
    def _changes(self, document: dict[str, Any]) -> Told:
        """Yield what a message tells."""

    def deserialize_all(self, message: bytes) -> list[Row]:
        """Return the rows that a message tells of: none, one or more."""
        if not message:
            # What Kafka keeps of a row that was deleted.
            return []
        if self._make is None:
            self._make = reader_of(self._type, False, self._lenient)
        try:
            # As written, where that counts.
            document = json.loads(message, parse_float=Decimal if self._exact else None)
            if not isinstance(document, dict):
                raise JsonError("it is not an object")
            return [self._row(kind, values) for kind, values in self._changes(document)]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            if self._lenient:
                return []
            why = f"it has no {e}" if isinstance(e, KeyError) else str(e)
            raise MillstreamError(
                f"The {self.format} message {shorten(message)} cannot be read: {why}. Correct it, or leave such "
                "messages "
                "out with ignore_parse_errors=True."
            ) from None

    def _row(self, kind: RowKind, values: Any) -> Row:
        if not isinstance(values, dict):
            raise JsonError("a row is missing")
        assert self._make is not None
        row = self._make(values)
        row.set_row_kind(kind)
        return row

    def deserialize(self, message: bytes) -> Row | None:
        """Return the row of a message that tells of one; None when it tells of none."""
        rows = self.deserialize_all(message)
        if len(rows) > 1:
            raise MillstreamError(
                f"The {self.format} message {shorten(message)} tells of {len(rows)} rows: read messages as bytes, "
                "and make rows "
                "of them with flat_map(schema.deserialize_all)."
            )
        return rows[0] if rows else None

    def get_produced_type(self) -> TypeInformation:
        return self._type

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_make": None}


class DebeziumJsonDeserializationSchema(ChangeDeserializationSchema):
    """Reads Debezium's messages: `before`, `after`, `op`.

    Args:
        row_type: the fields of the table to read.
        schema_include: whether messages come with their schema, the change in `payload`.
        ignore_parse_errors: leave out messages that cannot be read.

    Example:
        >>> from millstream.common import Types
        >>> schema = DebeziumJsonDeserializationSchema(Types.ROW_NAMED(["id"], [Types.INT()]))
        >>> schema.deserialize_all(b'{"before": {"id": 1}, "after": null, "op": "d"}')[0].get_row_kind()
        <RowKind.DELETE: 3>
    """

    format = "Debezium"

    def __init__(
        self, row_type: TypeInformation, schema_include: bool = False, ignore_parse_errors: bool = False
    ) -> None:
        super().__init__(row_type, ignore_parse_errors)
        self._in_payload = schema_include

    def _changes(self, document: dict[str, Any]) -> Told:
        if self._in_payload:
            document = document["payload"]
        op = document["op"]
        if op in ("c", "r"):
            yield _INSERT, document["after"]
        elif op in ("u", "d"):
            before = document.get("before")
            if before is None:
                raise JsonError(
                    "its before is null, though it is an update or a delete: if it comes from PostgreSQL, give the "
                    "table "
                    "REPLICA IDENTITY FULL"
                )
            yield (_BEFORE if op == "u" else _DELETE), before
            if op == "u":
                yield _AFTER, document["after"]
        elif op not in ("t", "m"):
            raise JsonError(f"{op!r} is no op")
        elif op == "t":
            raise JsonError("the table was truncated, of which no row can tell")


class MaxwellJsonDeserializationSchema(ChangeDeserializationSchema):
    """Reads Maxwell's messages: `data`, `old`, `type`."""

    format = "Maxwell"

    def _changes(self, document: dict[str, Any]) -> Told:
        kind = document["type"]
        if kind in ("insert", "bootstrap-insert"):
            yield _INSERT, document["data"]
        elif kind == "update":
            # Of the row as it was only what has changed is told.
            yield _BEFORE, {**document["data"], **document["old"]}
            yield _AFTER, document["data"]
        elif kind == "delete":
            yield _DELETE, document["data"]
        elif kind not in ("bootstrap-start", "bootstrap-complete"):
            raise JsonError(f"{kind!r} is no type of a change to a row")


class CanalJsonDeserializationSchema(ChangeDeserializationSchema):
    """Reads Canal's messages: lists `data` and `old`, `type`.

    Args:
        database_include: a regular expression; messages of other databases are left out.
        table_include: a regular expression; messages of other tables are left out.
    """

    format = "Canal"

    def __init__(
        self,
        row_type: TypeInformation,
        database_include: str | None = None,
        table_include: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__(row_type, ignore_parse_errors)
        try:
            patterns = (("database", database_include), ("table", table_include))
            self._include = [(field, re.compile(pattern)) for field, pattern in patterns if pattern is not None]
        except re.error as e:
            raise InvalidProgramError(f"CanalJsonDeserializationSchema: a pattern is none: {e}.") from None

    def _changes(self, document: dict[str, Any]) -> Told:
        if any(not pattern.fullmatch(document[field]) for field, pattern in self._include):
            return
        kind = document["type"]
        if kind == "CREATE" or document.get("isDdl"):
            return
        rows = document["data"]
        if kind == "UPDATE":
            for row, old in zip(rows, document["old"], strict=True):
                yield _BEFORE, {**row, **old}
                yield _AFTER, row
        elif kind in ("INSERT", "DELETE"):
            for row in rows:
                yield (_INSERT if kind == "INSERT" else _DELETE), row
        else:
            raise JsonError(f"{kind!r} is no type of a change to a row")


class _ChangeSerializationSchema(SerializationSchema, ABC):
    def __init__(self, row_type: TypeInformation) -> None:
        self._type = check_row_type(row_type, type(self).__name__)
        convert = self._type.converter()
        assert convert is not None
        self._fit = convert
        self._write = writer_of(self._type)

    @abstractmethod
    def _told(self, row: str, is_there: bool) -> str:
        """Return the message of a row that is there now, or is not any more."""

    def serialize(self, element: Row) -> bytes:
        is_there = element.get_row_kind() in (_INSERT, _AFTER)
        return self._told(self._write(self._fit(element)), is_there).encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type,)


class DebeziumJsonSerializationSchema(_ChangeSerializationSchema):
    """Writes rows as Debezium does: -U and -D as `d`, +I and +U as `c`, as in Flink.

    Example:
        >>> from millstream.common import Row, Types
        >>> DebeziumJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(id=1))
        b'{"before":null,"after":{"id":1},"op":"c"}'
    """

    def _told(self, row: str, is_there: bool) -> str:
        return f'{{"before":null,"after":{row},"op":"c"}}' if is_there else f'{{"before":{row},"after":null,"op":"d"}}'


class MaxwellJsonSerializationSchema(_ChangeSerializationSchema):
    """Writes rows as Maxwell does: -U and -D as `delete`, +I and +U as `insert`, as in Flink."""

    def _told(self, row: str, is_there: bool) -> str:
        return f'{{"data":{row},"type":"{"insert" if is_there else "delete"}"}}'


class CanalJsonSerializationSchema(_ChangeSerializationSchema):
    """Writes rows as Canal does: -U and -D as `DELETE`, +I and +U as `INSERT`, as in Flink."""

    def _told(self, row: str, is_there: bool) -> str:
        return f'{{"data":[{row}],"type":"{"INSERT" if is_there else "DELETE"}"}}'
