"""The formats `debezium-json`, `canal-json` and `maxwell-json`: changelogs of tables as these programs write them."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from millstream.common.aliases import Json, Value
from millstream.formats.base import Decoded, Malformed, MessageFormat
from millstream.formats.changelog.envelopes import (
    CanalEnvelope,
    ChangelogEnvelope,
    DebeziumEnvelope,
    JsonObject,
    MaxwellEnvelope,
    malformed_reason,
)
from millstream.formats.json.table import JsonFormat
from millstream.formats.options import Options
from millstream.sql.columns.batch import INSERT, UPDATE_AFTER, Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import ALL_CHANGES, Field
from millstream.sql.types import DataType, DataTypes

_JSON_OPTIONS = frozenset(
    [
        "ignore-parse-errors",
        "timestamp-format.standard",
        "map-null-key.mode",
        "map-null-key.literal",
        "encode.decimal-as-plain-number",
        "encode.ignore-null-fields",
    ]
)
_TEXT = DataTypes.STRING()
_INSTANT = DataTypes.TIMESTAMP_LTZ(3)

# Metadata keys with their types and the functions that read their values from a message.
_Metadata = Mapping[str, tuple[DataType, Callable[[JsonObject], Value]]]


class ChangeJsonFormat(MessageFormat):
    """Changes of rows as JSON; a message has any number of rows.

    Attributes:
        metadata_readers: the metadata of messages.
    """

    changes = ALL_CHANGES
    written = ALL_CHANGES
    optional = _JSON_OPTIONS
    metadata_readers: ClassVar[_Metadata]

    def __init__(self, options: Options, zone: str, envelope: ChangelogEnvelope) -> None:
        super().__init__(options, zone)
        self._envelope = envelope
        self._json = JsonFormat(options, zone)
        self._lenient = options.flag("ignore-parse-errors", False)

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        rows: list[JsonObject] = []
        kinds: list[int] = []
        indices: list[int] = []
        documents: list[JsonObject] = []
        for index, message in enumerate(messages):
            # A Kafka tombstone follows a delete.
            document = self._json.read(message, index) if message and message.strip() else None
            if document is None:
                continue
            for kind, row in self._changes(document, index):
                kinds.append(kind)
                rows.append(row)
                indices.append(index)
                documents.append(document)
        columns = self._json.columns(rows, fields, indices)
        return Decoded(Batch(columns, np.array(kinds, np.int8), len(rows)), indices, documents)

    def _changes(self, document: JsonObject, index: int) -> list[tuple[int, JsonObject]]:
        try:
            return list(self._envelope.changes(document))
        except (KeyError, ValueError, AttributeError, TypeError) as e:
            if self._lenient:
                return []
            reason = f"the {self._envelope.program} message is not usable: {malformed_reason(e)}"
            raise Malformed(index, reason) from None

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        texts = self._json.objects(batch, fields)
        kinds = batch.all_kinds().tolist()
        message = self._envelope.message
        return [message(text, kind in (INSERT, UPDATE_AFTER)).encode() for text, kind in zip(texts, kinds, strict=True)]

    def metadata(self) -> Mapping[str, DataType]:
        return {key: kind for key, (kind, _) in self.metadata_readers.items()}

    def metadata_values(self, key: str, decoded: Decoded) -> list[Value]:
        read = self.metadata_readers[key][1]
        return [read(document) for document in decoded.documents]


def _instant(milliseconds: Json) -> dt.datetime | None:
    if milliseconds is None:
        return None
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=int(milliseconds))


def _text(value: Json) -> str | None:
    return None if value is None else str(value)


def _compact(value: Json) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))


def _payload(document: JsonObject) -> JsonObject:
    payload = document.get("payload")
    return payload if isinstance(payload, dict) else document


def _source(document: JsonObject) -> JsonObject:
    source = _payload(document).get("source")
    return source if isinstance(source, dict) else {}


def _source_properties(document: JsonObject) -> dict[str, str | None] | None:
    return {key: _text(value) for key, value in _source(document).items()} or None


class DebeziumJsonFormat(ChangeJsonFormat):
    """Debezium's messages, see DebeziumEnvelope."""

    identifier = "debezium-json"
    optional = _JSON_OPTIONS | {"schema-include"}
    metadata_readers: ClassVar[_Metadata] = {
        "schema": (_TEXT, lambda m: _compact(m.get("schema"))),
        "ingestion-timestamp": (_INSTANT, lambda m: _instant(_payload(m).get("ts_ms"))),
        "source.timestamp": (_INSTANT, lambda m: _instant(_source(m).get("ts_ms"))),
        "source.database": (_TEXT, lambda m: _text(_source(m).get("db"))),
        "source.schema": (_TEXT, lambda m: _text(_source(m).get("schema"))),
        "source.table": (_TEXT, lambda m: _text(_source(m).get("table"))),
        "source.properties": (DataTypes.MAP(_TEXT, _TEXT), _source_properties),
    }

    def __init__(self, options: Options, zone: str) -> None:
        self._has_schema = options.flag("schema-include", False)
        super().__init__(options, zone, DebeziumEnvelope(self._has_schema))

    def check_written(self) -> None:
        if self._has_schema:
            raise ValidationException(
                "Debezium JSON serialization doesn't support 'debezium-json.schema-include' option been set to true."
            )


class CanalJsonFormat(ChangeJsonFormat):
    """Canal's messages, see CanalEnvelope."""

    identifier = "canal-json"
    optional = _JSON_OPTIONS | {"database.include", "table.include"}
    metadata_readers: ClassVar[_Metadata] = {
        "database": (_TEXT, lambda m: _text(m.get("database"))),
        "table": (_TEXT, lambda m: _text(m.get("table"))),
        "sql-type": (DataTypes.MAP(_TEXT, DataTypes.INT()), lambda m: m.get("sqlType")),
        "pk-names": (DataTypes.ARRAY(_TEXT), lambda m: m.get("pkNames")),
        "ingestion-timestamp": (_INSTANT, lambda m: _instant(m.get("ts"))),
        "event-timestamp": (_INSTANT, lambda m: _instant(m.get("es"))),
    }

    def __init__(self, options: Options, zone: str) -> None:
        include = [
            (name, _pattern(options, f"{name}.include"))
            for name in ("database", "table")
            if f"{name}.include" in options
        ]
        super().__init__(options, zone, CanalEnvelope(include))


def _pattern(options: Options, key: str) -> re.Pattern[str]:
    text = options.text(key, "")
    try:
        return re.compile(text)
    except re.error as e:
        raise ValidationException(
            f"Invalid value for option 'canal-json.{key}': {text!r} is not a regular expression: {e}."
        ) from None


class MaxwellJsonFormat(ChangeJsonFormat):
    """Maxwell's messages, see MaxwellEnvelope."""

    identifier = "maxwell-json"
    metadata_readers: ClassVar[_Metadata] = {
        "database": (_TEXT, lambda m: _text(m.get("database"))),
        "table": (_TEXT, lambda m: _text(m.get("table"))),
        "primary-key-columns": (DataTypes.ARRAY(_TEXT), lambda m: m.get("primary_key_columns")),
        "ingestion-timestamp": (_INSTANT, lambda m: _instant(m.get("ts"))),
    }

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone, MaxwellEnvelope())
