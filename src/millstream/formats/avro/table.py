"""Avro files and messages of tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from millstream.common.aliases import Json, Value
from millstream.common.errors import MillstreamError
from millstream.common.serialization import BulkWriter, DeserializationSchema, SerializationSchema
from millstream.common.types import Row
from millstream.formats.avro.files import AvroBulkWriters, AvroFormat
from millstream.formats.avro.messages import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from millstream.formats.avro.schema import AvroSchema
from millstream.formats.base import Comparison, Decoded, FileTableFormat, Malformed, MessageFormat
from millstream.formats.changelog.envelopes import debezium_changes
from millstream.formats.file_access import FileAccess, FileStatus
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FileSplitRange
from millstream.formats.options import Options
from millstream.operators.diagnostics.bad_records import FormatUnavailable
from millstream.sql import types as t
from millstream.sql.columns.batch import INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import ALL_CHANGES, Field
from millstream.sql.types import DataTypes

_PRIMITIVES: dict[type[t.DataType], Json] = {
    t.NullType: "null",
    t.BooleanType: "boolean",
    t.TinyIntType: "int",
    t.SmallIntType: "int",
    t.IntType: "int",
    t.BigIntType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.CharType: "string",
    t.VarCharType: "string",
    t.BinaryType: "bytes",
    t.VarBinaryType: "bytes",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimeType: {"type": "int", "logicalType": "time-millis"},
}


def avro_schema(fields: Sequence[Field], legacy: bool = False) -> AvroSchema:
    """Return the schema of records with these columns.

    Args:
        fields: the columns.
        legacy: whether timestamps without a zone are written as instants, the only timestamps of old Avro versions.
    """
    row = t.RowType([t.RowField(f.name, f.type) for f in fields], False)
    return AvroSchema.parse_string(json.dumps(_schema(row, "org.apache.flink.avro.generated.record", legacy)))


def _schema(kind: t.DataType, name: str, legacy: bool) -> Json:
    plain = _plain(kind, name, legacy)
    return ["null", plain] if kind.is_nullable and plain != "null" else plain


def _plain(kind: t.DataType, name: str, legacy: bool) -> Json:
    if isinstance(kind, t.RowType):
        members = [{"name": f.name, "type": _schema(f.data_type, f"{name}_{f.name}", legacy)} for f in kind.fields]
        for member in members:
            if isinstance(member["type"], list):
                member["default"] = None
        return {"type": "record", "name": name, "fields": members}
    if isinstance(kind, t.ArrayType):
        return {"type": "array", "items": _schema(kind.element_type, name, legacy)}
    if isinstance(kind, (t.MapType, t.MultisetType)):
        key = kind.key_type if isinstance(kind, t.MapType) else kind.element_type
        if not isinstance(key, (t.CharType, t.VarCharType)):
            raise ValidationException(
                f"Avro format doesn't support non-string as key type of map. The key type is: {key}"
            )
        values = kind.value_type if isinstance(kind, t.MapType) else t.DataTypes.INT()
        return {"type": "map", "values": _schema(values, name, legacy)}
    if isinstance(kind, t.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        if legacy:
            return _legacy_timestamp(kind)
        local = "local-" if isinstance(kind, t.TimestampType) else ""
        return {"type": "long", "logicalType": f"{local}timestamp-{'millis' if kind.precision <= 3 else 'micros'}"}
    primitive = _PRIMITIVES.get(type(kind))
    if primitive is None:
        raise ValidationException(f"Unsupported to derive Schema for type: {kind}")
    return primitive


def _legacy_timestamp(kind: t.TimestampType | t.LocalZonedTimestampType) -> Json:
    if isinstance(kind, t.LocalZonedTimestampType) or kind.precision > 3:
        raise ValidationException(
            f"With 'avro.timestamp_mapping.legacy' = 'true' Avro does not support {kind}, only TIMESTAMP(0) to "
            "TIMESTAMP(3); remove the option."
        )
    return {"type": "long", "logicalType": "timestamp-millis"}


class _AvroFiles(BulkFormat):
    def __init__(self, fields: Sequence[Field], schema: AvroSchema, zone: str) -> None:
        self._fields = list(fields)
        self._zone = zone
        self._inner = AvroFormat(schema)

    def measure(self, access: FileAccess, file: FileStatus) -> Extent:
        return self._inner.measure(access, file)

    def range_end(self, access: FileAccess, path: str, start: int, target: int, end: int) -> int:
        return self._inner.range_end(access, path, start, target, end)

    def read(self, access: FileAccess, split_range: FileSplitRange) -> Iterator[list[Batch]]:
        for records in self._inner.read(access, split_range):
            columns = [to_column([r.get(f.name) for r in records], f.type, self._zone) for f in self._fields]
            yield [Batch(columns, None, len(records))]


class _AvroWriter:
    def __init__(self, inner: BulkWriter, fields: Sequence[Field], zone: str) -> None:
        self._inner = inner
        self._fields = list(fields)
        self._zone = zone

    def add_element(self, value: Batch) -> None:
        names = [f.name for f in self._fields]
        columns = [to_python(c, f.type, self._zone) for c, f in zip(value.columns, self._fields, strict=True)]
        for record in as_records(names, columns):
            self._inner.add_element(record)

    def finish(self) -> None:
        self._inner.finish()


def as_records(names: Sequence[str], columns: Sequence[list[Value]]) -> list[dict[str, Value]]:
    """Return the rows of columns as Avro records."""
    return [{n: _as_dict(v) for n, v in zip(names, row, strict=True)} for row in zip(*columns, strict=True)]


def _as_dict(value: Value) -> Value:
    if isinstance(value, Row):
        return {k: _as_dict(v) for k, v in value.as_dict().items()}
    if isinstance(value, list):
        return [_as_dict(v) for v in value]
    return value


# fastavro needs another package for snappy only.
_CODECS = {"null": "null", "deflate": "deflate", "bzip2": "bzip2", "xz": "xz", "snappy": "snappy"}


class AvroTableFormat(FileTableFormat):
    """Avro files."""

    identifier = "avro"
    optional = frozenset(["codec", "timestamp_mapping.legacy"])

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._codec = options.one_of("codec", "null", _CODECS)
        self._legacy = options.flag("timestamp_mapping.legacy", False)
        if self._codec == "snappy" and find_spec("cramjam") is None:
            raise ValidationException("'avro.codec' = 'snappy' needs the package cramjam: pip install cramjam.")

    def check(self, fields: Sequence[Field]) -> None:
        avro_schema(fields, self._legacy)

    def reader(self, fields: Sequence[Field], filters: Sequence[Comparison] = ()) -> FileFormat:
        return _AvroFiles(fields, avro_schema(fields, self._legacy), self.zone)

    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        writers = AvroBulkWriters.for_generic_record(avro_schema(fields, self._legacy), self._codec)
        return _AvroWriter(writers.open(file), fields, self.zone)


# The options of Flink's registry client, except those of Java key stores.
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
    """A row is a record in Avro's binary encoding; its schema is derived from the columns."""

    identifier = "avro"
    optional = frozenset(["encoding", "timestamp_mapping.legacy"])

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._legacy = options.flag("timestamp_mapping.legacy", False)
        if options.text("encoding", "binary").lower() != "binary":
            raise ValidationException("'avro.encoding' must be binary: remove the option, or use the format json.")
        self._cached_reader: DeserializationSchema | None = None
        self._cached_writer: SerializationSchema | None = None

    def check(self, fields: Sequence[Field]) -> None:
        self._schema(fields)

    def _schema(self, fields: Sequence[Field]) -> AvroSchema:
        return avro_schema(fields, self._legacy)

    def _reader(self, schema: AvroSchema) -> DeserializationSchema:
        return AvroRowDeserializationSchema(avro_schema_string=str(schema))

    def _writer(self, schema: AvroSchema) -> SerializationSchema:
        return AvroRowSerializationSchema(avro_schema_string=str(schema))

    def _serializer(self, fields: Sequence[Field]) -> Callable[[Value], bytes]:
        if self._cached_writer is None:
            self._cached_writer = self._writer(self._schema(fields))
        return self._cached_writer.serialize

    def _records(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> tuple[list[Value], list[int]]:
        """Return the records of messages that are not empty, and the indices of those messages."""
        if self._cached_reader is None:
            self._cached_reader = self._reader(self._schema(fields))
        reader = self._cached_reader
        records, indices = [], []
        for index, message in enumerate(messages):
            if not message:
                continue
            try:
                records.append(reader.deserialize(message))
                indices.append(index)
            except FormatUnavailable:
                raise
            except MillstreamError as e:
                raise Malformed(index, str(e).rstrip(".")) from None
        return records, indices

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        records, indices = self._records(messages, fields)
        return Decoded(self._batch(records, fields), None if len(indices) == len(messages) else indices)

    def _batch(self, records: Sequence[Value], fields: Sequence[Field], kinds: NDArray[np.int8] | None = None) -> Batch:
        columns = [to_column([r[i] for r in records], f.type, self.zone) for i, f in enumerate(fields)]
        return Batch(columns, kinds, len(records))

    def _rows(self, batch: Batch, fields: Sequence[Field]) -> list[dict[str, Value]]:
        columns = [to_python(c, f.type, self.zone) for c, f in zip(batch.columns, fields, strict=True)]
        return as_records([f.name for f in fields], columns)

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        write = self._serializer(fields)
        return [write(row) for row in self._rows(batch, fields)]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_cached_reader": None, "_cached_writer": None}


class AvroConfluentFormat(AvroMessageFormat):
    """A row is a record with the id of its schema in a schema registry."""

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

    def set_default_subject(self, subject: str) -> None:
        """Set the subject that applies if the options have none."""
        self._subject = self._subject or subject

    def check_written(self) -> None:
        if not self._subject:
            raise ValidationException(
                f"Option '{self.identifier}.subject' is required for serialization: set the subject of the schema."
            )

    def _schema(self, fields: Sequence[Field]) -> AvroSchema:
        derived = super()._schema(fields)
        declared = self.options.text("schema", "")
        if not declared:
            return derived
        schema = AvroSchema.parse_string(declared)
        names = [f["name"] for f in json.loads(str(schema)).get("fields", ())]
        if names != [f["name"] for f in json.loads(str(derived))["fields"]]:
            raise ValidationException(
                f"The fields of '{self.identifier}.schema' are {', '.join(names)}, but those of the table "
                f"are {', '.join(f.name for f in fields)}."
            )
        return schema

    def _reader(self, schema: AvroSchema) -> DeserializationSchema:
        return ConfluentRegistryAvroDeserializationSchema(str(schema), self._registry)

    def _writer(self, schema: AvroSchema) -> SerializationSchema:
        return ConfluentRegistryAvroSerializationSchema(self._subject, str(schema), self._registry)


class DebeziumAvroConfluentFormat(AvroConfluentFormat):
    """Debezium's messages: records with `before`, `after` and `op`."""

    identifier = "debezium-avro-confluent"
    changes = ALL_CHANGES
    written = ALL_CHANGES

    def _schema(self, fields: Sequence[Field]) -> AvroSchema:
        row = DataTypes.ROW([DataTypes.FIELD(f.name, f.type) for f in fields])
        envelope = [Field("before", row), Field("after", row), Field("op", DataTypes.STRING())]
        declared = self.options.text("schema", "")
        return AvroSchema.parse_string(declared) if declared else avro_schema(envelope, self._legacy)

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        records, indices = self._records(messages, fields)
        rows: list[Value] = []
        kinds: list[int] = []
        row_indices: list[int] = []
        for index, record in zip(indices, records, strict=True):
            before, after, op = record
            try:
                for kind, row in debezium_changes(op, before, after):
                    kinds.append(kind)
                    rows.append(row)
                    row_indices.append(index)
            except ValueError as e:
                raise Malformed(index, f"the Debezium message is not usable: {e}") from None
        return Decoded(self._batch(rows, fields, np.array(kinds, np.int8)), row_indices)

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        write = self._serializer(fields)
        messages = []
        for row, kind in zip(self._rows(batch, fields), batch.all_kinds().tolist(), strict=True):
            is_insert = kind in (INSERT, UPDATE_AFTER)
            before, after, op = (None, row, "c") if is_insert else (row, None, "d")
            messages.append(write({"before": before, "after": after, "op": op}))
        return messages
