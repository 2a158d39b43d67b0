"""CSV files: CsvReaderFormat for FileSource, CsvBulkWriters for FileSink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import BulkWriter, RowDataBulkWriterFactory
from millstream.common.typeinfo import RowTypeInfo
from millstream.common.types import Row
from millstream.formats.csv.dialect import (
    CsvError,
    RowReader,
    RowWriter,
    UnclosedError,
    after_line,
    can_find_record_ends,
    read_whole_records,
    record_end_near,
)
from millstream.formats.csv.schema import CsvSchema
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FilePart, StreamFormat

__all__ = ["CsvBulkWriters", "CsvReaderFormat"]

# Invalid bytes pass through decoding and are reported with their fields.
_ESCAPE = "surrogateescape"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CsvReaderFormat(StreamFormat):
    r"""Reads rows from CSV files, in UTF-8.

    Quoted fields may contain newlines, so one subtask reads a file, and the driver finds the ends of records to divide
    the file into epochs. With escapes or comments, the driver cannot find them, and a file is read in one epoch.
    `with_single_lines()` declares that no field contains a newline. PyFlink has neither that method nor
    `with_ignore_parse_errors()`, which Flink's Java API has.

    Example:
        >>> from pathlib import Path
        >>> from millstream.common import Types, WatermarkStrategy
        >>> from millstream.connectors.files.source import FileSource
        >>> _ = Path("people.csv").write_text("1,ann\n2,bob\n?,eve\n")
        >>> schema = CsvSchema.builder().add_number_column("id", Types.INT()).add_string_column("name").build()
        >>> people = CsvReaderFormat.for_schema(schema).with_ignore_parse_errors().with_single_lines()
        >>> source = FileSource.for_record_stream_format(people, "people.csv").build()
        >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "people").execute_and_collect())
        [Row(id=1, name='ann'), Row(id=2, name='bob')]
    """

    def __init__(self, schema: CsvSchema, ignores_errors: bool = False, single_lines: bool = False) -> None:
        self._schema = schema
        self._ignores_errors = ignores_errors
        self._single_lines = single_lines
        self.produced_type = schema.row_type

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Return a format that reads CSV records as rows."""
        if not isinstance(schema, CsvSchema):
            raise InvalidProgramError(f"CsvReaderFormat.for_schema() takes a CsvSchema, not {schema!r}.")
        if not len(schema):
            raise InvalidProgramError("CsvReaderFormat.for_schema(): the schema has no columns.")
        return CsvReaderFormat(schema)

    def with_ignore_parse_errors(self) -> CsvReaderFormat:
        """Skip malformed records; by default they are an error."""
        return CsvReaderFormat(self._schema, True, self._single_lines)

    def with_single_lines(self) -> CsvReaderFormat:
        """Read every line as a record, so that large files are read in parallel."""
        return CsvReaderFormat(self._schema, self._ignores_errors, True)

    @property
    def splittable(self) -> bool:
        # The skipped row and the header may be in different split ranges.
        return self._single_lines and not self._schema.skip_first_data_row

    @property
    def has_range_ends(self) -> bool:
        return can_find_record_ends(self._schema.dialect) and not self._schema.skip_first_data_row

    def range_end(self, access: FileAccess, path: str, start: int, target: int, end: int) -> int:
        if self.splittable:
            return target
        with access.open(path) as file:
            return record_end_near(file, start, target, end, self._schema.dialect)

    def read_part(self, part: FilePart) -> Iterator[list[Row]]:
        yield from _PartReader(self._schema, self._ignores_errors, self._single_lines, part).batches()


