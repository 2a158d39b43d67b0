"""CSV dialects: separators, quotes, escapes and comments, with the rules of Jackson, which Flink uses."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import BinaryIO, TypeVar

from millstream.common.aliases import Value
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

R = TypeVar("R")


def can_find_record_ends(dialect: CsvDialect) -> bool:
    """Return whether ends of records can be found: a quoted field starts with a quote at the start of the field."""
    quote = dialect.quote or ""
    return dialect.escape is None and not dialect.comments and (quote + dialect.separator).isascii()


@lru_cache
def _records(dialect: CsvDialect) -> re.Pattern[bytes]:
    """Return the pattern of any number of records, each with its newline."""
    quote, separator = re.escape((dialect.quote or "").encode()), re.escape(dialect.separator.encode())
    rest = rb"[^\r\n" + separator + rb"]*+"
    quoted = quote + rb"(?:[^" + quote + rb"]++|" + quote * 2 + rb")*+" + quote + rest
    field = rb"(?:" + quoted + rb"|(?!" + quote + rb")" + rest + rb")"
    return re.compile(rb"(?:(?:" + field + rb"[\r" + separator + rb"])*+" + field + rb"\n)*+")


def last_record_end(data: bytes, dialect: CsvDialect) -> int:
    """Return the length of the complete records, with their newlines, at the beginning of a text.

    Example:
        >>> last_record_end(b'a,b\\n"c\\nd",e\\n"f\\n', CsvDialect())
        12
    """
    if dialect.quote is None or dialect.quote.encode() not in data:
        return data.rfind(b"\n") + 1
    match = _records(dialect).match(data)
    return 0 if match is None else match.end()


def record_end_near(file: BinaryIO, start: int, target: int, end: int, dialect: CsvDialect) -> int:
    """Return the end of the last record before `target`, or of the record that contains it."""
    file.seek(start)
    length = target - start
    data = file.read(length)
    while not (complete := last_record_end(data, dialect)):
        if start + len(data) >= end or not (more := file.read(min(len(data), end - start - len(data)))):
            return end
        data += more
    return start + complete


def read_whole_records(
    blocks: Iterable[tuple[int, bytes]], read: Callable[[bytes, int], R]
) -> Generator[R, None, tuple[bytes, int]]:
    """Yield the results of `read`, and return the incomplete record at the end with its offset.

    Args:
        blocks: whole lines with their offsets.
        read: called with a block and its offset; it raises UnclosedError if the block ends within a record, and is
            called again with more input.
    """
    pending, begin, tried_length = b"", 0, 0
    for offset, block in blocks:
        if pending:
            block, offset = pending + block, begin
        if len(block) < 2 * tried_length:
            # Reading a long record again for each block would take quadratic time.
            pending, begin = block, offset
            continue
        try:
            result = read(block, offset)
        except UnclosedError:
            pending, begin, tried_length = block, offset, len(block)
            continue
        pending, tried_length = b"", 0
        yield result
    return pending, begin


_UNESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}
# Jackson quotes longer strings without checking their characters.
_MAX_CHECKED_LENGTH = 24


class CsvError(ValueError):
    """Malformed CSV.

    Attributes:
        position: the position of the error in the text.
    """

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.position = position


class UnclosedError(CsvError):
    """The text ends within a record; more text may complete it."""


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
        """Return the fields of all records in a text; fast for records without escapes."""
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

    def exactly(
        self, text: str, on_error: Callable[[int, CsvError], None] | None = None
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the position and the fields of each record, with exact positions of errors.

        Args:
            text: the text.
            on_error: called with the position and the error of a malformed record, which is skipped; None to raise it.
        """
        position = 0
        while True:
            if self.comments:
                position = self._after_comments(text, position)
            if position >= len(text):
                return
            try:
                fields, end = self._record(text, position)
            except CsvError as e:
                if on_error is None:
                    raise
                on_error(position, e)
                # Continue after the line of the error; for an unclosed quote, after the line of the record's start.
                resume_at = position if isinstance(e, UnclosedError) else e.position
                position = after_line(text, resume_at)
                continue
            yield position, fields
            position = end

    def first_record(self, text: str) -> tuple[list[str], int]:
        """Return the fields of the first record and its end; no fields if there is none."""
        start = self._after_comments(text, 0) if self.comments else 0
        if start >= len(text):
            return [], len(text)
        return self._record(text, start)

    def _after_comments(self, text: str, position: int) -> int:
        while match := self._blank_or_comment.match(text, position):
            if match.end() == position:
                break
            position = match.end()
        return position

    @cached_property
    def _blank_or_comment(self) -> re.Pattern[str]:
        blank = r" \r\n" if self.separator == "\t" else r" \t\r\n"
        return re.compile(rf"[{blank}]*(?:#[^\r\n]*)?")

    def _record(self, text: str, position: int) -> tuple[list[str], int]:
        fields = []
        start, end = position, len(text)
        while True:
            if self.quote is not None and text.startswith(self.quote, position):
                value, position = self._quoted(text, position + 1, start)
            else:
                value, position = self._plain(text, position, start)
            fields.append(value)
            if position >= end:
                return fields, position
            if text[position] != self.separator:
                return fields, position + (2 if text.startswith("\r\n", position) else 1)
            position += 1

    @cached_property
    def _ends_plain(self) -> re.Pattern[str]:
        return re.compile(f"[\r\n{re.escape(self.separator + (self.escape or ''))}]")

    @cached_property
    def _ends_quoted(self) -> re.Pattern[str]:
        return re.compile(f"[{re.escape((self.quote or '') + (self.escape or ''))}]")

    def _plain(self, text: str, position: int, start: int) -> tuple[str, int]:
        parts = []
        while match := self._ends_plain.search(text, position):
            if match.group() != self.escape:
                parts.append(text[position : match.start()])
                return "".join(parts), match.start()
            parts += [text[position : match.start()], self._unescaped(text, match.end(), start)]
            position = match.end() + 1
        return "".join((*parts, text[position:])), len(text)

    def _quoted(self, text: str, position: int, start: int) -> tuple[str, int]:
        parts = []
        while match := self._ends_quoted.search(text, position):
            parts.append(text[position : match.start()])
            position = match.end()
            if match.group() == self.escape and match.group() != self.quote:
                parts.append(self._unescaped(text, position, start))
                position += 1
            elif text.startswith(match.group(), position):
                parts.append(match.group())
                position += 1
            else:
                return "".join(parts), self._after_quote(text, position)
        raise UnclosedError("a quote is not closed", start)

    def _after_quote(self, text: str, position: int) -> int:
        while position < len(text) and text[position] <= " " and text[position] not in ("\r", "\n", self.separator):
            position += 1
        if position < len(text) and text[position] not in ("\r", "\n", self.separator):
            raise CsvError(
                f"{text[position]!r} follows a closing quote, where {self.separator!r} is expected", position
            )
        return position

    def _unescaped(self, text: str, position: int, start: int) -> str:
        if position >= len(text):
            raise UnclosedError("nothing follows the escape character", start)
        return _UNESCAPED.get(text[position], text[position])

    # --- writing

    @cached_property
    def _needs_quotes(self) -> re.Pattern[str]:
        # Jackson's rule: any character up to the highest special character.
        highest = max(self.separator, self.quote or "", "\r")
        return re.compile(f"[\0-{re.escape(highest)}{re.escape(self.escape or chr(92))}]")

    def written(self, text: str) -> str:
        """Return a string as a field, quoted if necessary.

        Example:
            >>> CsvDialect().written("a"), CsvDialect().written('a "b"')
            ('a', '"a ""b\"""')
        """
        quote = self.quote
        if quote is None or (len(text) <= _MAX_CHECKED_LENGTH and not self._needs_quotes.search(text)):
            return text
        if self.escape is not None:
            text = text.replace(self.escape, self.escape * 2)
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"

    def line(self, fields: Sequence[str]) -> str:
        return self.separator.join(fields)


