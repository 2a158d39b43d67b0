"""The format `json`: an object for each row."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import pyarrow as pa

from millstream.common.aliases import Json, Value
from millstream.common.types import Row
from millstream.formats.base import Decoded, Malformed, MessageFormat, inference_advice, inferred_columns
from millstream.formats.column_text import Decimals, exact_double, plain_texts, strict_parser
from millstream.formats.options import Options
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_Read = Callable[[Json], Value]
_MISSING = object()
# No integral type has more digits.
_MAX_DIGITS = 20
_NULL_KEYS = ("LITERAL", "FAIL", "DROP")


class JsonFormat(MessageFormat):
    """Rows as JSON objects."""

    identifier = "json"
    optional = frozenset(
        [
            "fail-on-missing-field",
            "ignore-parse-errors",
            "timestamp-format.standard",
            "map-null-key.mode",
            "map-null-key.literal",
            "encode.decimal-as-plain-number",
            "encode.ignore-null-fields",
            "decode.json-parser.enabled",
        ]
    )

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._lenient = options.flag("ignore-parse-errors", False)
        self._strict = options.flag("fail-on-missing-field", False)
        self._standard = options.text("timestamp-format.standard", "SQL")
        self._omits_nulls = options.flag("encode.ignore-null-fields", False)
        plain = options.flag("encode.decimal-as-plain-number", False)
        self._decimals = Decimals.ALL_DIGITS if plain else Decimals.SHORTEST
        # The option selects Flink's parser; the rows are the same.
        options.flag("decode.json-parser.enabled", True)
        # The mode has no effect: MAP values reject null keys when they are created.
        null_keys = options.text("map-null-key.mode", "FAIL")
        if null_keys.upper() not in _NULL_KEYS:
            raise ValidationException(
                f"Unsupported value '{null_keys}' for option map-null-key.mode. Supported values are "
                f"[{', '.join(_NULL_KEYS)}]."
            )
        if self._lenient and self._strict:
            raise ValidationException("fail-on-missing-field and ignore-parse-errors shouldn't both be true.")
        if self._standard not in ("SQL", "ISO-8601"):
            raise ValidationException(
                f"Unsupported value '{self._standard}' for timestamp-format.standard. Supported values are "
                "[SQL, ISO-8601]."
            )

    # --- reading

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        objects, indices, is_one_each = self.documents(messages)
        batch = Batch(self.columns(objects, fields, indices), None, len(objects))
        return Decoded(batch, None if is_one_each else indices)

    def documents(self, messages: Sequence[bytes | None]) -> tuple[list[dict[str, Json]], list[int], bool]:
        """Return the objects of messages, the index of each one's message, and whether each message has one object."""
        objects: list[dict[str, Json]] = []
        indices: list[int] = []
        is_one_each = True
        for index, message in enumerate(messages):
            document = self._loaded(message, index) if message and message.strip() else None
            if type(document) is dict:
                objects.append(document)
                indices.append(index)
            else:
                is_one_each = False
                rows = self._row_objects(document, message, index) if message and message.strip() else []
                objects.extend(rows)
                indices.extend([index] * len(rows))
        return objects, indices, is_one_each

    def _row_objects(self, document: Json, message: bytes, index: int) -> list[dict[str, Json]]:
        """Return the objects of a message that is an array of rows; in lenient mode without other elements."""
        rows = document if isinstance(document, list) else [document]
        if self._lenient:
            return [row for row in rows if isinstance(row, dict)]
        return [self._as_object(row, message, index) for row in rows]

    def read(self, message: bytes, index: int) -> dict[str, Json] | None:
        """Return the object of a message; None for a malformed message in lenient mode."""
        document = self._loaded(message, index)
        if self._lenient and not isinstance(document, dict):
            return None
        return self._as_object(document, message, index)

    def _loaded(self, message: bytes, index: int) -> Json:
        """Return the document of a message; None for a malformed message in lenient mode."""
        try:
            return json.loads(message, parse_float=_number, parse_constant=_no_constant, strict=False)
        except ValueError as e:
            if self._lenient:
                return None
            raise Malformed(index, f"{_shown(message)} is not a JSON object ({e})") from None

    def _as_object(self, value: Json, message: bytes, index: int) -> dict[str, Json]:
        if not isinstance(value, dict):
            raise Malformed(index, f"{_shown(message)} is not a JSON object")
        return value

    def columns(
        self, objects: Sequence[dict[str, Json]], fields: Sequence[Field], indices: Sequence[int]
    ) -> list[pa.Array]:
        """Return the fields of objects as columns; `indices` are those of their messages."""
        return [to_column(self._values(objects, f, indices), f.type, self.zone) for f in fields]

    def _values(self, objects: Sequence[dict[str, Json]], field: Field, indices: Sequence[int]) -> list[Value]:
        read, name = self._column_reader(field), field.name
        values = []
        for index, document in zip(indices, objects, strict=True):
            value = document.get(name, _MISSING)
            if value is _MISSING:
                if self._strict:
                    raise Malformed(index, f"{_shown(document)} has no field '{name}'")
                value = None
            try:
                values.append(None if value is None else read(value))
            except (ValueError, TypeError, AttributeError) as e:
                if not self._lenient:
                    raise Unfitting(
                        index, f"field '{name}' of {_shown(document)} is not of type {field.type} ({e})", name
                    ) from None
                values.append(None)
        return values

    def _column_reader(self, field: Field) -> _Read:
        return self.reader(field.type)

    def reader(self, kind: t.DataType) -> _Read:
        """Return the function that converts a JSON value to a value of a type."""
        if isinstance(kind, t.ArrayType):
            inner = self._member_reader(kind.element_type)
            return lambda value: [inner(v) for v in _list(value)]
        if isinstance(kind, (t.MapType, t.MultisetType)):
            of_value = self._member_reader(kind.value_type if isinstance(kind, t.MapType) else t.DataTypes.INT())
            of_key = self.reader(kind.key_type if isinstance(kind, t.MapType) else kind.element_type)
            return lambda value: {of_key(k): of_value(v) for k, v in _dict(value).items()}
        if isinstance(kind, t.RowType):
            members = [(f.name, self._member_reader(f.data_type)) for f in kind.fields]
            names = tuple(kind.names)
            return lambda value: Row.of(names, [read(_dict(value).get(n)) for n, read in members])
        return self._plain(kind)

    def _member_reader(self, kind: t.DataType) -> _Read:
        """Return the reader of members of a collection or row; in lenient mode malformed members are null."""
        read = self.reader(kind)
        if not self._lenient:
            return lambda value: None if value is None else read(value)

        def lenient(value: Json) -> Value:
            try:
                return None if value is None else read(value)
            except (ValueError, TypeError):
                return None

        return lenient

    def _plain(self, kind: t.DataType) -> _Read:
        parse = strict_parser(kind, self._standard, in_csv=False)
        if isinstance(kind, (t.CharType, t.VarCharType)):
            return lambda value: value if isinstance(value, str) else _compact(value)
        if isinstance(kind, t.BooleanType):
            return lambda value: value if isinstance(value, bool) else parse(str(value))
        if isinstance(kind, t.IntegralType):
            return lambda value: parse(_whole_part(value) if isinstance(value, _Number) else str(value))
        return lambda value: parse(_compact(value) if not isinstance(value, str) else value)

    # --- writing

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        return [text.encode() for text in self.objects(batch, fields)]

    def objects(self, batch: Batch, fields: Sequence[Field]) -> list[str]:
        """Return each row as a JSON object."""
        names = [json.dumps(f.name, ensure_ascii=False) for f in fields]
        columns = [self.texts(c, f.type) for c, f in zip(batch.columns, fields, strict=True)]
        if self._omits_nulls:
            return self._rows(names, columns)
        template = "{{" + ",".join(f"{n.replace('{', '{{').replace('}', '}}')}:{{}}" for n in names) + "}}"
        return [template.format(*row) for row in zip(*columns, strict=True)]

    def _rows(self, names: list[str], columns: list[list[str]]) -> list[str]:
        rows = zip(*columns, strict=True)
        if self._omits_nulls:
            return [_object((n, v) for n, v in zip(names, row, strict=True) if v != "null") for row in rows]
        return [_object(zip(names, row, strict=True)) for row in rows]

    def texts(self, column: pa.Array, kind: t.DataType) -> list[str]:
        """Return the values of a column as JSON."""
        plain = plain_texts(column, kind, self._standard, self._decimals)
        if plain is not None:
            bare = isinstance(kind, (t.NumericType, t.BooleanType))
            return ["null" if v is None else v if bare else json.dumps(v, ensure_ascii=False) for v in plain]
        if isinstance(kind, t.ArrayType):
            inner = self.texts(column.flatten(), kind.element_type)
            return _grouped(column, inner, lambda parts: f"[{','.join(parts)}]")
        if isinstance(kind, (t.MapType, t.MultisetType)):
            return self._map_texts(column, kind)
        if isinstance(kind, t.RowType):
            members = [self.texts(column.field(i), f.data_type) for i, f in enumerate(kind.fields)]
            names = [json.dumps(n, ensure_ascii=False) for n in kind.names]
            rows = self._rows(names, members)
            return [r if valid else "null" for r, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
        raise ValidationException(f"The format 'json' does not support the type {kind}.")

    def _map_texts(self, column: pa.Array, kind: t.MapType | t.MultisetType) -> list[str]:
        key_type = kind.key_type if isinstance(kind, t.MapType) else kind.element_type
        value_type = kind.value_type if isinstance(kind, t.MapType) else t.DataTypes.INT()
        if not isinstance(key_type, (t.CharType, t.VarCharType)):
            raise ValidationException(f"JSON format doesn't support non-string as key type of map. The type is: {kind}")
        keys = [json.dumps(k, ensure_ascii=False) for k in column.keys.to_pylist()]
        pairs = [f"{k}:{v}" for k, v in zip(keys, self.texts(column.items, value_type), strict=True)]
        offsets = column.offsets.to_pylist()
        # A null map may have entries, so the offsets of each row count.
        return [
            f"{{{','.join(pairs[start:end])}}}" if valid else "null"
            for start, end, valid in zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)
        ]


