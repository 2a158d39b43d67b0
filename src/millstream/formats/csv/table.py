"""The format `csv`: a record of comma-separated fields for each row; quoted fields may contain newlines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.types import Row
from millstream.formats.base import FIX, Decoded, Malformed, MessageFormat
from millstream.formats.column_text import Decimals, plain_texts, strict_parser
from millstream.formats.csv.dialect import (
    CsvDialect,
    CsvError,
    UnclosedError,
    can_find_record_ends,
    read_whole_records,
    record_end_near,
)
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FileFormat, FilePart, StreamFormat
from millstream.formats.options import Options
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_Parse = Callable[[str], Value]


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
        delimiter = options.text("field-delimiter", ",").encode().decode("unicode_escape")
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

    def file_reader(self, fields: Sequence[Field]) -> FileFormat:
        return _CsvFiles(self, fields)

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
        return [self._parser(f.type) for f in fields]

    def row(self, record: list[str], fields: Sequence[Field], parsers: Sequence[_Parse]) -> list[Value]:
        """Return the values of a record; raise CsvError if a field is missing, surplus or malformed."""
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

    def _value(self, text: str, field: Field, parse: _Parse) -> Value:
        if self._null is not None and text == self._null:
            return None
        if not text and not isinstance(field.type, (t.CharType, t.VarCharType, t.ArrayType)):
            return None
        try:
            return parse(text)
        except ValueError as e:
            if self._lenient:
                return None
            raise CsvError(f"{text!r} in column '{field.name}' is not of type {field.type}: {e}") from None

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


class _CsvFiles(StreamFormat):
    """CSV files; quoted fields may contain newlines, so one subtask reads a file."""

    def __init__(self, csv: CsvFormat, fields: Sequence[Field]) -> None:
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
        rest, offset = yield from read_whole_records(
            part.blocks(), lambda block, start: [self._read(part, block, start)]
        )
        if rest:
            yield [self._one_by_one(part, rest.decode("utf-8", "replace"), offset)]

    def _read(self, part: FilePart, block: bytes, offset: int) -> Batch:
        """Return the rows of a block; raise UnclosedError if the last record continues after it."""
        csv, parsers = self._csv, self._csv.parsers(self._fields)
        text = block.decode("utf-8", "replace")
        try:
            records = [r for r in csv.dialect.records(text) if r != [""]]
            return csv.batch([csv.row(r, self._fields, parsers) for r in records], self._fields)
        except UnclosedError:
            raise
        except CsvError:
            return self._one_by_one(part, text, offset)

    def _one_by_one(self, part: FilePart, text: str, offset: int) -> Batch:
        """Return the rows of a text with a malformed record: skip it in lenient mode, else raise an error."""
        csv, parsers = self._csv, self._csv.parsers(self._fields)
        rows, start = [], 0
        try:
            for start, record in csv.dialect.exactly(text, _skip if csv.lenient else None):  # noqa: B007
                try:
                    rows += [csv.row(record, self._fields, parsers)] if record != [""] else []
                except CsvError:
                    if not csv.lenient:
                        raise
        except CsvError as e:
            position = offset + len(text[: max(start, e.position)].encode())
            raise part.damaged(position, str(e), FIX.format(csv.identifier)) from None
        return csv.batch(rows, self._fields)


def _skip(position: int, error: CsvError) -> None:
    """Skip a malformed record."""
