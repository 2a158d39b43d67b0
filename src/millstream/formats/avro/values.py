"""Coerces values to Avro schemas, and names the field that does not match.

fastavro writes a float for an int and drops fields that the schema does not have; here both are errors.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from numbers import Integral, Real
from uuid import UUID

from millstream.common.aliases import Json, Value
from millstream.common.coercion import Converter
from millstream.common.errors import TypeMismatchError
from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row, field_names
from millstream.formats.avro.schema import (
    AvroSchema,
    check_record_schema,
    is_nullable,
    kind_of,
    logical_type_of,
    members_of,
    name_of,
)
from millstream.operators.diagnostics.failures import shorten

__all__ = ["PLAIN", "TAGGED", "AvroMismatch", "GenericRecordAvroTypeInfo", "Representation", "coercer"]

ToPython = Callable[[Value], Value]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Microseconds per unit of a logical type.
_UNITS = {"millis": 1000, "micros": 1}
_TIMES = ("time", "timestamp", "local-timestamp")


def logical_reader_of(schema: Json, naive_is_utc: bool) -> ToPython | None:
    """Return the function that creates the value of a logical type, or raises ValueError; None for other types.

    It accepts Python's value, and the plain number or bytes that Avro stores for it.

    Args:
        schema: the schema.
        naive_is_utc: whether a timestamp without a time zone is in UTC; else it is in the local time zone.
    """
    kind, logical = kind_of(schema), logical_type_of(schema) or ""
    base, _, unit = logical.rpartition("-")
    if kind == "int" and logical == "date":
        return _date
    if kind in ("bytes", "fixed") and logical == "decimal":
        return _decimals(schema["precision"], schema.get("scale", 0))
    if kind == "string" and logical == "uuid":
        return lambda value: value if isinstance(value, UUID) else UUID(value)
    # A time of day in milliseconds is an int, all other times are longs; otherwise Avro ignores the logical type.
    if base not in _TIMES or unit not in _UNITS or kind != ("int" if logical == "time-millis" else "long"):
        return None
    if base == "time":
        return _times(_UNITS[unit])
    return _timestamps(_UNITS[unit], naive_is_utc) if base == "timestamp" else _local_timestamps(_UNITS[unit])


def _date(value: Value) -> datetime.date:
    if isinstance(value, datetime.datetime):
        raise ValueError(value)
    return value if isinstance(value, datetime.date) else (_EPOCH + datetime.timedelta(days=_number(value))).date()


def _times(unit: int) -> ToPython:
    def read(value: Value) -> datetime.time:
        if not isinstance(value, datetime.time):
            moment = _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
            if moment.date() != _EPOCH.date():
                raise ValueError(value)
            return moment.time()
        return value.replace(microsecond=_truncate(value.microsecond, unit), tzinfo=None)

    return read


def _timestamps(unit: int, naive_is_utc: bool) -> ToPython:
    def read(value: Value) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            return _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
        if value.tzinfo is None and naive_is_utc:
            value = value.replace(tzinfo=datetime.UTC)
        moment: datetime.datetime = value.astimezone(datetime.UTC)
        return moment.replace(microsecond=_truncate(moment.microsecond, unit))

    return read


def _local_timestamps(unit: int) -> ToPython:
    def read(value: Value) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            value = _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
        local: datetime.datetime = value.replace(tzinfo=None, microsecond=_truncate(value.microsecond, unit))
        return local

    return read


def _decimals(precision: int, scale: int) -> ToPython:
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    one = Decimal(1).scaleb(-scale)

    def read(value: Value) -> Decimal:
        if isinstance(value, (bytes, bytearray)):
            value = Decimal(int.from_bytes(value, signed=True)).scaleb(-scale, context)
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise ValueError(value)
        try:
            rounded = Decimal(value).quantize(one, context=context)
        except (Inexact, InvalidOperation):
            raise ValueError(value) from None
        if not rounded.is_finite():
            raise ValueError(value)
        return rounded

    return read


def _number(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _truncate(microseconds: int, unit: int) -> int:
    """Truncate microseconds to the unit of the file, as Flink does."""
    return microseconds - microseconds % unit


Coerce = Callable[[Value], Value]

_LIMITS = {"int": 1 << 31, "long": 1 << 63}
# The smallest number that does not round to a 32-bit float: half a step above the largest float.
_FLOAT_LIMIT = 2.0**128 - 2.0**103
_MISSING = object()


class AvroMismatch(ValueError):
    """A value that does not match its schema."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._path = ""

    def within(self, location: str) -> AvroMismatch:
        """Prefix the path of the value with an enclosing field or element."""
        dot = "." if self._path and not self._path.startswith("[") else ""
        self._path = f"{location}{dot}{self._path}"
        return self

    def __str__(self) -> str:
        return f"field {self._path!r} {self._problem}" if self._path else f"the value {self._problem}"


