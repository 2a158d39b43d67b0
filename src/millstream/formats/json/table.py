"""The format `json`: an object for each row."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millstream.common.types import Row
from millstream.formats.base import Decoded, Malformed, MessageFormat
from millstream.formats.options import Options
from millstream.formats.strict_texts import strict_parser
from millstream.formats.texts import Decimals, plain_texts
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_Read = Callable[[Any], Any]
MISSING = object()
# No integral type has more.
_MOST_DIGITS = 20
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
        self._leaves_out = options.flag("encode.ignore-null-fields", False)
        plain = options.flag("encode.decimal-as-plain-number", False)
        self._decimals = Decimals.ALL_DIGITS if plain else Decimals.SHORTEST
        # It says how Flink parses, not what comes of it.
        options.flag("decode.json-parser.enabled", True)
        # Whatever it is: a MAP whose key is null is refused where it is made.
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
        objects: list[dict[str, Any]] = []
        places: list[int] = []
        is_one_each = True
        for place, message in enumerate(messages):
            found = self._loaded(message, place) if message and message.strip() else None
            if type(found) is dict:
                objects.append(found)
                places.append(place)
            else:
                is_one_each = False
                several = self._several(found, message, place) if message and message.strip() else []
                objects.extend(several)
                places.extend([place] * len(several))
        batch = Batch(self.columns(objects, fields, places), None, len(objects))
        return Decoded(batch, None if is_one_each else places)

    def _several(self, found: Any, message: bytes, place: int) -> list[dict[str, Any]]:
        """Return the objects of a message that is an array of them, each a row, without those that are left out."""
        each = found if isinstance(found, list) else [found]
        if self._lenient:
            return [one for one in each if isinstance(one, dict)]
        return [self._as_object(one, message, place) for one in each]

    def read(self, message: bytes, place: int) -> dict[str, Any] | None:
        """Return the object of a message; None for one that is left out."""
        found = self._loaded(message, place)
        if self._lenient and not isinstance(found, dict):
            return None
        return self._as_object(found, message, place)

    def _loaded(self, message: bytes, place: int) -> Any:
        """Return what a message says; None for one that is left out."""
        try:
            return json.loads(message, parse_float=_number, parse_constant=_no_constant, strict=False)
        except ValueError as e:
            if self._lenient:
                return None
            raise Malformed(place, f"{_shown(message)} is no JSON object ({e})") from None

    def _as_object(self, found: Any, message: bytes, place: int) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise Malformed(place, f"{_shown(message)} is no JSON object (it is no object)")
        return found

    def columns(
        self, objects: Sequence[dict[str, Any]], fields: Sequence[Field], places: Sequence[int]
    ) -> list[pa.Array]:
        """Return the fields of objects as columns; `places` are those of their messages."""
        return [to_column(self._values(objects, f, places), f.type, self.zone) for f in fields]

    def _values(self, objects: Sequence[dict[str, Any]], field: Field, places: Sequence[int]) -> list[Any]:
        read, name = self.reader(field.type), field.name
        values = []
        for place, found in zip(places, objects, strict=True):
            value = found.get(name, MISSING)
            if value is MISSING:
                if self._strict:
                    raise Malformed(place, f"{_shown(found)} has no field '{name}'")
                value = None
            try:
                values.append(None if value is None else read(value))
            except (ValueError, TypeError, AttributeError) as e:
                if not self._lenient:
                    raise Malformed(
                        place, f"field '{name}' of {_shown(found)} is not of type {field.type} ({e})"
                    ) from None
                values.append(None)
        return values

    def reader(self, kind: t.DataType) -> _Read:
        """Return what makes of a JSON value one of a type."""
        if isinstance(kind, t.ArrayType):
            inner = self._part(kind.element_type)
            return lambda value: [inner(v) for v in _list(value)]
        if isinstance(kind, (t.MapType, t.MultisetType)):
            of_value = self._part(kind.value_type if isinstance(kind, t.MapType) else t.DataTypes.INT())
            of_key = self.reader(kind.key_type if isinstance(kind, t.MapType) else kind.element_type)
            return lambda value: {of_key(k): of_value(v) for k, v in _dict(value).items()}
        if isinstance(kind, t.RowType):
            members = [(f.name, self._part(f.data_type)) for f in kind.fields]
            names = tuple(kind.names)
            return lambda value: Row.of(names, [read(_dict(value).get(n)) for n, read in members])
        return self._plain(kind)

    def _part(self, kind: t.DataType) -> _Read:
        """Return what reads a value in another: null where it is wrong and that is to be ignored."""
        read = self.reader(kind)
        if not self._lenient:
            return lambda value: None if value is None else read(value)

        def lenient(value: Any) -> Any:
            try:
                return None if value is None else read(value)
            except (ValueError, TypeError):
                return None

        return lenient

    def _plain(self, kind: t.DataType) -> _Read:
        parse = strict_parser(kind, self._standard, self.zone, in_csv=False)
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
        if self._leaves_out:
            return self._rows(names, columns)
        template = "{{" + ",".join(f"{n.replace('{', '{{').replace('}', '}}')}:{{}}" for n in names) + "}}"
        return [template.format(*row) for row in zip(*columns, strict=True)]

    def _rows(self, names: list[str], columns: list[list[str]]) -> list[str]:
        rows = zip(*columns, strict=True)
        if self._leaves_out:
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

    def _map_texts(self, column: pa.Array, kind: Any) -> list[str]:
        key_type = kind.key_type if isinstance(kind, t.MapType) else kind.element_type
        value_type = kind.value_type if isinstance(kind, t.MapType) else t.DataTypes.INT()
        if not isinstance(key_type, (t.CharType, t.VarCharType)):
            raise ValidationException(f"JSON format doesn't support non-string as key type of map. The type is: {kind}")
        keys = [json.dumps(k, ensure_ascii=False) for k in column.keys.to_pylist()]
        pairs = [f"{k}:{v}" for k, v in zip(keys, self.texts(column.items, value_type), strict=True)]
        offsets = column.offsets.to_pylist()
        # By their places: a null may have entries, which are none of the next row.
        return [
            f"{{{','.join(pairs[start:end])}}}" if valid else "null"
            for start, end, valid in zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)
        ]


class _Number(str):
    """A number with a point or an exponent, as it is written."""


def _number(text: str) -> _Number:
    return _Number(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _whole_part(number: _Number) -> str:
    """Return a number without what stands behind its point."""
    found = decimal.Decimal(number)
    if found.adjusted() > _MOST_DIGITS:
        raise ValueError(f"{number} is too large")
    return str(int(found))


def _compact(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_shown(value)} is no array")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is no object")
    return value


def _object(pairs: Any) -> str:
    return "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}"


def _grouped(column: pa.Array, parts: list[str], write: Callable[[list[str]], str]) -> list[str]:
    found, at = [], 0
    for size in column.value_lengths().to_pylist():
        if size is None:
            found.append("null")
            continue
        found.append(write(parts[at : at + size]))
        at += size
    return found


def _shown(value: Any) -> str:
    text = value.decode(errors="replace").strip() if isinstance(value, bytes) else _compact(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
