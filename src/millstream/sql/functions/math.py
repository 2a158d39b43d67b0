"""Numeric functions."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.numpy_arrays import NumpyColumn
from millstream.sql.errors import TableException
from millstream.sql.functions import dates
from millstream.sql.functions.casts import cast_value, rescaled_decimal, rounded
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Site
from millstream.sql.functions.rules import (
    DOUBLE,
    INT,
    STRING,
    any_integer,
    double,
    either,
    integer,
    number,
    same_as,
    takes,
    text,
)
from millstream.sql.functions.vectors import as_array, by_row, from_numpy, to_numpy

_MASK = (1 << 48) - 1


class JavaRandom:
    """Java's random numbers from a seed.

    Example:
        >>> JavaRandom(42).next_double()
        0.7275636800328681
    """

    def __init__(self, seed: int) -> None:
        self._seed = (seed ^ 0x5DEECE66D) & _MASK

    def _next(self, bits: int) -> int:
        self._seed = (self._seed * 0x5DEECE66D + 0xB) & _MASK
        result = self._seed >> (48 - bits)
        return result - (1 << bits) if result >= 1 << (bits - 1) else result

    def next_double(self) -> float:
        """Return a number in [0, 1)."""
        high = self._next(26) & ((1 << 26) - 1)
        low = self._next(27) & ((1 << 27) - 1)
        return ((high << 27) + low) * 2.0**-53

    def next_int(self, bound: int) -> int:
        """Return an integer in [0, `bound`)."""
        result = self._next(31) & 0x7FFFFFFF
        if bound & (bound - 1) == 0:
            return (bound * result) >> 31
        value = result % bound
        while result - value + (bound - 1) >= 1 << 31:
            result = self._next(31) & 0x7FFFFFFF
            value = result % bound
        return value


def of_doubles(operation: Callable[..., NumpyColumn]) -> Kernel:
    """Return the kernel of a numpy operation on DOUBLEs."""

    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        fixed = all(isinstance(v, pa.Scalar) for v in values)
        columns = [as_array(v, 1 if fixed else rows) for v in values]
        with np.errstate(all="ignore"):
            result = operation(*(to_numpy(c) for c in columns))
        created = from_numpy(np.asarray(result, np.float64), pa.float64(), columns)
        return created[0] if fixed else created

    return kernel


def _one_double(name: str, operation: Callable[..., NumpyColumn], api: str | None = None) -> Function:
    kernel = of_doubles(operation)
    return Function(
        name, takes(double, to=DOUBLE), kernel, (f"{name}(<NUMERIC>)",), name.lower() if api is None else api
    )


def _cot(x: NumpyColumn) -> NumpyColumn:
    return 1.0 / np.tan(x)


def _log(*values: NumpyColumn) -> NumpyColumn:
    """LOG(x), or LOG(base, x)."""
    return np.log(values[0]) if len(values) == 1 else np.log(values[1]) / np.log(values[0])


# --- sign and size


def _abs(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pc.abs(values[0])


def _sized(kind: t.DataType) -> t.DataType | None:
    return kind if type_rules.is_interval(kind) else number(kind)


def _sign(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    result = pc.sign(values[0])
    if isinstance(site.type, t.DecimalType):
        return cast_value(result, t.DataTypes.BIGINT(), site.type, site.context)
    return result


def _whole_rule(arguments: Arguments) -> Resolved | None:
    """FLOOR and CEIL of a number, or of a time to a unit."""
    if len(arguments) != 1:
        return None
    (kind,) = arguments.types
    if arguments.options:
        fits = type_rules.is_temporal(kind) and (
            arguments.options[0] in dates.MONTHS or arguments.options[0] in dates.MILLISECONDS
        )
        return Resolved(kind, (kind,)) if fits else None
    if isinstance(kind, t.DecimalType):
        return Resolved(t.DecimalType(kind.precision, 0, kind.is_nullable), (kind,))
    return Resolved(kind, (kind,)) if type_rules.is_numeric(kind) else None


def _ceil_or_floor(up: bool) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        if site.options:
            return (dates.ROUND_UP if up else dates.ROUND_DOWN)(site, rows, values)
        if isinstance(site.type, t.IntegralType):
            return values[0]
        if isinstance(site.type, t.DecimalType):
            mode = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
            one = decimal.Decimal(1)
            return by_row(lambda v: v.quantize(one, mode, decimal.Context(prec=60)))(site, rows, values)
        return (pc.ceil if up else pc.floor)(values[0])

    return kernel


# --- rounding to places


def _places_rule(arguments: Arguments) -> Resolved | None:
    if not 1 <= len(arguments) <= 2 or number(arguments.types[0]) is None:
        return None
    kind = arguments.types[0]
    if len(arguments) == 2 and integer(arguments.types[1]) is None:
        return None
    result = kind
    if isinstance(kind, t.DecimalType):
        places = arguments.constant(1) if len(arguments) == 2 else 0
        result = _rounded_type(kind, places)
    casts = (kind,) if len(arguments) == 1 else (kind, INT.with_nullability(arguments.types[1].is_nullable))
    return Resolved(result.with_nullability(arguments.any_nullable), casts)


def _rounded_type(kind: t.DecimalType, places: int | None) -> t.DecimalType:
    """Return the type of a rounded decimal, which may grow by a digit."""
    if places is None or places >= kind.scale:
        return kind
    if places < 0:
        return t.DecimalType(min(38, 1 + kind.precision - kind.scale), 0)
    return t.DecimalType(min(38, 1 + kind.precision - kind.scale + places), places)


def _to_places(mode: str) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        places = 0 if len(values) == 1 else values[1].as_py() if isinstance(values[1], pa.Scalar) else None
        if places is not None and abs(places) < 15 and not isinstance(values[0], pa.Scalar):
            if isinstance(site.type, t.DecimalType):
                return _round_decimals(values[0], places, mode, site.type)
            if isinstance(site.type, t.DoubleType) and mode == decimal.ROUND_HALF_UP:
                return _round_doubles(values[0], places)
        return by_row(lambda v, n=0: _round_one(site.type, v, n, mode))(site, rows, values)

    return kernel


_ARROW_MODES = {decimal.ROUND_HALF_UP: "half_towards_infinity", decimal.ROUND_DOWN: "towards_zero"}


def _round_decimals(column: pa.Array, places: int, mode: str, kind: t.DecimalType) -> pa.Array:
    precision, scale = column.type.precision, column.type.scale
    if places >= scale:
        return column
    wide = column.cast(pa.decimal128(precision + 1, scale) if precision < 38 else pa.decimal256(39, scale))
    return rescaled_decimal(pc.round(wide, ndigits=places, round_mode=_ARROW_MODES[mode]), kind)


def _round_doubles(column: pa.Array, places: int) -> pa.Array:
    """Round half up by Java's decimal digits, which are consulted only close to a half."""
    values = to_numpy(column)
    power = 10.0 ** abs(places)
    with np.errstate(all="ignore"):
        scaled = np.abs(values) * power if places >= 0 else np.abs(values) / power
        integral = np.floor(scaled + 0.5)
        result = np.copysign(integral / power if places >= 0 else integral * power, values)
        unsure = (np.abs(scaled - np.floor(scaled) - 0.5) < 1e-4) | (scaled > 1e11)
    kind = t.DataTypes.DOUBLE()
    for row in np.flatnonzero(unsure & np.isfinite(values)).tolist():
        result[row] = _round_one(kind, float(values[row]), places, decimal.ROUND_HALF_UP)
    return from_numpy(np.where(np.isfinite(values), result, values), pa.float64(), [column])


