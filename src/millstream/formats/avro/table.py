"""The format `avro`: Avro files whose schema follows from the columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, BinaryIO

from millstream.common.serialization import BulkWriter
from millstream.common.types import Row
from millstream.formats.avro.files import AvroBulkWriters, AvroFormat
from millstream.formats.avro.schema import AvroSchema
from millstream.formats.base import FileTableFormat
from millstream.formats.file_access import FileAccess, FoundFile
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FileShare
from millstream.formats.options import Options
from millstream.formats.predicates import Comparison
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_PRIMITIVES: dict[type[t.DataType], Any] = {
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
        legacy: whether times without a zone are points in time of Avro's, which has no other in old versions.
    """
    row = t.RowType([t.RowField(f.name, f.type) for f in fields], False)
    return AvroSchema.parse_string(json.dumps(_schema(row, "org.apache.flink.avro.generated.record", legacy)))


def _schema(kind: t.DataType, name: str, legacy: bool) -> Any:
    found = _plain(kind, name, legacy)
    return ["null", found] if kind.is_nullable and found != "null" else found


def _plain(kind: t.DataType, name: str, legacy: bool) -> Any:
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
    found = _PRIMITIVES.get(type(kind))
    if found is None:
        raise ValidationException(f"Unsupported to derive Schema for type: {kind}")
    return found


def _legacy_timestamp(kind: t.TimestampType | t.LocalZonedTimestampType) -> Any:
    if isinstance(kind, t.LocalZonedTimestampType) or kind.precision > 3:
        raise ValidationException(
            f"With 'avro.timestamp_mapping.legacy' = 'true' Avro does not support {kind}, only TIMESTAMP(0) to "
            "TIMESTAMP(3); leave the option out."
        )
    return {"type": "long", "logicalType": "timestamp-millis"}


class _AvroFiles(BulkFormat):
    def __init__(self, fields: Sequence[Field], schema: AvroSchema, zone: str) -> None:
        self._fields = list(fields)
        self._zone = zone
        self._inner = AvroFormat(schema)

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        return self._inner.measure(access, file)

    def cut(self, access: FileAccess, path: str, start: int, wanted: int, end: int) -> int:
        return self._inner.cut(access, path, start, wanted, end)

    def read(self, access: FileAccess, share: FileShare) -> Iterator[list[Any]]:
        for records in self._inner.read(access, share):
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


def as_records(names: Sequence[str], columns: Sequence[list[Any]]) -> list[dict[str, Any]]:
    """Return the rows of columns as Avro's records."""
    return [{n: _as_dict(v) for n, v in zip(names, row, strict=True)} for row in zip(*columns, strict=True)]


def _as_dict(value: Any) -> Any:
    if isinstance(value, Row):
        return {k: _as_dict(v) for k, v in value.as_dict().items()}
    if isinstance(value, list):
        return [_as_dict(v) for v in value]
    return value


# Those that fastavro knows without another package, and one that needs one.
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