class JsonFileFormat(JsonFormat):
    """Files of JSON objects, one per line."""

    optional = JsonFormat.optional | {"inferred-columns"}

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        # The columns whose types were inferred from the first rows; None for a declared table.
        self._inferred = inferred_columns(options)

    def columns(
        self, objects: Sequence[dict[str, Json]], fields: Sequence[Field], indices: Sequence[int]
    ) -> list[pa.Array]:
        if self._inferred is not None and not self._lenient:
            names = {f.name for f in fields}
            for index, document in zip(indices, objects, strict=True):
                if not document.keys() <= names:
                    unknown = next(n for n in document if n not in names)
                    raise Unfitting(index, f"{_shown(document)} has the field '{unknown}', but the first rows do not")
        return super().columns(objects, fields, indices)

    def _column_reader(self, field: Field) -> _Read:
        is_inferred = self._inferred is not None and field.name in self._inferred
        return exact_reader(field.type) if is_inferred else super()._column_reader(field)

    def advice(self, error: Malformed) -> str:
        if self._inferred is None:
            return super().advice(error)
        if not isinstance(error, Unfitting):
            return "Correct the line: it must be a JSON object."
        return inference_advice(error.column)


class Unfitting(Malformed):
    """A value that is not of its column's type, or a field without a column.

    Attributes:
        column: the column, None if there is none.
    """

    def __init__(self, index: int, reason: str, column: str | None = None) -> None:
        super().__init__(index, reason)
        self.column = column


