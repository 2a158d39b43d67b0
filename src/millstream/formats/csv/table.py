"""The format `csv`: a record of comma-separated fields for each row; quoted fields may contain newlines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.common.types import Row
from millstream.formats.base import FIX, Decoded, Malformed, MessageFormat, inference_advice, inferred_columns
from millstream.formats.column_text import Decimals, exact_parser, plain_texts, strict_parser
from millstream.formats.csv.dialect import (
    CsvDialect,
    CsvError,
    UnclosedError,
    can_find_record_ends,
    read_whole_records,
    record_end_near,
)
from millstream.formats.file_access import FileAccess, decompressed
from millstream.formats.file_format import UNKNOWN, FileFormat, FilePart, StreamFormat
from millstream.formats.options import Options
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_Parse = Callable[[str], Value]
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Invalid bytes keep their length when the text is encoded again.
_ESCAPE = "surrogateescape"


class _UnfittingError(CsvError):
    """A field that is not of its column's type."""

    def __init__(self, reason: str, column: str) -> None:
        super().__init__(reason)
        self.column = column


class CsvFormat(MessageFormat):
    """Rows as lines of fields, in the order of the columns."""

    identifier = "csv"
    optional = frozenset(
        [
            "field-delimiter",
            "disable-quote-character",
            "quote-character",
            "allow-comments",
            "ignore-parse-errors",
            "array-element-delimiter",
            "escape-character",
            "null-literal",
            "write-bigdecimal-in-scientific-notation",
        ]
    )

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        quote = None if options.flag("disable-quote-character", False) else options.text("quote-character", '"')
        escape = options.text("escape-character", "") or None
        delimiter = options.text("field-delimiter", ",")
        if len(delimiter) > 1:
            # An escape sequence, such as a backslash and a t.
            delimiter = delimiter.encode().decode("unicode_escape")
        if len(delimiter) != 1:
            raise ValidationException(
                f"Option 'csv.field-delimiter' must be a string with single character, but was: {delimiter}"
            )
        self._dialect = CsvDialect(delimiter, quote, escape, options.flag("allow-comments", False))
        self._lenient = options.flag("ignore-parse-errors", False)
        self._null = options.text("null-literal", "") if "null-literal" in options else None
        self._elements = options.text("array-element-delimiter", ";")
        scientific = options.flag("write-bigdecimal-in-scientific-notation", True)
        self._decimals = Decimals.SHORTEST if scientific else Decimals.SHORT

    # --- reading

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        parsers = self.parsers(fields)
        rows: list[list[Value]] = []
        indices: list[int] = []
        for index, message in enumerate(messages):
            text = (message or b"").decode("utf-8", "replace").rstrip("\r\n")
            try:
                records = self._dialect.records(text) if text else []
                rows += [self.row(r, fields, parsers) for r in records[:1]]
                indices += [index] * len(records[:1])
            except CsvError as e:
                if not self.lenient:
                    raise Malformed(index, f"{text!r} is not a row ({e})") from None
        return Decoded(self.batch(rows, fields), None if len(rows) == len(messages) else indices)

    @property
    def dialect(self) -> CsvDialect:
        """The separator, quote and escape characters."""
        return self._dialect

    @property
    def lenient(self) -> bool:
        """Whether malformed fields are null and malformed records are skipped."""
        return self._lenient

    def parsers(self, fields: Sequence[Field]) -> list[_Parse]:
        """Return the parser of each column."""
        return [self._column_parser(f) for f in fields]

    def _column_parser(self, field: Field) -> _Parse:
        return self._parser(field.type)

    def row(self, record: Sequence[str | None], fields: Sequence[Field], parsers: Sequence[_Parse]) -> list[Value]:
        """Return the values of a record; raise CsvError if a field is missing, surplus or malformed.

        None is a field that the file does not have.
        """
        n_missing = len(fields) - len(record)
        if n_missing < 0 or (n_missing and not self._lenient):
            raise CsvError(f"it has {len(record)} fields, but the table has {len(fields)} columns")
        values = [self._value(v, f, p) for v, f, p in zip(record, fields, parsers, strict=False)]
        return [*values, *[None] * n_missing]

    def batch(self, rows: list[list[Value]], fields: Sequence[Field]) -> Batch:
        """Return rows as columns."""
        columns = zip(*rows, strict=True) if rows else [()] * len(fields)
        arrays = [to_column(list(c), f.type, self.zone) for c, f in zip(columns, fields, strict=True)]
        return Batch(arrays, None, len(rows))

    def _value(self, text: str | None, field: Field, parse: _Parse) -> Value:
        if text is None or (self._null is not None and text == self._null):
            return None
        if not text and not isinstance(field.type, (t.CharType, t.VarCharType, t.ArrayType)):
            return None
        try:
            return parse(text)
        except ValueError as e:
            if self._lenient:
                return None
            raise _UnfittingError(
                f"{text!r} in column '{field.name}' is not of type {field.type}: {e}", field.name
            ) from None

    def _parser(self, kind: t.DataType) -> _Parse:
        if isinstance(kind, t.ArrayType):
            inner, separator = self._parser(kind.element_type), self._elements
            return lambda text: [inner(part) for part in text.split(separator)] if text else []
        if isinstance(kind, t.RowType):
            members = [self._parser(f) for f in kind.field_types()]
            names, separator = tuple(kind.names), self._elements

            def parse(text: str) -> Row:
                parts = text.split(separator)
                if len(parts) != len(members):
                    raise ValueError(f"{len(parts)} parts where {len(members)} are expected")
                return Row.of(names, [p(v) for p, v in zip(members, parts, strict=True)])

            return parse
        try:
            return strict_parser(kind, "SQL", in_csv=True)
        except ValueError:
            raise ValidationException(f"The format 'csv' does not support the type {kind}.") from None

    # --- writing

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        columns = [self._texts(c, f.type) for c, f in zip(batch.columns, fields, strict=True)]
        line = self._dialect.line
        return [line(row).encode() for row in zip(*columns, strict=True)]

    def _texts(self, column: pa.Array, kind: t.DataType) -> list[str]:
        null, written = self._null or "", self._dialect.written
        plain = plain_texts(column, kind, "SQL", self._decimals)
        if plain is not None:
            quoted = not isinstance(kind, (t.NumericType, t.BooleanType))
            return [null if v is None else written(v) if quoted else v for v in plain]
        if isinstance(kind, (t.ArrayType, t.RowType)):
            values = to_python(column, kind, self.zone)
            inner = [kind.element_type] if isinstance(kind, t.ArrayType) else kind.field_types()
            return [null if v is None else written(self._joined(list(v), inner)) for v in values]
        raise ValidationException(f"The format 'csv' does not support the type {kind}.")

    def _joined(self, values: list[Value], kinds: list[t.DataType]) -> str:
        value_types = kinds * len(values) if len(kinds) == 1 else kinds
        texts = [plain_texts(to_column([v], k, self.zone), k, "SQL") for v, k in zip(values, value_types, strict=True)]
        return self._elements.join((text or [None])[0] or (self._null or "") for text in texts)


