"""Rows as Arrow columns: types, values, and the writer of Parquet and ORC files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError, TypeMismatchError
from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TypeInformation,
)
from millstream.common.types import Row
from millstream.operators.diagnostics.failures import shorten

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowFile", "ArrowWriter", "row_writer"]


Convert = Callable[[Value], Value]

_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)
_BYTES = PrimitiveArrayTypeInfo(BasicTypeInfo("Byte"))
_BASIC = {
    "String": "string",
    "Char": "string",
    "Boolean": "bool",
    "Byte": "int8",
    "Short": "int16",
    "Integer": "int32",
    "Long": "int64",
    "Float": "float32",
    "Double": "float64",
    "DateTypeInfo": "date32",
}


def arrow_type(type_info: TypeInformation, format_name: str = "Parquet") -> pa.DataType:
    """Return the Arrow type of a type in a format."""
    import pyarrow as pa

    name = str(type_info)
    if name in _BASIC:
        return pa.type_for_alias(_BASIC[name])
    if isinstance(type_info, RowTypeInfo):
        return pa.struct(arrow_schema(type_info, format_name))
    if type_info == _BYTES:
        return pa.binary()
    if isinstance(type_info, _ARRAYS):
        return pa.list_(arrow_type(type_info.get_element_type(), format_name))
    if isinstance(type_info, MapTypeInfo):
        return pa.map_(arrow_type(type_info.key_type, format_name), arrow_type(type_info.value_type, format_name))
    others = {
        "TimeTypeInfo": pa.time64("us"),
        "TimestampTypeInfo": pa.timestamp("us"),
        "BigDecimal": pa.decimal128(38, 18),
        "BigInteger": pa.decimal128(38, 0),
    }
    if name not in others or (format_name == "ORC" and name == "TimeTypeInfo"):
        raise InvalidProgramError(f"{format_name} does not support {type_info}: use another type for the field.")
    return others[name]


def arrow_schema(row_type: RowTypeInfo, format_name: str = "Parquet") -> pa.Schema:
    """Return the Arrow schema of a row type in a format."""
    import pyarrow as pa

    fields = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
    return pa.schema([pa.field(name, arrow_type(field, format_name)) for name, field in fields])


def from_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the function that converts Arrow's Python value to ours; None if they are equal."""
    if isinstance(type_info, RowTypeInfo):
        return _row_from_arrow(type_info)
    if isinstance(type_info, _ARRAYS) and type_info != _BYTES:
        element = from_arrow(type_info.get_element_type())
        return None if element is None else lambda values: None if values is None else [element(v) for v in values]
    if isinstance(type_info, MapTypeInfo):
        convert_value = from_arrow(type_info.value_type) or _same
        return lambda pairs: None if pairs is None else {k: convert_value(v) for k, v in pairs}
    if str(type_info) == "BigInteger":
        return lambda value: None if value is None else int(value)
    return None


def _row_from_arrow(row_type: RowTypeInfo) -> Convert:
    names = tuple(row_type.get_field_names())
    fields = [from_arrow(field) or _same for field in row_type.get_field_types()]

    def convert(value: Value) -> Value:
        if value is None:
            return None
        return Row.of(names, [field(value[name]) for name, field in zip(names, fields, strict=True)])

    return convert


def to_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the function that converts our value to Arrow's Python value; None if they are equal."""
    if isinstance(type_info, RowTypeInfo):
        return _row_to_arrow(type_info)
    if isinstance(type_info, _ARRAYS) and type_info != _BYTES:
        element = to_arrow(type_info.get_element_type())
        return None if element is None else lambda values: None if values is None else [element(v) for v in values]
    if isinstance(type_info, MapTypeInfo):
        convert_value = to_arrow(type_info.value_type) or _same
        return lambda value: None if value is None else [(k, convert_value(v)) for k, v in value.items()]
    return None


def _row_to_arrow(row_type: RowTypeInfo) -> Convert:
    names = row_type.get_field_names()
    fields = [to_arrow(field) or _same for field in row_type.get_field_types()]

    def convert(value: Value) -> Value:
        if value is None:
            return None
        return {name: field(v) for name, field, v in zip(names, fields, value, strict=True)}

    return convert


def _same(value: Value) -> Value:
    return value


# Rows per batch; a batch is a row group of a Parquet file.
BATCH_ROWS = 1 << 16


class ArrowFile(Protocol):
    """A writer of Arrow batches, such as pyarrow.parquet.ParquetWriter."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class ArrowWriter:
    """A BulkWriter that buffers records and writes them as columns.

    Args:
        format_name: the name of the format, for errors.
        schema: the Arrow schema.
        fields_of: returns a record's fields, one for each column.
        columns: for each column the function that converts its values for Arrow; None if Arrow accepts them.
        file: the file.
    """

    def __init__(
        self,
        format_name: str,
        schema: pa.Schema,
        fields_of: Callable[[Value], Sequence[Value]],
        columns: Sequence[Convert | None],
        file: ArrowFile,
    ) -> None:
        self._format_name = format_name
        self._schema = schema
        self._fields_of = fields_of
        self._columns = columns
        self._file = file
        self._rows: list[Sequence[Value]] = []

    def add_element(self, value: Value) -> None:
        self._rows.append(self._fields_of(value))
        if len(self._rows) >= BATCH_ROWS:
            self._write()

    def finish(self) -> None:
        if self._rows:
            self._write()
        self._file.close()

    def _write(self) -> None:
        import pyarrow as pa

        columns = zip(self._schema, self._columns, zip(*self._rows, strict=True), strict=True)
        arrays = [self._array(field, values if c is None else list(map(c, values))) for field, c, values in columns]
        self._file.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows = []

    def _array(self, field: pa.Field, values: Sequence[Value]) -> pa.Array:
        import pyarrow as pa

        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, OverflowError) as e:
            raise self._mismatch(field, values, e) from None

    def _mismatch(self, field: pa.Field, values: Sequence[Value], error: Exception) -> MillstreamError:
        """Return the error with the record whose value Arrow rejects."""
        import pyarrow as pa

        record = ""
        for value, row in zip(values, self._rows, strict=True):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, OverflowError) as e:
                record, error = f" of {shorten(row)}", e
                break
        return TypeMismatchError(f"{self._format_name}: field {field.name!r}{record} cannot be written: {error}.")


def row_writer(format_name: str, row_type: RowTypeInfo, file: ArrowFile) -> ArrowWriter:
    """Return a writer of rows."""
    convert = row_type.converter()
    assert convert is not None

    def fields_of(value: Value) -> Sequence[Value]:
        converted: Sequence[Value] | None = convert(value)
        if converted is None:
            raise TypeMismatchError(f"{format_name}: cannot write None as a row.")
        return converted

    columns = [to_arrow(field) for field in row_type.get_field_types()]
    return ArrowWriter(format_name, arrow_schema(row_type, format_name), fields_of, columns, file)