def after_line(text: str, position: int) -> int:
    match = re.compile(r"\r\n|\r|\n").search(text, position)
    return match.end() if match else len(text)


_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)


@dataclass(frozen=True)
class Column:
    """A column of a CSV file.

    Attributes:
        name: the name.
        type_info: the type.
        separator: the separator of array elements.
        decimal: the size to which decimals are rounded; None for no rounding.
    """

    name: str
    type_info: TypeInformation
    separator: str = ";"
    decimal: DecimalSize | None = None


class RowReader:
    """Converts fields to rows.

    Args:
        columns: the columns.
        null: the text of a null, quoted or not; None if there is none.
        ignore_surplus: whether fields after the last column are ignored; else they are an error.
    """

    def __init__(self, columns: Sequence[Column], null: str | None = None, ignore_surplus: bool = False) -> None:
        self._names = tuple(column.name for column in columns)
        self._types = [column.type_info for column in columns]
        self._null = null
        self._ignore_surplus = ignore_surplus
        self._parsers = [_field_parser(column, null) for column in columns]
        self._column_parsers = [
            self._column_parser(column, parse) for column, parse in zip(columns, self._parsers, strict=True)
        ]

    def _column_parser(self, column: Column, parse: Parse) -> ParseColumn:
        if isinstance(column.type_info, _ARRAYS) or column.decimal is not None:
            return lambda fields: [parse(field) for field in fields]
        plain, null = column_parser_of(column.type_info), self._null
        if null is None:
            return plain
        return lambda fields: [parse(field) for field in fields] if null in fields else plain(fields)

    def rows(self, records: list[list[str]]) -> list[Row]:
        """Return the rows of many records; raise ValueError if one is malformed."""
        if not records:
            return []
        width = len(self._names)
        if set(map(len, records)) != {width}:
            return [self.row(fields) for fields in records]
        columns = [
            parse(fields) for parse, fields in zip(self._column_parsers, zip(*records, strict=True), strict=True)
        ]
        return Row.many(self._names, zip(*columns, strict=True))

    def row(self, fields: list[str]) -> Row:
        """Return the row of a record; raise CsvError if it is malformed."""
        width = len(self._names)
        if len(fields) < width:
            raise CsvError(f"the record has {len(fields)} fields where {width} are expected")
        if len(fields) > width and not self._ignore_surplus and (len(fields) > width + 1 or fields[width]):
            raise CsvError(f"the record has more than {width} fields; the next is {fields[width]!r}")
        return Row.of(self._names, [self._value(i, field) for i, field in enumerate(fields[:width])])

    def lenient_row(self, fields: list[str]) -> Row | None:
        """Return a row with None for malformed and missing fields; None for a record with too many fields."""
        width = len(self._names)
        if len(fields) > width and (len(fields) > width + 1 or fields[width]):
            return None
        values: list[Value] = [None] * width
        for i, field in enumerate(fields[:width]):
            try:
                values[i] = self._parsers[i](field)
            except ValueError:
                continue
        return Row.of(self._names, values)

    def _value(self, i: int, field: str) -> Value:
        try:
            return self._parsers[i](field)
        except ValueError:
            raise CsvError(f"{field!r} in column {self._names[i]!r} is not of the type {self._types[i]}") from None


