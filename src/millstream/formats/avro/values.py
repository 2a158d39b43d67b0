"""Values against Avro's schemas: what fits, what a value becomes, and which field is wrong.

fastavro writes a float for an int and leaves out fields that the schema does not have; here both are errors.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from numbers import Integral, Real
from typing import Any
from uuid import UUID

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

__all__ = ["PLAIN", "TAGGED", "AvroMisfit", "GenericRecordAvroTypeInfo", "Shape", "fitter"]

ToPython = Callable[[Any], Any]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# How many microseconds the number in a file counts.
_UNITS = {"millis": 1000, "micros": 1}
_TIMES = ("time", "timestamp", "local-timestamp")


def logical_reader_of(schema: Any, naive_is_utc: bool) -> ToPython | None:
    """Return the function that makes the value of a logical type, or raises ValueError; None: there is no such type.

    It takes Python's value, and the plain number or bytes that Avro holds for it.

    Args:
        schema: the schema.
        naive_is_utc: whether a timestamp without a time zone is in UTC; else it is in the machine's.
    """
    kind, logical = kind_of(schema), logical_type_of(schema) or ""
    what, _, unit = logical.rpartition("-")
    if kind == "int" and logical == "date":
        return _date
    if kind in ("bytes", "fixed") and logical == "decimal":
        return _decimals(schema["precision"], schema.get("scale", 0))
    if kind == "string" and logical == "uuid":
        return lambda value: value if isinstance(value, UUID) else UUID(value)
    # A time of day in milliseconds is an int, everything else a long; else the logical type does not count.
    if what not in _TIMES or unit not in _UNITS or kind != ("int" if logical == "time-millis" else "long"):
        return None
    if what == "time":
        return _times(_UNITS[unit])
    return _timestamps(_UNITS[unit], naive_is_utc) if what == "timestamp" else _local_timestamps(_UNITS[unit])


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        raise ValueError(value)
    return value if isinstance(value, datetime.date) else (_EPOCH + datetime.timedelta(days=_number(value))).date()


def _times(unit: int) -> ToPython:
    def read(value: Any) -> datetime.time:
        if not isinstance(value, datetime.time):
            moment = _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
            if moment.date() != _EPOCH.date():
                raise ValueError(value)
            return moment.time()
        return value.replace(microsecond=_cut(value.microsecond, unit), tzinfo=None)

    return read


def _timestamps(unit: int, naive_is_utc: bool) -> ToPython:
    def read(value: Any) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            return _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
        if value.tzinfo is None and naive_is_utc:
            value = value.replace(tzinfo=datetime.UTC)
        moment: datetime.datetime = value.astimezone(datetime.UTC)
        return moment.replace(microsecond=_cut(moment.microsecond, unit))

    return read


def _local_timestamps(unit: int) -> ToPython:
    def read(value: Any) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            value = _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
        local: datetime.datetime = value.replace(tzinfo=None, microsecond=_cut(value.microsecond, unit))
        return local

    return read


def _decimals(precision: int, scale: int) -> ToPython:
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    one = Decimal(1).scaleb(-scale)

    def read(value: Any) -> Decimal:
        if isinstance(value, (bytes, bytearray)):
            value = Decimal(int.from_bytes(value, signed=True)).scaleb(-scale, context)
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise ValueError(value)
        try:
            found = Decimal(value).quantize(one, context=context)
        except (Inexact, InvalidOperation):
            raise ValueError(value) from None
        if not found.is_finite():
            raise ValueError(value)
        return found

    return read


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _cut(microseconds: int, unit: int) -> int:
    """Leave off what a file does not hold; Flink does so too."""
    return microseconds - microseconds % unit


Fit = Callable[[Any], Any]

_LIMITS = {"int": 1 << 31, "long": 1 << 63}
# The first number that is too large for 32 bits: half a step above the largest.
_FLOAT_LIMIT = 2.0**128 - 2.0**103
_MISSING = object()


class AvroMisfit(ValueError):
    """A value that does not fit its schema."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._path = ""

    def within(self, place: str) -> AvroMisfit:
        """Say where the value stands, from the inside out."""
        dot = "." if self._path and not self._path.startswith("[") else ""
        self._path = f"{place}{dot}{self._path}"
        return self

    def __str__(self) -> str:
        return f"field {self._path!r} {self._problem}" if self._path else f"the value {self._problem}"


@dataclass(frozen=True)
class Shape:
    """How values that were found to fit are handed on.

    Attributes:
        union: makes the value of a union of several types from the name of its type, its number (null is not counted)
            and the value.
        entries: makes a map of a dict.
        uuid: makes a value of a UUID.
    """

    union: Callable[[str, int, Any], Any]
    entries: Fit
    uuid: Fit


# As user code sees values.
PLAIN = Shape(lambda name, number, value: value, lambda entries: entries, lambda uuid: uuid)
# As fastavro takes them: it need not guess which type of a union is meant.
TAGGED = Shape(lambda name, number, value: (name, value), lambda entries: entries, str)