@dataclass(frozen=True)
class Representation:
    """How coerced values are represented.

    Attributes:
        union: returns the value of a union of several types from the name of its type, its index (null is not
            counted) and the value.
        entries: returns a map from a dict.
        uuid: returns a value from a UUID.
    """

    union: Callable[[str, int, Value], Value]
    entries: Coerce
    uuid: Coerce


# The representation for user code.
PLAIN = Representation(lambda name, index, value: value, lambda entries: entries, lambda uuid: uuid)
# The representation for fastavro; it names the type of a union's value, so fastavro need not guess it.
TAGGED = Representation(lambda name, index, value: (name, value), lambda entries: entries, str)


def coercer(schema: AvroSchema, representation: Representation = PLAIN, naive_is_utc: bool = False) -> Coerce:
    """Return the function that coerces a value to a schema, or raises AvroMismatch.

    Args:
        schema: the schema.
        representation: how values are represented.
        naive_is_utc: whether a timestamp without a time zone is in UTC; else it is in the local time zone.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> coercer(schema)({"x": 1.5})
        Traceback (most recent call last):
        millstream.formats.avro.values.AvroMismatch: field 'x' is 1.5, which is not of the type int
    """
    return _Coercers(schema.names, representation, naive_is_utc).of(schema.parsed)


