"""Rows as Arrow columns: types, values, and the writer of Parquet and ORC files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

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

__all__ = ["ArrowFile", "ArrowWriter", "row_writer"]


Convert = Callable[[Any], Any]

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


def arrow_type(type_info: TypeInformation, what: str = "Parquet") -> Any:
    """Return the Arrow type for a type, in a format of that name."""
    import pyarrow as pa

    name = str(type_info)
    if name in _BASIC:
        return pa.type_for_alias(_BASIC[name])
    if isinstance(type_info, RowTypeInfo):
        return pa.struct(arrow_schema(type_info, what))
    if type_info == _BYTES:
        return pa.binary()
    if isinstance(type_info, _ARRAYS):
        return pa.list_(arrow_type(type_info.get_element_type(), what))
    if isinstance(type_info, MapTypeInfo):
        return pa.map_(arrow_type(type_info.key_type, what), arrow_type(type_info.value_type, what))
    others = {
        "TimeTypeInfo": pa.time64("us"),
        "TimestampTypeInfo": pa.timestamp("us"),
        "BigDecimal": pa.decimal128(38, 18),
        "BigInteger": pa.decimal128(38, 0),
    }
    if name not in others or (what == "ORC" and name == "TimeTypeInfo"):
        raise InvalidProgramError(f"{what} has no type for {type_info}: use another one for that field.")
    return others[name]


def arrow_schema(row_type: RowTypeInfo, what: str = "Parquet") -> Any:
    """Return the Arrow schema for the fields of a row, in a format of that name."""
    import pyarrow as pa

    fields = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
    return pa.schema([pa.field(name, arrow_type(field, what)) for name, field in fields])


def from_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the function from what Arrow makes of a value to our value; None: it is the same."""
    if isinstance(type_info, RowTypeInfo):
        return _row_from_arrow(type_info)
    if isinstance(type_info, _ARRAYS) and type_info != _BYTES:
        element = from_arrow(type_info.get_element_type())
        return None if element is None else lambda values: None if values is None else [element(v) for v in values]
    if isinstance(type_info, MapTypeInfo):
        held = from_arrow(type_info.value_type) or _same
        return lambda pairs: None if pairs is None else {k: held(v) for k, v in pairs}
    if str(type_info) == "BigInteger":
        return lambda value: None if value is None else int(value)
    return None


def _row_from_arrow(row_type: RowTypeInfo) -> Convert:
    names = tuple(row_type.get_field_names())
    fields = [from_arrow(field) or _same for field in row_type.get_field_types()]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return Row.of(names, [field(value[name]) for name, field in zip(names, fields, strict=True)])

    return convert


def to_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the function from our value to what Arrow takes; None: it is the same."""
    if isinstance(type_info, RowTypeInfo):
        return _row_to_arrow(type_info)
    if isinstance(type_info, _ARRAYS) and type_info != _BYTES:
        element = to_arrow(type_info.get_element_type())
        return None if element is None else lambda values: None if values is None else [element(v) for v in values]
    if isinstance(type_info, MapTypeInfo):
        held = to_arrow(type_info.value_type) or _same
        return lambda value: None if value is None else [(k, held(v)) for k, v in value.items()]
    return None


def _row_to_arrow(row_type: RowTypeInfo) -> Convert:
    names = row_type.get_field_names()
    fields = [to_arrow(field) or _same for field in row_type.get_field_types()]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return {name: field(v) for name, field, v in zip(names, fields, value, strict=True)}

    return convert


def _same(value: Any) -> Any:
    return value


# The rows of a batch, which are a row group in a Parquet file.
BATCH_ROWS = 1 << 16


class ArrowFile(Protocol):
    """A file that takes batches, such as pyarrow.parquet.ParquetWriter."""

    def write_batch(self, batch: Any) -> None: ...

    def close(self) -> None: ...


class ArrowWriter:
    """Gathers records, makes columns of them, and writes those: a BulkWriter.

    Args:
        what: the name of the format, for errors.
        schema: of Arrow.
        fit: makes a record's fields, one for each column.
        columns: for each column what makes its values such as Arrow takes; None: they are.
        file: where batches go.
    """

    def __init__(
        self,
        what: str,
        schema: Any,
        fit: Callable[[Any], Sequence[Any]],
        columns: Sequence[Convert | None],
        file: ArrowFile,
    ) -> None:
        self._what = what
        self._schema = schema
        self._fit = fit
        self._columns = columns
        self._file = file
        self._rows: list[Sequence[Any]] = []

    def add_element(self, value: Any) -> None:
        self._rows.append(self._fit(value))
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

    def _array(self, field: Any, values: Sequence[Any]) -> Any:
        import pyarrow as pa

        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, OverflowError) as e:
            raise self._misfit(field, values, e) from None

    def _misfit(self, field: Any, values: Sequence[Any], error: Exception) -> MillstreamError:
        """Find the record whose value Arrow does not take."""
        import pyarrow as pa

        record = ""
        for value, row in zip(values, self._rows, strict=True):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, OverflowError) as e:
                record, error = f" of {shorten(row)}", e
                break
        return TypeMismatchError(f"{self._what}: field {field.name!r}{record} cannot be written: {error}.")


def row_writer(what: str, row_type: RowTypeInfo, file: ArrowFile) -> ArrowWriter:
    """Return a writer of rows."""
    convert = row_type.converter()
    assert convert is not None

    def fit(value: Any) -> Sequence[Any]:
        row: Sequence[Any] | None = convert(value)
        if row is None:
            raise TypeMismatchError(f"{what}: there is no row to write, but None.")
        return row

    columns = [to_arrow(field) for field in row_type.get_field_types()]
    return ArrowWriter(what, arrow_schema(row_type, what), fit, columns, file)