_EXACT = decimal.Context(prec=400, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _round_one(
    kind: t.DataType, value: float | decimal.Decimal, places: int, mode: str
) -> float | decimal.Decimal | None:
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        exact = decimal.Decimal(repr(value))
    else:
        exact = decimal.Decimal(value)
    if places > 350:
        return value
    result = exact.quantize(decimal.Decimal(1).scaleb(-places), mode, _EXACT)
    if isinstance(kind, t.IntegralType):
        return _wrapped(int(result), kind.bits)
    return rounded(result, kind) if isinstance(kind, t.DecimalType) else float(result)


def _wrapped(value: int, bits: int) -> int:
    modulus = 1 << bits
    value %= modulus
    return value - modulus if value >= modulus // 2 else value


# --- random numbers


def _rand(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    if not values:
        return pa.array(np.random.default_rng().random(rows))
    if isinstance(values[0], pa.Scalar):
        random = _random_of(site, values[0])
        return pa.array([random.next_double() if random else None for _ in range(rows)], pa.float64())
    return by_row(lambda seed: JavaRandom(seed).next_double())(site, rows, values)


def _random_of(site: Site, seed: pa.Scalar) -> JavaRandom | None:
    if not seed.is_valid:
        return None
    random = site.memory.setdefault("random", JavaRandom(seed.as_py()))
    assert isinstance(random, JavaRandom)
    return random


def _rand_integer(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    *seed, bound = values
    bounds = as_array(bound, rows).to_pylist()
    if any(b is not None and b <= 0 for b in bounds):
        raise TableException("IllegalArgumentException: bound must be positive")
    if not seed:
        random = np.random.default_rng()
        return pa.array([None if b is None else int(random.integers(b)) for b in bounds], pa.int32())
    if isinstance(seed[0], pa.Scalar):
        sequence = _random_of(site, seed[0])
        return pa.array([None if b is None or sequence is None else sequence.next_int(b) for b in bounds], pa.int32())
    return by_row(lambda s, b: JavaRandom(s).next_int(b))(site, rows, values)


# --- other bases


def _bin(value: int) -> str:
    return format(value & (1 << 64) - 1, "b")


def _hex(value: int | str | bytes) -> str:
    if isinstance(value, int):
        return format(value & (1 << 64) - 1, "X")
    return (value.encode() if isinstance(value, str) else value).hex().upper()


def _constant(value: float) -> Kernel:
    return lambda site, rows, values: pa.scalar(value)


def _power(base: NumpyColumn, exponent: NumpyColumn) -> NumpyColumn:
    return np.power(base, exponent)


_LARGEST = takes(number, to=same_as(0))

FUNCTIONS = [
    Function("ABS", takes(_sized, to=same_as(0)), _abs, ("ABS(<NUMERIC>)",), "abs"),
    Function("SIGN", _LARGEST, _sign, ("SIGN(<NUMERIC>)",), "sign"),
    Function(
        "FLOOR",
        _whole_rule,
        _ceil_or_floor(False),
        ("FLOOR(<NUMERIC>)", "FLOOR(<DATETIME> TO <TIME_UNIT>)"),
        "floor",
    ),
    Function("CEIL", _whole_rule, _ceil_or_floor(True), ("CEIL(<NUMERIC>)", "CEIL(<DATETIME> TO <TIME_UNIT>)"), "ceil"),
    Function("ROUND", _places_rule, _to_places(decimal.ROUND_HALF_UP), ("ROUND(<NUMERIC>, <INTEGER>)",), "round"),
    Function("TRUNCATE", _places_rule, _to_places(decimal.ROUND_DOWN), ("TRUNCATE(<NUMERIC>, <INTEGER>)",), "truncate"),
    _one_double("SQRT", np.sqrt),
    _one_double("LN", np.log),
    _one_double("LOG10", np.log10),
    _one_double("LOG2", lambda x: np.log(x) / np.log(2.0)),
    _one_double("EXP", np.exp),
    _one_double("SIN", np.sin),
    _one_double("COS", np.cos),
    _one_double("TAN", np.tan),
    _one_double("COT", _cot),
    _one_double("ASIN", np.arcsin),
    _one_double("ACOS", np.arccos),
    _one_double("ATAN", np.arctan),
    _one_double("SINH", np.sinh),
    _one_double("COSH", np.cosh),
    _one_double("TANH", np.tanh),
    _one_double("DEGREES", np.degrees),
    _one_double("RADIANS", np.radians),
    Function("LOG", takes(double, double, to=DOUBLE, optional=1), of_doubles(_log), api="log"),
    Function("POWER", takes(double, double, to=DOUBLE), of_doubles(_power), ("POWER(<NUMERIC>, <NUMERIC>)",), "power"),
    Function("ATAN2", takes(double, double, to=DOUBLE), of_doubles(np.arctan2), api="atan2"),
    Function("PI", takes(to=DOUBLE, nulls="never"), _constant(math.pi), api="pi"),
    Function("E", takes(to=DOUBLE, nulls="never"), _constant(math.e), api="e"),
    Function("RAND", takes(integer, to=DOUBLE, optional=1), _rand, api="rand", deterministic=False),
    Function(
        "RAND_INTEGER",
        takes(integer, integer, to=INT, optional=1),
        _rand_integer,
        api="rand_integer",
        deterministic=False,
    ),
    Function("BIN", takes(any_integer, to=STRING), by_row(_bin), api="bin"),
    Function("HEX", takes(either(any_integer, text), to=STRING), by_row(_hex), api="hex"),
]