class _Coercers:
    """Creates the coercion functions of a schema and its parts."""

    def __init__(self, names: dict[str, Json], representation: Representation, naive_is_utc: bool) -> None:
        self._names = names
        self._representation = representation
        self._naive_is_utc = naive_is_utc
        self._records: dict[str, Coerce] = {}
        # Records may contain records of their own type.
        self._in_progress: set[str] = set()

    def of(self, schema: Json) -> Coerce:
        kind = kind_of(schema)
        if kind in self._names:
            return self._named(kind)
        if isinstance(schema, dict) and not isinstance(schema["type"], str):
            return self.of(schema["type"])
        real = logical_reader_of(schema, self._naive_is_utc)
        if real is not None:
            return self._logical(schema, real)
        if kind in ("record", "error"):
            return self._named(schema["name"])
        if kind in ("array", "map", "union"):
            return {"array": self._array, "map": self._map, "union": self._union}[kind](schema)
        return _simple(schema, kind)

    def _named(self, name: str) -> Coerce:
        schema = self._names[name]
        if kind_of(schema) not in ("record", "error"):
            return self.of(schema)
        records = self._records
        if name in self._in_progress:
            return lambda value: records[name](value)
        if name not in records:
            self._in_progress.add(name)
            records[name] = self._record(schema)
            self._in_progress.remove(name)
        return records[name]

    def _logical(self, schema: Json, real: Coerce) -> Coerce:
        if logical_type_of(schema) == "uuid":
            to_real, to_representation = real, self._representation.uuid
            real = lambda value: to_representation(to_real(value))  # noqa: E731

        def coerce(value: Value) -> Value:
            try:
                return real(value)
            except (ValueError, TypeError, AttributeError, OverflowError):
                raise _mismatch(value, schema) from None

        return coerce

    def _record(self, schema: Json) -> Coerce:
        fields = [(f["name"], self.of(f["type"]), self._default(f)) for f in schema["fields"]]
        names = tuple(name for name, _, _ in fields)

        def coerce(value: Value) -> dict[str, Value]:
            by_name = _by_name(value, names) if isinstance(value, Row) else value
            if not isinstance(by_name, Mapping):
                raise _mismatch(value, schema)
            record = {}
            absent = 0
            for name, fit_field, default in fields:
                field_value = by_name.get(name, _MISSING)
                if field_value is _MISSING:
                    absent += 1
                    field_value = default
                    if field_value is _MISSING:
                        raise AvroMismatch("is missing, and the schema has no default for it").within(name)
                try:
                    record[name] = fit_field(field_value)
                except AvroMismatch as e:
                    raise e.within(name) from None
            if len(by_name) + absent != len(fields):
                unknown = next(key for key in by_name if key not in names)
                raise AvroMismatch(f"is not in the schema, which has {', '.join(names)}").within(str(unknown))
            return record

        return coerce

    def _default(self, field: Json) -> Value:
        if "default" in field:
            return resolved_default(field["type"], field["default"], self._names)
        return None if is_nullable(field["type"]) else _MISSING

    def _array(self, schema: Json) -> Coerce:
        item = self.of(schema["items"])

        def coerce(values: Value) -> list[Value]:
            if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
                raise _mismatch(values, schema)
            values = list(values)
            try:
                return [item(value) for value in values]
            except AvroMismatch:
                raise _first_mismatch(enumerate(values), item) from None

        return coerce

    def _map(self, schema: Json) -> Coerce:
        coerce_value, entries = self.of(schema["values"]), self._representation.entries

        def coerce(value: Value) -> Value:
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise _mismatch(value, schema)
            try:
                return entries({key: coerce_value(v) for key, v in value.items()})
            except AvroMismatch:
                raise _first_mismatch(value.items(), coerce_value) from None

        return coerce

    def _union(self, schema: Json) -> Coerce:
        branches = [(name_of(member), self.of(member)) for member in members_of(schema)]
        nullable = is_nullable(schema)
        if len(branches) == 1:
            return self._optional(branches[0][1]) if nullable else branches[0][1]
        union = self._representation.union

        def coerce(value: Value) -> Value:
            if value is None and nullable:
                return None
            for index, (name, branch) in enumerate(branches):
                try:
                    return union(name, index, branch(value))
                except AvroMismatch:
                    continue
            raise _mismatch(value, schema)

        return coerce

    @staticmethod
    def _optional(coerce: Coerce) -> Coerce:
        return lambda value: None if value is None else coerce(value)


def _simple(schema: Json, kind: str) -> Coerce:
    if kind in _LIMITS:
        return _integers(schema, _LIMITS[kind])
    if kind in ("float", "double"):
        return _floats(schema, kind)
    if kind in ("bytes", "fixed"):
        return _bytes(schema, schema["size"] if kind == "fixed" else None)
    tests: dict[str, Callable[[Value], bool]] = {
        "null": lambda value: value is None,
        "boolean": lambda value: isinstance(value, bool),
        "string": lambda value: isinstance(value, str),
        "enum": lambda value: isinstance(value, str) and value in schema["symbols"],
    }
    is_of_kind = tests[kind]

    def coerce(value: Value) -> Value:
        if not is_of_kind(value):
            raise _mismatch(value, schema)
        return value

    return coerce


def _integers(schema: Json, limit: int) -> Coerce:
    def coerce(value: Value) -> int:
        if value.__class__ is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise _mismatch(value, schema)
        number = int(value)
        if not -limit <= number < limit:
            raise _mismatch(value, schema)
        return number

    return coerce


def _floats(schema: Json, kind: str) -> Coerce:
    def coerce(value: Value) -> float:
        if value.__class__ is not float and (isinstance(value, bool) or not isinstance(value, Real)):
            raise _mismatch(value, schema)
        try:
            number = float(value)
        except OverflowError:
            raise _mismatch(value, schema) from None
        if kind == "float" and _FLOAT_LIMIT <= abs(number) < float("inf"):
            raise _mismatch(value, schema)
        return number

    return coerce


def _bytes(schema: Json, size: int | None) -> Coerce:
    def coerce(value: Value) -> bytes:
        if not isinstance(value, (bytes, bytearray)) or (size is not None and len(value) != size):
            raise _mismatch(value, schema)
        return bytes(value)

    return coerce


