"""Files of CSV: CsvReaderFormat for FileSource, CsvBulkWriters for FileSink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import BulkWriter, RowDataBulkWriterFactory
from millstream.common.typeinfo import RowTypeInfo
from millstream.common.types import Row
from millstream.formats.csv.dialect import (
    CsvError,
    RowReader,
    RowWriter,
    UnclosedError,
    behind_line,
    can_be_cut,
    cut_behind_record,
)
from millstream.formats.csv.schema import CsvSchema
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FilePart, StreamFormat

__all__ = ["CsvBulkWriters", "CsvReaderFormat"]

# Bytes that are not text come through decoding and are found again in the fields.
_KEPT = "surrogateescape"
_MARK = b"\xef\xbb\xbf"


class CsvReaderFormat(StreamFormat):
    """Reads rows from CSV files, in UTF-8.

    A field in quotes may contain newlines, so a file is read by one subtask; the driver looks for the ends of records.
    Where there are escapes or comments it cannot tell them, and a file is read in one piece. `with_single_lines()`
    says that no field contains a newline. PyFlink has neither that nor `with_ignore_parse_errors()`, which Flink's
    Java API has.

    Example:
        >>> from millstream.common import Types
        >>> schema = CsvSchema.builder().add_number_column("id", Types.INT()).add_string_column("name").build()
        >>> CsvReaderFormat.for_schema(schema).produced_type
        RowTypeInfo(id: Integer, name: String)
    """

    def __init__(self, schema: CsvSchema, ignores_errors: bool = False, single_lines: bool = False) -> None:
        self._schema = schema
        self._ignores_errors = ignores_errors
        self._single_lines = single_lines
        self.produced_type = schema.row_type

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Return what reads lines of CSV as rows."""
        if not isinstance(schema, CsvSchema):
            raise InvalidProgramError(f"CsvReaderFormat.for_schema() takes a CsvSchema, not {schema!r}.")
        if not len(schema):
            raise InvalidProgramError("CsvReaderFormat.for_schema(): the schema has no columns.")
        return CsvReaderFormat(schema)

    def with_ignore_parse_errors(self) -> CsvReaderFormat:
        """Leave out records that cannot be read; else they are an error."""
        return CsvReaderFormat(self._schema, True, self._single_lines)

    def with_single_lines(self) -> CsvReaderFormat:
        """Take every line for a record: large files are then read in parallel."""
        return CsvReaderFormat(self._schema, self._ignores_errors, True)

    @property
    def splittable(self) -> bool:
        # The row that is skipped may not be in the same stretch as the header.
        return self._single_lines and not self._schema.skip_first_data_row

    @property
    def cuttable(self) -> bool:
        return can_be_cut(self._schema.dialect) and not self._schema.skip_first_data_row

    def cut(self, access: FileAccess, path: str, start: int, wanted: int, end: int) -> int:
        if self.splittable:
            return wanted
        with access.open(path) as file:
            return cut_behind_record(file, start, wanted, end, self._schema.dialect)

    def read_part(self, part: FilePart) -> Iterator[list[Row]]:
        yield from _PartReader(self._schema, self._ignores_errors, self._single_lines, part).batches()