def fitter(schema: AvroSchema, shape: Shape = PLAIN, naive_is_utc: bool = False) -> Fit:
    """Return the function that makes a value fit a schema, or raises AvroMisfit.

    Args:
        schema: the schema.
        shape: how values are handed on.
        naive_is_utc: whether a timestamp without a time zone is in UTC; else it is in the machine's.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> fitter(schema)({"x": 1.5})
        Traceback (most recent call last):
        millstream.formats.avro.values.AvroMisfit: field 'x' is 1.5, which is not of the type int
    """
    return _Fitters(schema.names, shape, naive_is_utc).of(schema.parsed)


class _Fitters:
    """Makes the functions for a schema and all in it."""

    def __init__(self, names: dict[str, Any], shape: Shape, naive_is_utc: bool) -> None:
        self._names = names
        self._shape = shape
        self._naive_is_utc = naive_is_utc
        self._records: dict[str, Any] = {}

    def of(self, schema: Any) -> Fit:
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
            made: Fit = {"array": self._array, "map": self._map, "union": self._union}[kind](schema)
            return made
        return _simple(schema, kind)

    def _named(self, name: str) -> Fit:
        schema = self._names[name]
        if kind_of(schema) not in ("record", "error"):
            return self.of(schema)
        records = self._records
        if name not in records:
            # Known before it is made: a record may hold records of its own kind.
            records[name] = None
            records[name] = self._record(schema)
        made: Fit = records[name] or (lambda value: records[name](value))
        return made

    def _logical(self, schema: Any, real: Fit) -> Fit:
        if logical_type_of(schema) == "uuid":
            to_real, to_shape = real, self._shape.uuid
            real = lambda value: to_shape(to_real(value))  # noqa: E731

        def fit(value: Any) -> Any:
            try:
                return real(value)
            except (ValueError, TypeError, AttributeError, OverflowError):
                raise _misfit(value, schema) from None

        return fit

    def _record(self, schema: Any) -> Fit:
        fields = [(f["name"], self.of(f["type"]), self._default(f)) for f in schema["fields"]]
        names = tuple(name for name, _, _ in fields)

        def fit(value: Any) -> dict[str, Any]:
            given = _by_name(value, names) if isinstance(value, Row) else value
            if not isinstance(given, Mapping):
                raise _misfit(value, schema)
            made = {}
            absent = 0
            for name, fit_field, default in fields:
                found = given.get(name, _MISSING)
                if found is _MISSING:
                    absent += 1
                    found = default
                    if found is _MISSING:
                        raise AvroMisfit("is missing, and the schema has no default for it").within(name)
                try:
                    made[name] = fit_field(found)
                except AvroMisfit as e:
                    raise e.within(name) from None
            if len(given) + absent != len(fields):
                unknown = next(key for key in given if key not in names)
                raise AvroMisfit(f"is not in the schema, which has {', '.join(names)}").within(str(unknown))
            return made

        return fit

    def _default(self, field: Any) -> Any:
        if "default" in field:
            return real_default(field["type"], field["default"], self._names)
        return None if is_nullable(field["type"]) else _MISSING

    def _array(self, schema: Any) -> Fit:
        item = self.of(schema["items"])

        def fit(values: Any) -> list[Any]:
            if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
                raise _misfit(values, schema)
            values = list(values)
            try:
                return [item(value) for value in values]
            except AvroMisfit:
                raise _first_misfit(enumerate(values), item) from None

        return fit

    def _map(self, schema: Any) -> Fit:
        held, entries = self.of(schema["values"]), self._shape.entries

        def fit(value: Any) -> Any:
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise _misfit(value, schema)
            try:
                return entries({key: held(v) for key, v in value.items()})
            except AvroMisfit:
                raise _first_misfit(value.items(), held) from None

        return fit

    def _union(self, schema: Any) -> Fit:
        branches = [(name_of(member), self.of(member)) for member in members_of(schema)]
        nullable = is_nullable(schema)
        if len(branches) == 1:
            return self._optional(branches[0][1]) if nullable else branches[0][1]
        union = self._shape.union

        def fit(value: Any) -> Any:
            if value is None and nullable:
                return None
            for number, (name, branch) in enumerate(branches):
                try:
                    return union(name, number, branch(value))
                except AvroMisfit:
                    continue
            raise _misfit(value, schema)

        return fit

    @staticmethod
    def _optional(fit: Fit) -> Fit:
        return lambda value: None if value is None else fit(value)


def _simple(schema: Any, kind: str) -> Fit:
    if kind in _LIMITS:
        return _integers(schema, _LIMITS[kind])
    if kind in ("float", "double"):
        return _floats(schema, kind)
    if kind in ("bytes", "fixed"):
        return _bytes(schema, schema["size"] if kind == "fixed" else None)
    tests: dict[str, Callable[[Any], bool]] = {
        "null": lambda value: value is None,
        "boolean": lambda value: isinstance(value, bool),
        "string": lambda value: isinstance(value, str),
        "enum": lambda value: isinstance(value, str) and value in schema["symbols"],
    }
    fits = tests[kind]

    def fit(value: Any) -> Any:
        if not fits(value):
            raise _misfit(value, schema)
        return value

    return fit