def _by_name(row: Row, names: tuple[str, ...]) -> dict[str, Value]:
    """Return a row's fields by name: its own names if they are those of the schema, else by position, as in Flink."""
    own = field_names(row)
    if own is not None and own != names and set(own) == set(names):
        return row.as_dict()
    if len(row) != len(names):
        raise AvroMismatch(f"has {len(row)} fields, but the schema has {len(names)}")
    return dict(zip(names, row, strict=True))


def _first_mismatch(values: Iterable[tuple[object, Value]], coerce: Coerce) -> AvroMismatch:
    for key, value in values:
        try:
            coerce(value)
        except AvroMismatch as e:
            return e.within(f"[{key!r}]")
    raise AssertionError("one of the values does not match")


def _mismatch(value: Value, schema: Json) -> AvroMismatch:
    return AvroMismatch(f"is {shorten(value)}, which is not of the type {described(schema)}")


def described(schema: Json) -> str:
    """Return a type as text for error messages."""
    kind, logical = kind_of(schema), logical_type_of(schema)
    if kind == "union":
        return " or ".join(described(branch) for branch in schema)
    if logical == "decimal":
        return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
    if kind == "fixed":
        return f"{schema['name']}, {schema['size']} bytes"
    if kind == "enum":
        return f"{schema['name']} ({', '.join(schema['symbols'])})"
    return logical or name_of(schema)


def resolved_default(schema: Json, default: Json, names: dict[str, Json]) -> Value:
    """Return the value of a default in a schema; in JSON, bytes are written as text."""
    schema = names.get(kind_of(schema), schema)
    kind = kind_of(schema)
    if kind == "union":
        return resolved_default(schema[0], default, names) if default is not None else None
    if kind in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1")
    if kind == "array":
        return [resolved_default(schema["items"], value, names) for value in default]
    if kind == "map":
        return {key: resolved_default(schema["values"], value, names) for key, value in default.items()}
    if kind in ("record", "error"):
        field_defaults = {f["name"]: default.get(f["name"], f.get("default")) for f in schema["fields"]}
        return {f["name"]: resolved_default(f["type"], field_defaults[f["name"]], names) for f in schema["fields"]}
    return default


def reader_schema(schema: AvroSchema) -> Value:
    """Return a reader schema in fastavro's form, with resolved defaults."""
    parsed = copy.deepcopy(schema.parsed)
    _resolve_defaults(parsed, schema.names)
    _resolve_defaults(list(parsed["__named_schemas"].values()), schema.names)
    return parsed


def _resolve_defaults(schema: Json, names: dict[str, Json]) -> None:
    if isinstance(schema, list):
        for part in schema:
            _resolve_defaults(part, names)
    elif isinstance(schema, dict):
        for field in schema.get("fields", ()):
            if "default" in field:
                field["default"] = resolved_default(field["type"], field["default"], names)
            _resolve_defaults(field["type"], names)
        _resolve_defaults([schema.get(key) for key in ("type", "items", "values")], names)


class GenericRecordAvroTypeInfo(TypeInformation):
    """Describes records of an Avro schema: dicts whose values are plain Python data.

    Dates, times, decimals and UUIDs are Python's own; timestamps are in UTC. PyFlink requires this type before an
    Avro sink; here it is optional, and checks the records that the operator emits.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> GenericRecordAvroTypeInfo(schema)
        GenericRecordAvroTypeInfo<Point>
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = check_record_schema(schema, "GenericRecordAvroTypeInfo")

    def converter(self) -> Converter | None:
        coerce = coercer(self._schema)

        def convert(value: Value) -> Value:
            try:
                return None if value is None else coerce(value)
            except AvroMismatch as e:
                raise TypeMismatchError(f"Avro: {e}; the value was {value!r}") from None

        return convert

    def has_field(self, field: int | str) -> bool:
        return any(field == f["name"] for f in self._schema.parsed["fields"])

    def _identity(self) -> tuple[object, ...]:
        return (self._schema,)

    def __str__(self) -> str:
        return f"GenericRecordAvroTypeInfo<{self._schema.parsed['name']}>"
