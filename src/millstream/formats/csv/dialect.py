"""How CSV is written down: separators, quotes, escapes and comments, with the rules of Jackson, which Flink uses."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, BinaryIO

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
from millstream.formats.text_values import DecimalSize, Parse, ParseColumn, column_parser_of, parser_of


def can_be_cut(dialect: CsvDialect) -> bool:
    """Tell whether quoted fields can be found by their first character and the one before it."""
    quote = dialect.quote or ""
    return dialect.escape is None and not dialect.comments and (quote + dialect.separator).isascii()


@lru_cache
def _records(dialect: CsvDialect) -> re.Pattern[bytes]:
    """Return what finds as many records as there are, each with its newline, in one go."""
    quote, separator = re.escape((dialect.quote or "").encode()), re.escape(dialect.separator.encode())
    rest = rb"[^\r\n" + separator + rb"]*+"
    quoted = quote + rb"(?:[^" + quote + rb"]++|" + quote * 2 + rb")*+" + quote + rest
    field = rb"(?:" + quoted + rb"|(?!" + quote + rb")" + rest + rb")"
    return re.compile(rb"(?:(?:" + field + rb"[\r" + separator + rb"])*+" + field + rb"\n)*+")


def last_record_end(data: bytes, dialect: CsvDialect) -> int:
    """Return how much of some text, which begins with a record, are complete records that end in newlines.

    Example:
        >>> last_record_end(b'a,b\\n"c\\nd",e\\n"f\\n', CsvDialect())
        12
    """
    if dialect.quote is None or dialect.quote.encode() not in data:
        return data.rfind(b"\n") + 1
    found = _records(dialect).match(data)
    return 0 if found is None else found.end()


def cut_behind_record(file: BinaryIO, start: int, wanted: int, end: int, dialect: CsvDialect) -> int:
    """Return where to cut a file: behind the last record before `wanted`, or behind the one that goes on there."""
    file.seek(start)
    length = wanted - start
    data = file.read(length)
    while not (found := last_record_end(data, dialect)):
        if start + len(data) >= end or not (more := file.read(min(len(data), end - start - len(data)))):
            return end
        data += more
    return start + found


_UNESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}
# Jackson looks at no more of a string before it puts it into quotes.
_LOOKED_AT = 24


class CsvError(ValueError):
    """Text that is not CSV; `at` is where."""

    def __init__(self, reason: str, at: int = 0) -> None:
        super().__init__(reason)
        self.at = at


class UnclosedError(CsvError):
    """The text ends within a record; more of it may make it complete."""


@dataclass(frozen=True)
class CsvDialect:
    """The characters of a CSV file.

    Example:
        >>> list(CsvDialect(escape="!").exactly('a!,b,"c""d"'))
        [(0, ['a,b', 'c"d'])]
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comments: bool = False

    def __post_init__(self) -> None:
        for name in ("separator", "quote", "escape"):
            char = getattr(self, name)
            if char is not None and len(char) != 1:
                raise InvalidProgramError(f"CSV: the {name} must be a single character, it is {char!r}.")

    # --- reading

    def records(self, text: str) -> list[list[str]]:
        """Return the fields of all records in a text, quickly where its lines allow it."""
        escaped = self.escape is not None and self.escape in text
        if not escaped and (self.quote is None or self.quote not in text):
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if "\r" in text else text.split("\n")
            if not lines[-1]:
                lines.pop()
            if self.comments:
                lines = [line for raw in lines if (line := self._lstrip(raw)) and line[0] != "#"]
            separator = self.separator
            return [line.split(separator) for line in lines]
        if not escaped and not self.comments:
            try:
                rows = csv.reader(
                    io.StringIO(text, newline=""), delimiter=self.separator, quotechar=self.quote, strict=True
                )
                return [row or [""] for row in rows]
            except csv.Error:
                pass
        return [fields for _, fields in self.exactly(text)]

    def _lstrip(self, line: str) -> str:
        return line.lstrip(" ") if self.separator == "\t" else line.lstrip(" \t")

    def exactly(self, text: str, met: Callable[[int, CsvError], None] | None = None) -> Iterator[tuple[int, list[str]]]:
        """Yield the fields of each record, character by character, and where it begins.

        Args:
            text: the text.
            met: told of a record that cannot be read, before the next one is yielded; else it is an error.
        """
        at = 0
        while True:
            if self.comments:
                at = self._behind_comments(text, at)
            if at >= len(text):
                return
            try:
                fields, behind = self._record(text, at)
            except CsvError as e:
                if met is None:
                    raise
                met(at, e)
                # On with the line behind the trouble; of a quote that is never closed, behind where its record begins.
                trouble = at if isinstance(e, UnclosedError) else e.at
                at = behind_line(text, trouble)
                continue
            yield at, fields
            at = behind

    def first_record(self, text: str) -> tuple[list[str], int]:
        """Return the fields of the first record, and where it ends; no fields when there is none."""
        start = self._behind_comments(text, 0) if self.comments else 0
        if start >= len(text):
            return [], len(text)
        return self._record(text, start)

    def _behind_comments(self, text: str, at: int) -> int:
        while match := self._blank_or_comment.match(text, at):
            if match.end() == at:
                break
            at = match.end()
        return at

    @cached_property
    def _blank_or_comment(self) -> re.Pattern[str]:
        blank = r" \r\n" if self.separator == "\t" else r" \t\r\n"
        return re.compile(rf"[{blank}]*(?:#[^\r\n]*)?")

    def _record(self, text: str, at: int) -> tuple[list[str], int]:
        fields = []
        start, end = at, len(text)
        while True:
            if self.quote is not None and text.startswith(self.quote, at):
                value, at = self._quoted(text, at + 1, start)
            else:
                value, at = self._plain(text, at, start)
            fields.append(value)
            if at >= end:
                return fields, at
            if text[at] != self.separator:
                return fields, at + (2 if text.startswith("\r\n", at) else 1)
            at += 1

    @cached_property
    def _ends_plain(self) -> re.Pattern[str]:
        return re.compile(f"[\r\n{re.escape(self.separator + (self.escape or ''))}]")

    @cached_property
    def _ends_quoted(self) -> re.Pattern[str]:
        return re.compile(f"[{re.escape((self.quote or '') + (self.escape or ''))}]")

    def _plain(self, text: str, at: int, start: int) -> tuple[str, int]:
        parts = []
        while match := self._ends_plain.search(text, at):
            if match.group() != self.escape:
                parts.append(text[at : match.start()])
                return "".join(parts), match.start()
            parts += [text[at : match.start()], self._unescaped(text, match.end(), start)]
            at = match.end() + 1
        return "".join((*parts, text[at:])), len(text)

    def _quoted(self, text: str, at: int, start: int) -> tuple[str, int]:
        parts = []
        while match := self._ends_quoted.search(text, at):
            parts.append(text[at : match.start()])
            at = match.end()
            if match.group() == self.escape and match.group() != self.quote:
                parts.append(self._unescaped(text, at, start))
                at += 1
            elif text.startswith(match.group(), at):
                parts.append(match.group())
                at += 1
            else:
                return "".join(parts), self._behind_quote(text, at)
        raise UnclosedError("a quote is not closed", start)

    def _behind_quote(self, text: str, at: int) -> int:
        while at < len(text) and text[at] <= " " and text[at] not in ("\r", "\n", self.separator):
            at += 1
        if at < len(text) and text[at] not in ("\r", "\n", self.separator):
            raise CsvError(f"{text[at]!r} stands behind a closing quote, where {self.separator!r} is expected", at)
        return at

    def _unescaped(self, text: str, at: int, start: int) -> str:
        if at >= len(text):
            raise UnclosedError("nothing stands behind the escape character", start)
        return _UNESCAPED.get(text[at], text[at])

    # --- writing

    @cached_property
    def _needs_quotes(self) -> re.Pattern[str]:
        # Jackson's rule: anything up to the highest of the characters that have a meaning.
        highest = max(self.separator, self.quote or "", "\r")
        return re.compile(f"[\0-{re.escape(highest)}{re.escape(self.escape or chr(92))}]")

    def written(self, text: str) -> str:
        """Return a string as a field, in quotes where it needs them.

        Example:
            >>> CsvDialect().written("a"), CsvDialect().written('a "b"')
            ('a', '"a ""b\"""')
        """
        quote = self.quote
        if quote is None or (len(text) <= _LOOKED_AT and not self._needs_quotes.search(text)):
            return text
        if self.escape is not None:
            text = text.replace(self.escape, self.escape * 2)
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"

    def line(self, fields: Sequence[str]) -> str:
        return self.separator.join(fields)


def behind_line(text: str, at: int) -> int:
    found = re.compile(r"\r\n|\r|\n").search(text, at)
    return found.end() if found else len(text)


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
