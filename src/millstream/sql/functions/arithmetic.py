"""Arithmetic: integers wrap around; decimals round half up and overflow to null."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.functions import dates
from millstream.sql.functions.casts import cast_value, rescaled_decimal
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Site
from millstream.sql.functions.rules import number, same_as, takes
from millstream.sql.functions.vectors import as_array, by_row, from_numpy, to_numpy

_UNCHECKED: dict[str, Callable[..., Datum]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
# Precision of decimal division.
_DIVIDE = decimal.Context(prec=38, rounding=decimal.ROUND_HALF_UP)
_EXACT = decimal.Context(prec=200)

DIVISION_BY_ZERO = "/ by zero"


def _rule(operator: str) -> Callable[[Arguments], Resolved | None]:
    def rule(arguments: Arguments) -> Resolved | None:
        if len(arguments) != 2:
            return None
        left, right = arguments.types
        result = type_rules.arithmetic(operator, left, right)
        if result is None:
            return None
        if isinstance(left, t.NullType):
            left = right.nullable()
        if isinstance(right, t.NullType):
            right = left.nullable()
        decimals = (result, left, right) if operator == "%" else (result,)
        of_decimals = any(isinstance(kind, t.DecimalType) for kind in decimals)
        if type_rules.is_numeric(left) and type_rules.is_numeric(right) and not of_decimals:
            # The remainder may have a wider type than the divisor.
            wide = left if operator == "%" and left.bits > right.bits else result  # type: ignore[attr-defined]
            return Resolved(result, (wide.with_nullability(left.is_nullable), wide.with_nullability(right.is_nullable)))
        return Resolved(result, (left, right))

    return rule


def _kernel(operator: str) -> Callable[[Site, int, Sequence[Datum]], Datum]:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        if isinstance(site.type, t.DecimalType):
            return _of_decimals(operator, site, rows, values)
        if not all(type_rules.is_numeric(kind) for kind in site.types):
            return dates.arithmetic(operator, site, rows, values)
        if operator in _UNCHECKED:
            return _UNCHECKED[operator](*values)
        if isinstance(site.type, t.IntegralType) and any(isinstance(kind, t.DecimalType) for kind in site.types):
            exact = t.DecimalType(38, 0)
            result = _of_decimals(operator, replace(site, type=exact), rows, values)
            return cast_value(result, exact, site.type, site.context)
        if isinstance(site.type, t.IntegralType):
            return (_divided if operator == "/" else _remainder)(site, rows, values)
        return pc.divide(*values)

    return kernel


def _checked_divisor(divisor: Datum) -> None:
    bounds = pc.min_max(divisor) if not isinstance(divisor, pa.Scalar) else None
    if bounds is None:
        zero = divisor.is_valid and divisor.as_py() == 0
    else:
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        zero = low is not None and low <= 0 <= high and bool(pc.any(pc.equal(divisor, 0)).as_py())
    if zero:
        raise TableException(f"ArithmeticException: {DIVISION_BY_ZERO}")


def _divided(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    left, right = values
    if isinstance(right, pa.Scalar) and right.as_py() == -1:
        # The minimum has no opposite; it wraps around to itself.
        return pc.negate(left)
    try:
        result = pc.divide(left, right)
    except pa.ArrowInvalid:
        raise TableException(f"ArithmeticException: {DIVISION_BY_ZERO}") from None
    if isinstance(right, pa.Scalar):
        return result
    minus_one = pc.equal(right, -1)
    return pc.if_else(pc.fill_null(minus_one, False), pc.negate(left), result) if pc.any(minus_one).as_py() else result


def _remainder(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    _checked_divisor(values[1])
    left, right = (as_array(v, 1 if isinstance(v, pa.Scalar) else rows) for v in values)
    dividend, divisor = to_numpy(left), to_numpy(right)
    # Values under nulls are undefined and may be zero.
    divisor = np.where(divisor == 0, 1, divisor) if right.null_count else divisor
    with np.errstate(all="ignore"):
        result = np.fmod(dividend, np.where(divisor == -1, 1, divisor))
    if isinstance(values[0], pa.Scalar) and isinstance(values[1], pa.Scalar):
        created = from_numpy(result, left.type, [left, right])
        return cast_value(created, site.types[0], site.type, site.context)[0]
    columns = [as_array(v, rows) for v in values]
    created = from_numpy(np.broadcast_to(result, (rows,)), left.type, columns)
    return cast_value(created, site.types[0], site.type, site.context)


def _of_decimals(operator: str, site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    assert isinstance(site.type, t.DecimalType)
    kinds = [type_rules.as_decimal(kind) for kind in site.types]
    left, right = (
        v if k is None or v.type == arrow_type(k) else v.cast(arrow_type(k)) for v, k in zip(values, kinds, strict=True)
    )
    if operator in _UNCHECKED:
        exact = _exact_decimals(operator, left, right)
        if exact is not None:
            return rescaled_decimal(exact, site.type)
    if operator == "/" and site.type.precision + right.type.precision < 38:
        return _quotients(site.type, left, right)
    return _DECIMALS[operator](site, rows, [left, right])


def _exact_decimals(operator: str, left: Datum, right: Datum) -> Datum | None:
    """Return the exact result, or None if Arrow cannot hold its digits."""
    a, b = left.type, right.type
    if operator == "*":
        digits = a.precision + b.precision + 1
    else:
        scale = max(a.scale, b.scale)
        digits = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if digits > 76:
        return None
    if digits > 38:
        left, right = (v.cast(pa.decimal256(v.type.precision, v.type.scale)) for v in (left, right))
    return _UNCHECKED[operator](left, right)


def _quotients(kind: t.DecimalType, left: Datum, right: Datum) -> Datum:
    """Divide decimals whose significant digits fit into Arrow's decimals.

    Arrow truncates; digits beyond one more than the result's scale cannot affect rounding.
    """
    digits = kind.scale - right.type.precision + right.type.scale
    scale = max(digits, left.type.scale)
    wide = left.cast(pa.decimal256(left.type.precision - left.type.scale + scale, scale))
    try:
        exact = pc.divide(wide, right.cast(pa.decimal256(right.type.precision, right.type.scale)))
    except pa.ArrowInvalid:
        raise TableException(f"ArithmeticException: {DIVISION_BY_ZERO}") from None
    return rescaled_decimal(exact, kind)


def _by_decimal(operation: Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal]) -> Kernel:
    def apply(site: Site, left: decimal.Decimal, right: decimal.Decimal) -> decimal.Decimal | None:
        assert isinstance(site.type, t.DecimalType)
        return rounded(operation(left, right), site.type)

    return by_row(apply, with_site=True)


def rounded(value: decimal.Decimal, kind: t.DecimalType) -> decimal.Decimal | None:
    """Return a number rounded half up to a type's scale; None if it does not fit."""
    result = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP, _EXACT)
    # abs() would round to the thread's decimal context.
    return result if result.copy_abs() < decimal.Decimal(10) ** (kind.precision - kind.scale) else None