class CsvFileFormat(CsvFormat):
    """Files of rows, which may begin with a header: the names of the columns."""

    optional = CsvFormat.optional | {"header", "inferred-columns"}

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self.has_header = options.flag("header", False)
        # The columns whose types were inferred from the first rows; None for a declared table.
        self._inferred = inferred_columns(options)

    def file_reader(self, fields: Sequence[Field]) -> FileFormat:
        return _CsvFiles(self, fields)

    def file_header(self, fields: Sequence[Field]) -> bytes:
        return self._dialect.line([self._dialect.written(f.name) for f in fields]).encode() if self.has_header else b""

    def _column_parser(self, field: Field) -> _Parse:
        if self._inferred is not None and field.name in self._inferred:
            return exact_parser(field.type)
        return super()._column_parser(field)

    def row_advice(self, error: CsvError, is_first: bool) -> str:
        """Return how to fix a malformed record.

        Args:
            error: the error.
            is_first: whether it is the first record of the file.
        """
        if self._inferred is None:
            if is_first and not self.has_header:
                return f"If it is a header, set 'csv.header' = 'true'. {FIX.format(self.identifier)}"
            return FIX.format(self.identifier)
        if is_first and not self.has_header:
            return "If it is a header, pass header=True; otherwise correct the line."
        if isinstance(error, _UnfittingError) and error.column in self._inferred:
            return inference_advice(error.column)
        return "Correct the line."


class _CsvFiles(StreamFormat):
    """CSV files; quoted fields may contain newlines, so one subtask reads a file."""

    def __init__(self, csv: CsvFileFormat, fields: Sequence[Field]) -> None:
        self._csv = csv
        self._fields = list(fields)

    @property
    def splittable(self) -> bool:
        return self._csv.dialect.quote is None

    @property
    def has_range_ends(self) -> bool:
        return can_find_record_ends(self._csv.dialect)

    def range_end(self, access: FileAccess, path: str, start: int, target: int, end: int) -> int:
        if self.splittable:
            return target
        with access.open(path) as file:
            return record_end_near(file, start, target, end, self._csv.dialect)

    def read_part(self, part: FilePart) -> Iterator[Collection[Batch]]:
        yield from _PartReader(self._csv, self._fields, part).batches()


class Header(NamedTuple):
    """The header of a file.

    Attributes:
        names: the names of the columns; f0, f1, .. by position for those without a name.
        length: the number of bytes before the first row.
    """

    names: list[str]
    length: int


def read_header(access: FileAccess, path: str, dialect: CsvDialect) -> Header | None:
    """Return the first record of a file as its header; None if the file has no record."""
    data = b""
    with access.open(path) as file:
        for _, block in FilePart(access, path, decompressed(path, file), 0, UNKNOWN, UNKNOWN).blocks():
            data += block
            try:
                header = _header_of(data, dialect)
            except UnclosedError:
                continue
            except CsvError as e:
                raise MillstreamError(f"FileSource: {path}: the header is malformed ({e}).") from None
            if header is not None:
                return header
    if data.strip():
        raise MillstreamError(f"FileSource: {path}: a quote is not closed in the header.")
    return None


