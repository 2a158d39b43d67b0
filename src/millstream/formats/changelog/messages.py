"""Debezium's, Maxwell's and Canal's JSON messages as rows with a row kind, and such rows as messages."""

from __future__ import annotations

import json
import re
from abc import ABC
from collections.abc import Callable
from decimal import Decimal

from millstream.common.aliases import Json
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row, RowKind
from millstream.formats.changelog.envelopes import (
    CanalEnvelope,
    ChangelogEnvelope,
    DebeziumEnvelope,
    MaxwellEnvelope,
    malformed_reason,
)
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

_KINDS = [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE]


class ChangeDeserializationSchema(DeserializationSchema, ABC):
    """Reads rows with their row kind; an update is two rows, so a message may have several.

    KafkaSource accepts the schema; elsewhere use `stream.flat_map(schema.deserialize_all)`.
    """

    def __init__(
        self, row_type: TypeInformation, envelope: ChangelogEnvelope, ignore_parse_errors: bool = False
    ) -> None:
        self._type = check_row_type(row_type, type(self).__name__)
        self._envelope = envelope
        self._lenient = ignore_parse_errors
        self._make: Callable[[Json], Row] | None = None
        self._exact = "BigDecimal" in str(self._type)
        reader_of(self._type, False, ignore_parse_errors)

    def deserialize_all(self, message: bytes) -> list[Row]:
        """Return the changed rows of a message: none, one or more."""
        if not message:
            # A Kafka tombstone follows a delete.
            return []
        if self._make is None:
            self._make = reader_of(self._type, False, self._lenient)
        try:
            # Decimal columns need all digits.
            document = json.loads(message, parse_float=Decimal if self._exact else None)
            if not isinstance(document, dict):
                raise JsonError("it is not an object")
            return [self._row(_KINDS[kind], values) for kind, values in self._envelope.changes(document)]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            if self._lenient:
                return []
            raise MillstreamError(
                f"The {self._envelope.program} message {shorten(message)} cannot be read: {malformed_reason(e)}. "
                "Correct it, or skip such messages with ignore_parse_errors=True."
            ) from None

    def _row(self, kind: RowKind, values: Json) -> Row:
        assert self._make is not None
        row = self._make(values)
        row.set_row_kind(kind)
        return row

    def deserialize(self, message: bytes) -> Row | None:
        """Return the row of a message with one change; None for a message without changes."""
        rows = self.deserialize_all(message)
        if len(rows) > 1:
            raise MillstreamError(
                f"The {self._envelope.program} message {shorten(message)} contains {len(rows)} rows: read messages as "
                "bytes, and convert them with flat_map(schema.deserialize_all)."
            )
        return rows[0] if rows else None

    def get_produced_type(self) -> TypeInformation:
        return self._type

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_make": None}


class DebeziumJsonDeserializationSchema(ChangeDeserializationSchema):
    """Reads Debezium's messages: `before`, `after`, `op`.

    Args:
        row_type: the fields of the table to read.
        schema_include: whether messages contain their schema, and the change as `payload`.
        ignore_parse_errors: whether malformed messages are skipped.

    Example:
        >>> from millstream.common import Types
        >>> schema = DebeziumJsonDeserializationSchema(Types.ROW_NAMED(["id"], [Types.INT()]))
        >>> schema.deserialize_all(b'{"before": {"id": 1}, "after": null, "op": "d"}')[0].get_row_kind()
        <RowKind.DELETE: 3>
    """

    def __init__(
        self, row_type: TypeInformation, schema_include: bool = False, ignore_parse_errors: bool = False
    ) -> None:
        super().__init__(row_type, DebeziumEnvelope(schema_include), ignore_parse_errors)


class MaxwellJsonDeserializationSchema(ChangeDeserializationSchema):
    """Reads Maxwell's messages: `data`, `old`, `type`.

    Args:
        row_type: the fields of the table to read.
        ignore_parse_errors: whether malformed messages are skipped; by default they are errors.

    Example:
        >>> from millstream.common import Types
        >>> schema = MaxwellJsonDeserializationSchema(Types.ROW_NAMED(["id"], [Types.INT()]))
        >>> schema.deserialize_all(b'{"type": "insert", "data": {"id": 1}}')
        [Row(id=1)]
    """

    def __init__(self, row_type: TypeInformation, ignore_parse_errors: bool = False) -> None:
        super().__init__(row_type, MaxwellEnvelope(), ignore_parse_errors)


class CanalJsonDeserializationSchema(ChangeDeserializationSchema):
    """Reads Canal's messages: lists `data` and `old`, `type`.

    Args:
        row_type: the fields of the table to read.
        database_include: a regular expression; messages of other databases are skipped. By default none are.
        table_include: a regular expression; messages of other tables are skipped. By default none are.
        ignore_parse_errors: whether malformed messages are skipped; by default they are errors.

    Example:
        >>> from millstream.common import Types
        >>> schema = CanalJsonDeserializationSchema(Types.ROW_NAMED(["id"], [Types.INT()]), table_include="orders")
        >>> schema.deserialize_all(b'{"type": "INSERT", "table": "orders", "data": [{"id": 1}, {"id": 2}]}')
        [Row(id=1), Row(id=2)]
    """

    def __init__(
        self,
        row_type: TypeInformation,
        database_include: str | None = None,
        table_include: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        try:
            patterns = (("database", database_include), ("table", table_include))
            include = [(field, re.compile(pattern)) for field, pattern in patterns if pattern is not None]
        except re.error as e:
            raise InvalidProgramError(
                f"CanalJsonDeserializationSchema: a pattern is not a regular expression: {e}."
            ) from None
        super().__init__(row_type, CanalEnvelope(include), ignore_parse_errors)


class _ChangeSerializationSchema(SerializationSchema, ABC):
    _envelope: ChangelogEnvelope

    def __init__(self, row_type: TypeInformation) -> None:
        self._type = check_row_type(row_type, type(self).__name__)
        convert = self._type.converter()
        assert convert is not None
        self._convert = convert
        self._write = writer_of(self._type)

    def serialize(self, element: Row) -> bytes:
        is_insert = element.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
        return self._envelope.message(self._write(self._convert(element)), is_insert).encode()

    def __reduce__(self) -> tuple[type[_ChangeSerializationSchema], tuple[RowTypeInfo]]:
        return type(self), (self._type,)


class DebeziumJsonSerializationSchema(_ChangeSerializationSchema):
    """Writes rows as Debezium does: -U and -D as `d`, +I and +U as `c`, as in Flink.

    Example:
        >>> from millstream.common import Row, Types
        >>> DebeziumJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(id=1))
        b'{"before":null,"after":{"id":1},"op":"c"}'
    """

    _envelope = DebeziumEnvelope()


class MaxwellJsonSerializationSchema(_ChangeSerializationSchema):
    """Writes rows as Maxwell does: -U and -D as `delete`, +I and +U as `insert`, as in Flink.

    Example:
        >>> from millstream.common import Row, Types
        >>> MaxwellJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(id=1))
        b'{"data":{"id":1},"type":"insert"}'
    """

    _envelope = MaxwellEnvelope()


class CanalJsonSerializationSchema(_ChangeSerializationSchema):
    """Writes rows as Canal does: -U and -D as `DELETE`, +I and +U as `INSERT`, as in Flink.

    Example:
        >>> from millstream.common import Row, Types
        >>> CanalJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(id=1))
        b'{"data":[{"id":1}],"type":"INSERT"}'
    """

    _envelope = CanalEnvelope()