class _PartReader:
    """Reads the rows of a part of a file."""

    def __init__(self, schema: CsvSchema, ignores_errors: bool, single_lines: bool, part: FilePart) -> None:
        self._schema = schema
        self._dialect = schema.dialect
        self._rows = RowReader(schema.settled_columns(), schema.null_value, schema.any_property_name is not None)
        self._ignores_errors = ignores_errors
        self._single_lines = single_lines
        self._part = part
        # Whether the header of the file is still to be read.
        self._at_head = part.start == 0

    def batches(self) -> Iterator[list[Row]]:
        rest, offset = yield from read_whole_records(self._part.blocks(), self._read)
        if rest or self._at_head:
            yield self._read(rest, offset, final=True)

    def _read(self, block: bytes, offset: int, final: bool = False) -> list[Row]:
        rows = self._rows_in(block, offset, self._at_head, final)
        self._at_head = False
        return rows

    def _rows_in(self, block: bytes, offset: int, at_head: bool, final: bool) -> list[Row]:
        if at_head and offset == 0 and block.startswith(_BYTE_ORDER_MARK):
            block, offset = block[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
        text, is_text = self._decoded(block)
        try:
            if at_head:
                end = self._first_row(text)
                offset += _length(text[:end])
                text = text[end:]
            if is_text:
                return self._rows.rows(self._records(text))
        except UnclosedError:
            if not final and not self._single_lines:
                raise
        except ValueError:
            pass
        # Read again to find the malformed record.
        return self._one_by_one(text, offset)

    def _decoded(self, block: bytes) -> tuple[str, bool]:
        """Return a block as text, and whether all of it is valid."""
        try:
            return block.decode(errors="replace" if self._ignores_errors else "strict"), True
        except UnicodeDecodeError:
            return block.decode(errors=_ESCAPE), False

    def _records(self, text: str) -> list[list[str]]:
        records = self._dialect.records(text)
        if self._single_lines and not self._dialect.comments and len(records) != len(_lines(text)):
            raise CsvError("a record spans several lines")
        return records

    def _one_by_one(self, text: str, offset: int) -> list[Row]:
        rows = []
        position = 0
        parts = _lines(text) if self._single_lines else [text]
        for part in parts:
            rows += self._rows_of(part, offset + _length(text[:position]) if position else offset)
            position += len(part)
        return rows

    def _rows_of(self, text: str, offset: int) -> list[Row]:
        rows: list[Value] = []

        def on_error(start: int, error: CsvError) -> None:
            if not self._ignores_errors:
                position = offset + _length(text[: max(start, error.position)])
                rows.append(self._part.bad_record(position, text[start : after_line(text, start)], str(error)))

        for start, fields in self._dialect.exactly(text, on_error):
            try:
                rows.append(self._rows.row(_checked(fields)))
            except CsvError as e:
                on_error(start, e)
        return rows

    def _first_row(self, text: str) -> int:
        """Return the position of the first row, after the header and the skipped row."""
        schema, end = self._schema, 0
        if schema.use_header:
            names, end = self._dialect.first_record(text)
            if schema.strict_headers:
                self._check_header(names)
        if schema.skip_first_data_row:
            first = _lines(text[end:])[:1]
            end += len(first[0]) if first else 0
        return end

    def _check_header(self, names: list[str]) -> None:
        expected = [column.name for column in self._schema.columns]
        if names != expected:
            raise MillstreamError(
                f"FileSource: the header of {self._part.path} is {names}, but the schema has {expected}; correct "
                "one of them, or remove set_strict_headers()."
            )


def _length(text: str) -> int:
    """Return the length of a decoded text in bytes."""
    return len(text.encode(errors=_ESCAPE))


def _checked(fields: list[str]) -> list[str]:
    """Fail if a field contains bytes that are not UTF-8."""
    for field in fields:
        try:
            field.encode()
        except UnicodeEncodeError as e:
            raise CsvError(f"byte {ord(field[e.start]) - 0xDC00:#04x} is not UTF-8") from None
    return fields


def _lines(text: str) -> list[str]:
    """Return lines with their line ends."""
    if "\r" not in text:
        parts = text.split("\n")
        lines = [f"{part}\n" for part in parts[:-1]]
        return [*lines, parts[-1]] if parts[-1] else lines
    return [line.decode(errors=_ESCAPE) for line in text.encode(errors=_ESCAPE).splitlines(keepends=True)]


class CsvBulkWriters:
    """Writes rows to CSV files, for `FileSink.for_bulk_format`.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> schema = CsvSchema.builder().add_string_column("name").add_number_column("age").set_use_header().build()
        >>> writer = CsvBulkWriters.for_schema(schema).open(file)
        >>> writer.add_element(("Ann, of York", 7))
        >>> writer.finish()
        >>> print(file.getvalue().decode(), end="")
        name,age
        "Ann, of York",7
    """

    @staticmethod
    def for_schema(schema: CsvSchema) -> RowDataBulkWriterFactory:
        """Return the factory of writers."""
        if not isinstance(schema, CsvSchema) or not len(schema):
            raise InvalidProgramError(f"CsvBulkWriters.for_schema() takes a CsvSchema with columns, not {schema!r}.")
        return _CsvWriterFactory(schema)


@dataclass(frozen=True)
class _CsvWriterFactory(RowDataBulkWriterFactory):
    schema: CsvSchema

    def get_row_type(self) -> RowTypeInfo:
        return self.schema.row_type

    def open(self, file: BinaryIO) -> BulkWriter:
        return _CsvWriter(self.schema, file)


class _CsvWriter:
    # Lines per write.
    _BUFFERED_LINES = 1024

    def __init__(self, schema: CsvSchema, file: BinaryIO) -> None:
        self._rows = RowWriter(schema.settled_columns(), schema.dialect, schema.null_value or "", schema.line_separator)
        self._file = file
        self._lines = [self._rows.header()] if schema.use_header else []

    def add_element(self, value: Value) -> None:
        self._lines.append(self._rows.line(value))
        if len(self._lines) >= self._BUFFERED_LINES:
            self._write()

    def finish(self) -> None:
        self._write()

    def _write(self) -> None:
        self._file.write("".join(self._lines).encode())
        self._lines.clear()