def _header_of(data: bytes, dialect: CsvDialect) -> Header | None:
    """Return the header of a file that begins with some lines; None if these lines are empty."""
    mark = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    text, end = data[mark:].decode(errors=_ESCAPE), 0
    fields = [""]
    while fields == [""]:
        fields, length = dialect.first_record(text[end:])
        end += length
    if not fields:
        return None
    names = [name.strip() or f"f{i}" for i, name in enumerate(fields)]
    return Header(names, mark + len(text[:end].encode(errors=_ESCAPE)))


def _positions(header: list[str], fields: Sequence[Field], path: str, lenient: bool) -> list[int | None]:
    """Return the position of each column of a table in the records of a file; None for a column it does not have."""
    names = [f.name for f in fields]
    if repeated := sorted({n for n in header if header.count(n) > 1}):
        raise MillstreamError(f"FileSource: the header of {path} has the column {repeated[0]!r} twice; rename one.")
    missing, surplus = [n for n in names if n not in header], [n for n in header if n not in names]
    if (missing or surplus) and not lenient:
        differences = [
            f"{verb} the column{'s' * (len(some) > 1)} {', '.join(map(repr, some))}{relation}"
            for verb, some, relation in (("lacks", missing, ""), ("has", surplus, ", which the table does not have"))
            if some
        ]
        raise MillstreamError(
            f"FileSource: the header of {path} {' and '.join(differences)}; correct the header or the table's columns, "
            "or set 'csv.ignore-parse-errors' = 'true' to read missing columns as null and to ignore others."
        )
    return [header.index(n) if n in header else None for n in names]


class _PartReader:
    """Reads the rows of a part of a file."""

    def __init__(self, csv: CsvFileFormat, fields: Sequence[Field], part: FilePart) -> None:
        self._csv = csv
        self._fields = fields
        self._parsers = csv.parsers(fields)
        self._part = part
        # The number of fields of a record and the position of each column, if the file has a header.
        self._width = len(fields)
        self._positions: list[int | None] | None = None
        # The bytes before the first row.
        self._preamble = 0

    def batches(self) -> Iterator[list[Batch]]:
        part = self._part
        if self._csv.has_header:
            header = read_header(part.access, part.path, self._csv.dialect)
            if header is None:
                return
            self._width, self._preamble = len(header.names), header.length
            self._positions = _positions(header.names, self._fields, part.path, self._csv.lenient)
        rest, offset = yield from read_whole_records(self._blocks(), lambda block, start: [self._read(block, start)])
        if rest:
            yield [self._one_by_one(rest.decode("utf-8", "replace"), offset)]

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of lines with their offsets, without what precedes the first row."""
        for offset, block in self._part.blocks():
            if not offset and not self._preamble and block.startswith(_BYTE_ORDER_MARK):
                self._preamble = len(_BYTE_ORDER_MARK)
            before = max(self._preamble - offset, 0)
            if before < len(block):
                yield offset + before, block[before:]

    def _read(self, block: bytes, offset: int) -> Batch:
        """Return the rows of a block; raise UnclosedError if the last record continues after it."""
        text = block.decode("utf-8", "replace")
        try:
            records = [r for r in self._csv.dialect.records(text) if r != [""]]
            return self._csv.batch([self._row(r) for r in records], self._fields)
        except UnclosedError:
            raise
        except CsvError:
            return self._one_by_one(text, offset)

    def _row(self, record: list[str]) -> list[Value]:
        if self._positions is None:
            return self._csv.row(record, self._fields, self._parsers)
        n_missing = self._width - len(record)
        if n_missing < 0 or (n_missing and not self._csv.lenient):
            raise CsvError(f"it has {len(record)} fields, but the header has {self._width}")
        padded = [*record, *[None] * n_missing]
        aligned = [None if p is None else padded[p] for p in self._positions]
        return self._csv.row(aligned, self._fields, self._parsers)

    def _one_by_one(self, text: str, offset: int) -> Batch:
        """Return the rows of a text with a malformed record: skip it in lenient mode, else raise an error."""
        csv = self._csv
        rows, start, record = [], 0, [""]
        is_first = offset <= self._preamble
        try:
            for start, record in csv.dialect.exactly(text, _skip if csv.lenient else None):  # noqa: B007
                try:
                    rows += [self._row(record)] if record != [""] else []
                except CsvError:
                    if not csv.lenient:
                        raise
        except CsvError as e:
            position = offset + len(text[: max(start, e.position)].encode())
            raise self._part.damaged(position, str(e), csv.row_advice(e, is_first and not rows)) from None
        return csv.batch(rows, self._fields)


def _skip(position: int, error: CsvError) -> None:
    """Skip a malformed record."""
