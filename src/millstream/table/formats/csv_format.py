"""The format `csv`: fields with commas between them, a line for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millstream.common.types import Row
from millstream.datastream.formats.csv_dialect import CsvDialect, CsvError
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.values import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.table.connectors.options import Options
from millstream.table.formats.contract import Malformed, MessageFormat
from millstream.table.formats.texts import parser, plain_texts

_Parse = Callable[[str], Any]


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

    # --- reading

    def decoded(self, messages: Sequence[bytes], fields: Sequence[Field]) -> Batch:
        parsers = [self._parser(f.type) for f in fields]
        rows: list[list[Any]] = []
        for place, message in enumerate(messages):
            if not message.strip(b"\r\n"):
                continue
            row = self._row(message, place, fields, parsers)
            if row is not None:
                rows.append(row)
        columns = zip(*rows, strict=True) if rows else [()] * len(fields)
        arrays = [to_column(list(c), f.type, self.zone) for c, f in zip(columns, fields, strict=True)]
        return Batch(arrays, None, len(rows))

    def _row(self, message: bytes, place: int, fields: Sequence[Field], parsers: Sequence[_Parse]) -> list[Any] | None:
        text = message.decode("utf-8", "replace").rstrip("\r\n")
        try:
            records = self._dialect.records(text)
            if not records:
                return None
            found = records[0]
            if len(found) != len(fields):
                raise CsvError(f"it has {len(found)} fields, and the table {len(fields)} columns")
        except CsvError as e:
            if self._lenient:
                return None
            raise Malformed(place, f"{text!r} is no row ({e})") from None
        return [self._value(v, place, f, p) for v, f, p in zip(found, fields, parsers, strict=True)]

    def _value(self, text: str, place: int, field: Field, parse: _Parse) -> Any:
        if self._null is not None and text == self._null:
            return None
        if not text and not isinstance(field.type, (t.CharType, t.VarCharType)):
            return None
        try:
            return parse(text)
        except ValueError as e:
            if self._lenient:
                return None
            raise Malformed(place, f"{text!r} in column '{field.name}' is not of type {field.type} ({e})") from None

    def _parser(self, kind: t.DataType) -> _Parse:
        if isinstance(kind, t.ArrayType):
            inner, between = self._parser(kind.element_type), self._elements
            return lambda text: [inner(part) for part in text.split(between)] if text else []
        if isinstance(kind, t.RowType):
            members = [self._parser(f) for f in kind.field_types()]
            names, between = tuple(kind.names), self._elements

            def parse(text: str) -> Row:
                parts = text.split(between)
                if len(parts) != len(members):
                    raise ValueError(f"{len(parts)} parts where {len(members)} are expected")
                return Row.of(names, [p(v) for p, v in zip(members, parts, strict=True)])

            return parse
        try:
            return parser(kind, "SQL", self.zone)
        except ValueError:
            raise ValidationException(f"The format 'csv' does not support the type {kind}.") from None

    # --- writing

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        columns = [self._texts(c, f.type) for c, f in zip(batch.columns, fields, strict=True)]
        line = self._dialect.line
        return [line(row).encode() for row in zip(*columns, strict=True)]

    def _texts(self, column: pa.Array, kind: t.DataType) -> list[str]:
        null, written = self._null or "", self._dialect.written
        plain = plain_texts(column, kind, "SQL")
        if plain is not None:
            quoted = not isinstance(kind, (t.NumericType, t.BooleanType))
            return [null if v is None else written(v) if quoted else v for v in plain]
        if isinstance(kind, (t.ArrayType, t.RowType)):
            values = to_python(column, kind, self.zone)
            inner = [kind.element_type] if isinstance(kind, t.ArrayType) else kind.field_types()
            return [null if v is None else written(self._joined(list(v), inner)) for v in values]
        raise ValidationException(f"The format 'csv' does not support the type {kind}.")

    def _joined(self, values: list[Any], kinds: list[t.DataType]) -> str:
        each = kinds * len(values) if len(kinds) == 1 else kinds
        texts = [plain_texts(to_column([v], k, self.zone), k, "SQL") for v, k in zip(values, each, strict=True)]
        return self._elements.join((found or [None])[0] or (self._null or "") for found in texts)