def _divide_decimals(left: decimal.Decimal, right: decimal.Decimal) -> decimal.Decimal:
    if not right:
        raise TableException("ArithmeticException: Division by zero" if left else "ArithmeticException: / by zero")
    return _DIVIDE.divide(left, right)


def _remainder_of_decimals(left: decimal.Decimal, right: decimal.Decimal) -> decimal.Decimal:
    if not right:
        raise TableException("ArithmeticException: Division by zero")
    return _EXACT.remainder(left, right)


_DECIMALS = {
    "+": _by_decimal(_EXACT.add),
    "-": _by_decimal(_EXACT.subtract),
    "*": _by_decimal(_EXACT.multiply),
    "/": _by_decimal(_divide_decimals),
    "%": _by_decimal(_remainder_of_decimals),
}


def _negated(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pc.negate(values[0])


def _itself(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return values[0]


def _signed(kind: t.DataType) -> t.DataType | None:
    return kind if type_rules.is_interval(kind) else number(kind)


FUNCTIONS = [
    *(
        Function(
            operator,
            _rule(operator),
            _kernel(operator),
            (f"<NUMERIC> {operator} <NUMERIC>",),
            api,
            fails=operator in "/%",
        )
        for operator, api in (("+", "__add__"), ("-", "__sub__"), ("*", "__mul__"), ("/", "__truediv__"))
    ),
    *(
        Function(name, _rule("%"), _kernel("%"), (f"{name}(<EXACT_NUMERIC>, <EXACT_NUMERIC>)",), api, fails=True)
        for name, api in (("%", "__mod__"), ("MOD", ""))
    ),
    Function("UNARY -", takes(_signed, to=same_as(0)), _negated, ("-<NUMERIC>",), "__neg__"),
    Function("UNARY +", takes(_signed, to=same_as(0)), _itself, ("+<NUMERIC>",), "__pos__"),
]