class _PartReader:
    """Reads the rows in a stretch of a file."""

    def __init__(self, schema: CsvSchema, ignores_errors: bool, single_lines: bool, part: FilePart) -> None:
        self._schema = schema
        self._dialect = schema.dialect
        self._rows = RowReader(schema.settled_columns(), schema.null_value, schema.any_property_name is not None)
        self._ignores_errors = ignores_errors
        self._single_lines = single_lines
        self._part = part

    def batches(self) -> Iterator[list[Row]]:
        at_head = self._part.start == 0
        waiting, begin, tried = b"", 0, 0
        for offset, block in self._part.blocks():
            if waiting:
                block, offset = waiting + block, begin
            if len(block) < 2 * tried:
                # A record that does not end: look again when there is much more.
                waiting, begin = block, offset
                continue
            try:
                yield self._read(block, offset, at_head, final=False)
            except UnclosedError:
                waiting, begin, tried = block, offset, len(block)
                continue
            at_head, waiting, tried = False, b"", 0
        if waiting or at_head:
            yield self._read(waiting, begin, at_head, final=True)

    def _read(self, block: bytes, offset: int, at_head: bool, final: bool) -> list[Row]:
        if at_head and offset == 0 and block.startswith(_MARK):
            block, offset = block[len(_MARK) :], len(_MARK)
        text, is_text = self._decoded(block)
        try:
            if at_head:
                behind = self._behind_head(text)
                offset += _length(text[:behind])
                text = text[behind:]
            if is_text:
                return self._rows.rows(self._records(text))
        except UnclosedError:
            if not final and not self._single_lines:
                raise
        except ValueError:
            pass
        # Something is wrong: find out what and where.
        return self._one_by_one(text, offset)

    def _decoded(self, block: bytes) -> tuple[str, bool]:
        """Return a text, and whether all of it is one."""
        try:
            return block.decode(errors="replace" if self._ignores_errors else "strict"), True
        except UnicodeDecodeError:
            return block.decode(errors=_KEPT), False

    def _records(self, text: str) -> list[list[str]]:
        records = self._dialect.records(text)
        if self._single_lines and not self._dialect.comments and len(records) != len(_lines(text)):
            raise CsvError("a record goes over several lines")
        return records

    def _one_by_one(self, text: str, offset: int) -> list[Row]:
        rows = []
        at = 0
        pieces = _lines(text) if self._single_lines else [text]
        for piece in pieces:
            rows += self._rows_of(piece, offset + _length(text[:at]) if at else offset)
            at += len(piece)
        return rows

    def _rows_of(self, text: str, offset: int) -> list[Row]:
        rows: list[Any] = []

        def met(start: int, error: CsvError) -> None:
            if not self._ignores_errors:
                where = offset + _length(text[: max(start, error.at)])
                rows.append(self._part.bad_record(where, text[start : behind_line(text, start)], str(error)))

        for start, fields in self._dialect.exactly(text, met):
            try:
                rows.append(self._rows.row(_checked(fields)))
            except CsvError as e:
                met(start, e)
        return rows

    def _behind_head(self, text: str) -> int:
        """Return where the first row begins, behind the header and the row that is skipped."""
        schema, behind = self._schema, 0
        if schema.use_header:
            names, behind = self._dialect.first_record(text)
            if schema.strict_headers:
                self._check_header(names)
        if schema.skip_first_data_row:
            first = _lines(text[behind:])[:1]
            behind += len(first[0]) if first else 0
        return behind

    def _check_header(self, names: list[str]) -> None:
        expected = [column.name for column in self._schema.columns]
        if names != expected:
            raise MillstreamError(
                f"FileSource: the header of {self._part.path} is {names}, but the schema has {expected}; correct "
                "one of them, or leave out set_strict_headers()."
            )


def _length(text: str) -> int:
    """Return how many bytes a text was."""
    return len(text.encode(errors=_KEPT))


def _checked(fields: list[str]) -> list[str]:
    """Refuse fields with bytes that are not UTF-8."""
    for field in fields:
        try:
            field.encode()
        except UnicodeEncodeError as e:
            raise CsvError(f"byte {ord(field[e.start]) - 0xDC00:#04x} is not UTF-8") from None
    return fields


def _lines(text: str) -> list[str]:
    """Return lines with their ends."""
    if "\r" not in text:
        parts = text.split("\n")
        lines = [f"{part}\n" for part in parts[:-1]]
        return [*lines, parts[-1]] if parts[-1] else lines
    return [line.decode(errors=_KEPT) for line in text.encode(errors=_KEPT).splitlines(keepends=True)]


class CsvBulkWriters:
    """Writes rows into CSV files, for `FileSink.for_bulk_format`.

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
        """Return what writes rows as lines of CSV."""
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
    # So many lines are put together before they are written.
    _LINES = 1024

    def __init__(self, schema: CsvSchema, file: BinaryIO) -> None:
        self._rows = RowWriter(schema.settled_columns(), schema.dialect, schema.null_value or "", schema.line_separator)
        self._file = file
        self._lines = [self._rows.header()] if schema.use_header else []

    def add_element(self, value: Any) -> None:
        self._lines.append(self._rows.line(value))
        if len(self._lines) >= self._LINES:
            self._write()

    def finish(self) -> None:
        self._write()

    def _write(self) -> None:
        self._file.write("".join(self._lines).encode())
        self._lines.clear()