def _field_parser(column: Column, null: str | None) -> Parse:
    if not isinstance(column.type_info, _ARRAYS):
        return _nullable(_value_parser(column, column.type_info), null)
    # An array is never null, but its elements may be.
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
    """Fail if CSV does not support the type of a column."""
    for column in columns:
        _field_parser(column, None)


class RowWriter:
    """Converts rows to lines."""

    def __init__(self, columns: Sequence[Column], dialect: CsvDialect, null: str, line_end: str) -> None:
        self._names = [column.name for column in columns]
        self._dialect = dialect
        self._null = null
        self._line_end = line_end
        fields = [column.type_info for column in columns]
        convert = RowTypeInfo(fields, self._names).converter()
        assert convert is not None
        self._convert = convert
        self._writers = [self._field_writer(column) for column in columns]

    def _field_writer(self, column: Column) -> Callable[[Value], str]:
        written, null = self._dialect.written, self._null
        if isinstance(column.type_info, _ARRAYS):
            show, separator = _formatter(column, column.type_info.get_element_type()), column.separator
            return lambda values: written(separator.join(null if v is None else show(v) for v in values))
        show = _formatter(column, column.type_info)
        if str(column.type_info) in ("String", "Char"):
            return written
        return show

    def line(self, row: Value) -> str:
        """Return a row as a line with its line end; a row may also be a tuple, a list, or a dict."""
        values = self._convert(row)
        if values is None:
            raise TypeMismatchError("CSV: cannot write None as a row.")
        null = self._null
        fields = [null if v is None else write(v) for write, v in zip(self._writers, values, strict=True)]
        return self._dialect.line(fields) + self._line_end

    def header(self) -> str:
        return self._dialect.line([self._dialect.written(name) for name in self._names]) + self._line_end


def _formatter(column: Column, type_info: TypeInformation) -> Callable[[Value], str]:
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
