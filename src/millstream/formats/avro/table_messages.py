"""The formats `avro`, `avro-confluent` and `debezium-avro-confluent` for messages: Avro's binary encoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from millstream.common.errors import MillstreamError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.formats.avro.messages import AvroRowDeserializationSchema, AvroRowSerializationSchema
from millstream.formats.avro.registry import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from millstream.formats.avro.schema import AvroSchema
from millstream.formats.avro.table import as_records, avro_schema
from millstream.formats.base import Decoded, Malformed, MessageFormat
from millstream.formats.options import Options
from millstream.operators.diagnostics.bad_records import FormatUnavailable
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import ALL_CHANGES, Field
from millstream.sql.types import DataTypes

# What Flink's registry client takes; those about Java's key stores are refused by it here.
_REGISTRY_OPTIONS = frozenset(
    [
        "url",
        "subject",
        "schema",
        "basic-auth.credentials-source",
        "basic-auth.user-info",
        "properties.*",
    ]
)


class AvroMessageFormat(MessageFormat):
    """A row is a record, in Avro's binary encoding; its schema follows from the columns."""

    identifier = "avro"
    optional = frozenset(["encoding", "timestamp_mapping.legacy"])

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._legacy = options.flag("timestamp_mapping.legacy", False)
        if options.text("encoding", "binary").lower() != "binary":
            raise ValidationException("'avro.encoding' is binary here: leave the option out, or take the format json.")
        self._made: dict[str, Any] = {}

    def check(self, fields: Sequence[Field]) -> None:
        self._schema(fields)

    def _schema(self, fields: Sequence[Field]) -> AvroSchema:
        return avro_schema(fields, self._legacy)

    def _reader(self, schema: AvroSchema) -> DeserializationSchema:
        return AvroRowDeserializationSchema(avro_schema_string=str(schema))

    def _writer(self, schema: AvroSchema) -> SerializationSchema:
        return AvroRowSerializationSchema(avro_schema_string=str(schema))

    def _once(self, what: str, fields: Sequence[Field], make: Callable[[AvroSchema], Any]) -> Any:
        if what not in self._made:
            self._made[what] = make(self._schema(fields))
        return self._made[what]

    def _records(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> tuple[list[Any], list[int]]:
        """Return what is in messages, and in which; of an empty one nothing."""
        reader = self._once("reader", fields, self._reader)
        records, places = [], []
        for place, message in enumerate(messages):
            if not message:
                continue
            try:
                records.append(reader.deserialize(message))
                places.append(place)
            except FormatUnavailable:
                raise
            except MillstreamError as e:
                raise Malformed(place, str(e).rstrip(".")) from None
        return records, places

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        records, places = self._records(messages, fields)
        return Decoded(self._batch(records, fields), None if len(places) == len(messages) else places)

    def _batch(self, records: Sequence[Any], fields: Sequence[Field], kinds: Any = None) -> Batch:
        columns = [to_column([r[i] for r in records], f.type, self.zone) for i, f in enumerate(fields)]
        return Batch(columns, kinds, len(records))

    def _rows(self, batch: Batch, fields: Sequence[Field]) -> list[dict[str, Any]]:
        columns = [to_python(c, f.type, self.zone) for c, f in zip(batch.columns, fields, strict=True)]
        return as_records([f.name for f in fields], columns)

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        write = self._once("writer", fields, self._writer).serialize
        return [write(row) for row in self._rows(batch, fields)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}


class AvroConfluentFormat(AvroMessageFormat):
    """A row is a record that names its schema by a number of a schema registry."""

    identifier = "avro-confluent"
    optional = _REGISTRY_OPTIONS

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        url = options.text("url", "")
        if not url:
            raise ValidationException(
                f"One or more required options are missing.\n\nMissing required options are:\n\n{self.identifier}.url"
            )
        config = options.under("properties.")
        if "basic-auth.user-info" in options:
            config["basic.auth.user.info"] = options.text("basic-auth.user-info", "")
        self._registry = SchemaRegistry(url, config)
        self._subject = options.text("subject", "")

    def about(self, subject: str) -> None:
        """Take the subject of a topic's messages, where the options say none."""
        self._subject = self._subject or subject

    def check_written(self) -> None:
        if not self._subject:
            raise ValidationException(
                f"Option '{self.identifier}.subject' is required for serialization: say under which subject the "
                "schema is registered."
            )

    def _schema(self, fields: Sequence[Field]) -> AvroSchema:
        derived = super()._schema(fields)
        given = self.options.text("schema", "")
        if not given:
            return derived
        schema = AvroSchema.parse_string(given)
        names = [f["name"] for f in json.loads(str(schema)).get("fields", ())]
        if names != [f["name"] for f in json.loads(str(derived))["fields"]]:
            raise ValidationException(
                f"The fields of '{self.identifier}.schema' are {', '.join(names)}, and those of the table "
                f"{', '.join(f.name for f in fields)}."
            )
        return schema

    def _reader(self, schema: AvroSchema) -> DeserializationSchema:
        return ConfluentRegistryAvroDeserializationSchema(str(schema), self._registry)

    def _writer(self, schema: AvroSchema) -> SerializationSchema:
        return ConfluentRegistryAvroSerializationSchema(self._subject, str(schema), self._registry)


class DebeziumAvroConfluentFormat(AvroConfluentFormat):
    """Changes as Debezium tells them: records with `before`, `after` and `op`."""

    identifier = "debezium-avro-confluent"
    changes = ALL_CHANGES
    written = ALL_CHANGES

    def _schema(self, fields: Sequence[Field]) -> AvroSchema:
        row = DataTypes.ROW([DataTypes.FIELD(f.name, f.type) for f in fields])
        envelope = [Field("before", row), Field("after", row), Field("op", DataTypes.STRING())]
        given = self.options.text("schema", "")
        return AvroSchema.parse_string(given) if given else avro_schema(envelope, self._legacy)

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        records, places = self._records(messages, fields)
        rows: list[Any] = []
        kinds: list[int] = []
        found: list[int] = []
        for place, record in zip(places, records, strict=True):
            for kind, row in _told(place, record[0], record[1], record[2]):
                kinds.append(kind)
                rows.append(row)
                found.append(place)
        return Decoded(self._batch(rows, fields, np.array(kinds, np.int8)), found)

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        write = self._once("writer", fields, self._writer).serialize
        messages = []
        for row, kind in zip(self._rows(batch, fields), batch.all_kinds().tolist(), strict=True):
            is_there = kind in (INSERT, UPDATE_AFTER)
            before, after, op = (None, row, "c") if is_there else (row, None, "d")
            messages.append(write({"before": before, "after": after, "op": op}))
        return messages


def _told(place: int, before: Any, after: Any, op: Any) -> list[tuple[int, Any]]:
    told = {
        "c": [(INSERT, after)],
        "r": [(INSERT, after)],
        "u": [(UPDATE_BEFORE, before), (UPDATE_AFTER, after)],
        "d": [(DELETE, before)],
    }.get(op)
    if told is None:
        raise Malformed(place, f"the Debezium message is not usable: its 'op' is {op!r}, which is none of c, r, u, d")
    if any(row is None for _, row in told):
        raise Malformed(
            place,
            f"the Debezium message is not usable: a row of op {op!r} is missing; a table whose updates lack the row "
            "before needs REPLICA IDENTITY FULL",
        )
    return told
