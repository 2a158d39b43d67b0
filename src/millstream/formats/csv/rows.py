"""Rows and the fields of CSV records: conversions in both directions, many rows at a time where that is quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.common.errors import InvalidProgramError, TypeMismatchError
from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TypeInformation,
)
from millstream.common.types import Row
from millstream.formats.csv.dialect import CsvDialect, CsvError
from millstream.formats.text_values import DecimalSize, Parse, ParseColumn, column_parser_of, parser_of

_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)


@dataclass(frozen=True)
class Column:
    """A column of a CSV file.

    Attributes:
        separator: what stands between the elements of an array.
        decimal: to how many digits decimal numbers are rounded; None: not at all.
    """

    name: str
    type_info: TypeInformation
    separator: str = ";"
    decimal: DecimalSize | None = None


class RowReader:
    """Makes rows of fields.

    Args:
        null: the text that stands for a missing value, in quotes or not; None when there is none.
        takes_more: whether fields behind the last column are left out; else they are an error.
    """

    def __init__(self, columns: Sequence[Column], null: str | None = None, takes_more: bool = False) -> None:
        self._names = tuple(column.name for column in columns)
        self._types = [column.type_info for column in columns]
        self._null = null
        self._takes_more = takes_more
        self._one = [_field_parser(column, null) for column in columns]
        self._many = [self._column_parser(column, one) for column, one in zip(columns, self._one, strict=True)]

    def _column_parser(self, column: Column, one: Parse) -> ParseColumn:
        if isinstance(column.type_info, _ARRAYS) or column.decimal is not None:
            return lambda fields: [one(field) for field in fields]
        plain, null = column_parser_of(column.type_info), self._null
        if null is None:
            return plain
        return lambda fields: [one(field) for field in fields] if null in fields else plain(fields)

    def rows(self, records: list[list[str]]) -> list[Row]:
        """Return the rows of many records; ValueError when one of them does not fit."""
        if not records:
            return []
        width = len(self._names)
        if set(map(len, records)) != {width}:
            return [self.row(fields) for fields in records]
        columns = [parse(fields) for parse, fields in zip(self._many, zip(*records, strict=True), strict=True)]
        return Row.many(self._names, zip(*columns, strict=True))

    def row(self, fields: list[str]) -> Row:
        """Return the row of a record; CsvError says what does not fit."""
        width = len(self._names)
        if len(fields) < width:
            raise CsvError(f"the record has {len(fields)} fields where {width} are expected")
        if len(fields) > width and not self._takes_more and (len(fields) > width + 1 or fields[width]):
            raise CsvError(f"the record has more than {width} fields; the next is {fields[width]!r}")
        return Row.of(self._names, [self._value(i, field) for i, field in enumerate(fields[:width])])

    def lenient_row(self, fields: list[str]) -> Row | None:
        """Return a row with None for what does not fit or is missing; None for a record with too many fields."""
        width = len(self._names)
        if len(fields) > width and (len(fields) > width + 1 or fields[width]):
            return None
        values: list[Any] = [None] * width
        for i, field in enumerate(fields[:width]):
            try:
                values[i] = self._one[i](field)
            except ValueError:
                continue
        return Row.of(self._names, values)

    def _value(self, i: int, field: str) -> Any:
        try:
            return self._one[i](field)
        except ValueError:
            raise CsvError(f"{field!r} in column {self._names[i]!r} is not of the type {self._types[i]}") from None


def _field_parser(column: Column, null: str | None) -> Parse:
    if not isinstance(column.type_info, _ARRAYS):
        return _nullable(_value_parser(column, column.type_info), null)
    # An array is never missing, though its elements may be.
    element = _nullable(_value_parser(column, column.type_info.get_element_type()), null)
    separator = column.separator
    if not separator:
        return lambda field: [element(field)] if field else []
    return lambda field: [element(part) for part in field.split(separator)] if field else []


def _value_parser(column: Column, type_info: TypeInformation) -> Parse:
    parse, decimal = parser_of(type_info, f"CSV column {column.name!r}"), column.decimal
    return parse if decimal is None else lambda field: decimal.fit(parse(field))


def _nullable(parse: Parse, null: str | None) -> Parse:
    if null is None:
        return parse
    return lambda field: None if field == null else parse(field)


def check_columns(columns: Sequence[Column]) -> None:
    """Refuse columns of types that CSV cannot hold."""
    for column in columns:
        _field_parser(column, None)


class RowWriter:
    """Makes lines of rows."""

    def __init__(self, columns: Sequence[Column], dialect: CsvDialect, null: str, line_end: str) -> None:
        self._names = [column.name for column in columns]
        self._dialect = dialect
        self._null = null
        self._line_end = line_end
        fields = [column.type_info for column in columns]
        convert = RowTypeInfo(fields, self._names).converter()
        assert convert is not None
        self._fit = convert
        self._writers = [self._field_writer(column) for column in columns]

    def _field_writer(self, column: Column) -> Callable[[Any], str]:
        written, null = self._dialect.written, self._null
        if isinstance(column.type_info, _ARRAYS):
            show, separator = _formatter(column, column.type_info.get_element_type()), column.separator
            return lambda values: written(separator.join(null if v is None else show(v) for v in values))
        show = _formatter(column, column.type_info)
        if str(column.type_info) in ("String", "Char"):
            return written
        return show

    def line(self, row: Any) -> str:
        """Return a row as a line with its end; a row may also be a tuple, a list, or a dict."""
        values = self._fit(row)
        if values is None:
            raise TypeMismatchError("CSV: there is no row to write, but None.")
        null = self._null
        fields = [null if v is None else write(v) for write, v in zip(self._writers, values, strict=True)]
        return self._dialect.line(fields) + self._line_end

    def header(self) -> str:
        return self._dialect.line([self._dialect.written(name) for name in self._names]) + self._line_end


def _formatter(column: Column, type_info: TypeInformation) -> Callable[[Any], str]:
    decimal = column.decimal
    return type_info.format if decimal is None else lambda value: type_info.format(decimal.fit(value))


def columns_of(row_type: RowTypeInfo, separator: str) -> list[Column]:
    """Return the columns for the fields of a row type."""
    pairs: Iterable[tuple[str, TypeInformation]] = zip(
        row_type.get_field_names(), row_type.get_field_types(), strict=True
    )
    columns = [Column(name, type_info, separator) for name, type_info in pairs]
    if not columns:
        raise InvalidProgramError("CSV: the row type has no fields.")
    check_columns(columns)
    return columns