def exact_reader(kind: t.DataType) -> _Read:
    """Return the function that converts a JSON value to a value of an inferred type, or raises ValueError.

    It accepts only values that the type represents, and no fields that a ROW does not have.
    """
    if isinstance(kind, t.ArrayType):
        inner = exact_reader(kind.element_type)
        return lambda value: [None if v is None else inner(v) for v in _list(value)]
    if isinstance(kind, t.RowType):
        members = {f.name: exact_reader(f.data_type) for f in kind.fields}
        names = tuple(kind.names)

        def read_row(value: Json) -> Row:
            document = _dict(value)
            if not document.keys() <= members.keys():
                unknown = next(n for n in document if n not in members)
                raise ValueError(f"the first rows do not have '{unknown}' in it")
            values = ((read, document.get(n)) for n, read in members.items())
            return Row.of(names, [None if v is None else read(v) for read, v in values])

        return read_row
    return _EXACT_READERS.get(type(kind), _compact)


def _exact_boolean(value: Json) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _exact_integer(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is not a whole number")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} is too large")
    return value


def _exact_double(value: Json) -> float:
    if not isinstance(value, (int, _Number)) or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is not a number")
    return exact_double(str(value))


_EXACT_READERS: dict[type[t.DataType], _Read] = {
    t.BooleanType: _exact_boolean,
    t.BigIntType: _exact_integer,
    t.DoubleType: _exact_double,
}


class _Number(str):
    """The text of a number with a decimal point or an exponent."""


def _number(text: str) -> _Number:
    return _Number(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _whole_part(number: _Number) -> str:
    """Return a number without its fraction."""
    decimal_value = decimal.Decimal(number)
    if decimal_value.adjusted() > _MAX_DIGITS:
        raise ValueError(f"{number} is too large")
    return str(int(decimal_value))


def _compact(value: Json) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else _member(value)


def _member(value: Json) -> str:
    """Return a value as JSON; numbers keep their digits."""
    if isinstance(value, dict):
        return _object((json.dumps(k, ensure_ascii=False), _member(v)) for k, v in value.items())
    if isinstance(value, list):
        return f"[{','.join(map(_member, value))}]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise ValueError(f"{_shown(value)} is not an array")
    return value


def _dict(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is not an object")
    return value


def _object(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}"


def _grouped(lists: pa.Array, elements: list[str], write: Callable[[list[str]], str]) -> list[str]:
    texts, offset = [], 0
    for size in lists.value_lengths().to_pylist():
        if size is None:
            texts.append("null")
            continue
        texts.append(write(elements[offset : offset + size]))
        offset += size
    return texts


def _shown(value: bytes | Json) -> str:
    text = value.decode(errors="replace").strip() if isinstance(value, bytes) else _compact(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