def _integers(schema: Any, limit: int) -> Fit:
    def fit(value: Any) -> int:
        if value.__class__ is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise _misfit(value, schema)
        number = int(value)
        if not -limit <= number < limit:
            raise _misfit(value, schema)
        return number

    return fit


def _floats(schema: Any, kind: str) -> Fit:
    def fit(value: Any) -> float:
        if value.__class__ is not float and (isinstance(value, bool) or not isinstance(value, Real)):
            raise _misfit(value, schema)
        try:
            number = float(value)
        except OverflowError:
            raise _misfit(value, schema) from None
        if kind == "float" and _FLOAT_LIMIT <= abs(number) < float("inf"):
            raise _misfit(value, schema)
        return number

    return fit


def _bytes(schema: Any, size: int | None) -> Fit:
    def fit(value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray)) or (size is not None and len(value) != size):
            raise _misfit(value, schema)
        return bytes(value)

    return fit


def _by_name(row: Row, names: tuple[str, ...]) -> dict[str, Any]:
    """Return a row's fields by name: by its own names when they are the schema's, else in their order, as in Flink."""
    own = field_names(row)
    if own is not None and own != names and set(own) == set(names):
        return row.as_dict()
    if len(row) != len(names):
        raise AvroMisfit(f"has {len(row)} fields, but the schema has {len(names)}")
    return dict(zip(names, row, strict=True))


def _first_misfit(values: Iterable[tuple[Any, Any]], fit: Fit) -> AvroMisfit:
    for key, value in values:
        try:
            fit(value)
        except AvroMisfit as e:
            return e.within(f"[{key!r}]")
    raise AssertionError("one of the values does not fit")


def _misfit(value: Any, schema: Any) -> AvroMisfit:
    return AvroMisfit(f"is {shorten(value)}, which is not of the type {described(schema)}")


def described(schema: Any) -> str:
    """Write a type so that it fits an error message."""
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


def real_default(schema: Any, default: Any, names: dict[str, Any]) -> Any:
    """Return the value that a default in a schema stands for: JSON has no bytes, they are written as text."""
    schema = names.get(kind_of(schema), schema)
    kind = kind_of(schema)
    if kind == "union":
        return real_default(schema[0], default, names) if default is not None else None
    if kind in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1")
    if kind == "array":
        return [real_default(schema["items"], value, names) for value in default]
    if kind == "map":
        return {key: real_default(schema["values"], value, names) for key, value in default.items()}
    if kind in ("record", "error"):
        given = {f["name"]: default.get(f["name"], f.get("default")) for f in schema["fields"]}
        return {f["name"]: real_default(f["type"], given[f["name"]], names) for f in schema["fields"]}
    return default


def reader_schema(schema: AvroSchema) -> Any:
    """Return a schema to read by as fastavro takes it, but with the values that its defaults stand for."""
    parsed = copy.deepcopy(schema.parsed)
    _make_defaults_real(parsed, schema.names)
    _make_defaults_real(list(parsed["__named_schemas"].values()), schema.names)
    return parsed


def _make_defaults_real(schema: Any, names: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for part in schema:
            _make_defaults_real(part, names)
    elif isinstance(schema, dict):
        for field in schema.get("fields", ()):
            if "default" in field:
                field["default"] = real_default(field["type"], field["default"], names)
            _make_defaults_real(field["type"], names)
        _make_defaults_real([schema.get(key) for key in ("type", "items", "values")], names)


class GenericRecordAvroTypeInfo(TypeInformation):
    """Records of an Avro schema: dicts whose values are plain Python data.

    Dates, times, decimals and UUIDs are Python's own; timestamps are in UTC. In PyFlink a type like this must be
    declared before a sink of Avro; here it may be, and then records are checked where they leave the operator.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> GenericRecordAvroTypeInfo(schema)
        GenericRecordAvroTypeInfo<Point>
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = check_record_schema(schema, "GenericRecordAvroTypeInfo")

    def converter(self) -> Converter | None:
        fit = fitter(self._schema)

        def convert(value: Any) -> Any:
            try:
                return None if value is None else fit(value)
            except AvroMisfit as e:
                raise TypeMismatchError(f"Avro: {e}; the value was {value!r}") from None

        return convert

    def has_field(self, field: int | str) -> bool:
        return any(field == f["name"] for f in self._schema.parsed["fields"])

    def _identity(self) -> tuple[Any, ...]:
        return (self._schema,)

    def __str__(self) -> str:
        return f"GenericRecordAvroTypeInfo<{self._schema.parsed['name']}>"
