"""Comparisons and tests for null and truth, with three-valued logic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Rule, Site
from millstream.sql.functions.rules import BOOLEAN, any_type, boolean, takes
from millstream.sql.functions.vectors import as_array, validity, where_valid

_COMPARE: dict[str, Callable[..., Datum]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_API = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
_NESTED = (t.ArrayType, t.MapType, t.MultisetType, t.RowType)


def comparable(types: Sequence[t.DataType], ordered: bool = False) -> tuple[t.DataType, ...] | None:
    """Return the common types for a comparison by order or equality; None if incomparable."""
    known = [k for k in types if not isinstance(k, t.NullType)]
    if not known:
        return tuple(types)
    common = known[0]
    for kind in known[1:]:
        result = _compared_as(common, kind, ordered)
        if result is None:
            return None
        common = result
    return tuple(common.with_nullability(k.is_nullable) for k in types)


def _compared_as(left: t.DataType, right: t.DataType, ordered: bool) -> t.DataType | None:
    if type_rules.is_string(left) != type_rules.is_string(right):
        # Text is cast to the other type.
        other = right if type_rules.is_string(left) else left
        if not ordered and (isinstance(other, t.BooleanType) or type_rules.is_interval(other)):
            # Equality of these is that of their texts.
            return t.DataTypes.STRING()
        if isinstance(other, (t.IntegralType, t.FloatType, t.DecimalType)):
            return t.DataTypes.DOUBLE() if not isinstance(other, t.IntegralType) else other
        return None if isinstance(other, _NESTED) else other
    if isinstance(left, t.DecimalType | t.IntegralType) and isinstance(right, t.DecimalType | t.IntegralType):
        return type_rules.common_type([left, right])
    if type_rules.is_numeric(left) and type_rules.is_numeric(right):
        return t.DataTypes.DOUBLE()
    return type_rules.common_type([left, right])


def _rule(ordered: bool, nulls: bool = True) -> Rule:
    can = type_rules.is_ordered if ordered else type_rules.is_comparable

    def rule(arguments: Arguments) -> Resolved | None:
        if len(arguments) != 2 or not can(*arguments.types):
            return None
        cast = comparable(arguments.types, ordered)
        if cast is None:
            return None
        nullable = any(map(_has_null, arguments.types))
        return Resolved(BOOLEAN.with_nullability(nulls and nullable), cast)

    return rule


def _has_null(kind: t.DataType) -> bool:
    """Return whether a comparison can be null; for rows also because of a field."""
    if isinstance(kind, t.RowType):
        return kind.is_nullable or any(map(_has_null, kind.field_types()))
    return kind.is_nullable


def compare(operator: str, kind: t.DataType, left: Datum, right: Datum, rows: int) -> Datum:
    """Compare values of one type."""
    if isinstance(kind, t.RowType):
        return _rows(operator, kind, left, right, rows)
    if isinstance(kind, _NESTED) and operator in ("=", "<>"):
        return _nested(operator, left, right, rows)
    if isinstance(kind, t.NullType):
        return pa.scalar(None, pa.bool_())
    if isinstance(kind, t.BooleanType) and operator not in ("=", "<>"):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    return _COMPARE[operator](left, right)


def _rows(operator: str, kind: t.RowType, left: Datum, right: Datum, rows: int) -> Datum:
    """Compare rows field by field; an unknown field makes the result unknown."""
    fixed = isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar)
    columns = [as_array(v, 1 if fixed else rows) for v in (left, right)]
    equal: Datum = pa.scalar(True)
    for i, member in enumerate(kind.field_types()):
        fields = [pc.struct_field(c, [i]) for c in columns]
        equal = pc.and_kleene(equal, compare("=", member, fields[0], fields[1], len(columns[0])))
    equal = where_valid(validity(columns), equal)
    result = equal if operator == "=" else pc.invert(equal)
    return result[0] if fixed and not isinstance(result, pa.Scalar) else result


def _nested(operator: str, left: Datum, right: Datum, rows: int) -> Datum:
    """Compare nested values: equal if all elements are, for maps in any order."""
    scalars = isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar)
    count = 1 if scalars else rows
    is_map = pa.types.is_map(left.type)
    columns = [as_array(v, count).to_pylist() for v in (left, right)]
    required = operator == "="
    result: list[bool | None] = []
    for a, b in zip(*columns, strict=True):
        if a is None or b is None:
            result.append(None)
        else:
            result.append(((dict(a) == dict(b)) if is_map else a == b) is required)
    created = pa.array(result, pa.bool_())
    return created[0] if scalars else created


def _comparison(operator: str) -> Kernel:
    return lambda site, rows, values: compare(operator, site.types[0], values[0], values[1], rows)


def _distinct(negated: bool) -> Kernel:
    """IS [NOT] DISTINCT FROM: nulls are equal to each other."""

    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        left, right = values
        equal = pc.fill_null(compare("=", site.types[0], left, right, rows), False)
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        result = pc.or_(equal, both)
        return result if negated else pc.invert(result)

    return kernel


def _between(symmetric: bool) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        value, low, high = values
        kind = site.types[0]

        def within(first: Datum, second: Datum) -> Datum:
            return pc.and_kleene(compare(">=", kind, value, first, rows), compare("<=", kind, value, second, rows))

        return pc.or_kleene(within(low, high), within(high, low)) if symmetric else within(low, high)

    return kernel


def _between_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) != 3 or not all(type_rules.is_ordered(arguments.types[0], k) for k in arguments.types[1:]):
        return None
    cast = comparable(arguments.types, ordered=True)
    return None if cast is None else Resolved(BOOLEAN.with_nullability(arguments.any_nullable), cast)


def _is_null(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pc.is_null(values[0])


def _is_not_null(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pc.is_valid(values[0])


def _is(truth: bool, negated: bool) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        value = values[0] if truth else pc.invert(values[0])
        result = pc.fill_null(value, False)
        return pc.invert(result) if negated else result

    return kernel


def _not(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pc.invert(values[0])


def _logical(operation: Callable[..., Datum]) -> Kernel:
    return lambda site, rows, values: operation(values[0], values[1])


_TEST = takes(any_type, to=BOOLEAN, nulls="never")
_TRUTH = takes(boolean, to=BOOLEAN, nulls="never")
_TWO = takes(boolean, boolean, to=BOOLEAN)

FUNCTIONS = [
    *(
        Function(op, _rule(op not in ("=", "<>")), _comparison(op), (f"<COMPARABLE_TYPE> {op} <COMPARABLE_TYPE>",), api)
        for op, api in _API.items()
    ),
    Function("IS DISTINCT FROM", _rule(False, nulls=False), _distinct(False)),
    Function("IS NOT DISTINCT FROM", _rule(False, nulls=False), _distinct(True)),
    Function("BETWEEN", _between_rule, _between(False), api="between"),
    Function("BETWEEN SYMMETRIC", _between_rule, _between(True)),
    Function("IS NULL", _TEST, _is_null, api="is_null"),
    Function("IS NOT NULL", _TEST, _is_not_null, api="is_not_null"),
    Function("IS UNKNOWN", _TRUTH, _is_null),
    Function("IS NOT UNKNOWN", _TRUTH, _is_not_null),
    Function("IS TRUE", _TRUTH, _is(True, False), api="is_true"),
    Function("IS NOT TRUE", _TRUTH, _is(True, True), api="is_not_true"),
    Function("IS FALSE", _TRUTH, _is(False, False), api="is_false"),
    Function("IS NOT FALSE", _TRUTH, _is(False, True), api="is_not_false"),
    Function("NOT", takes(boolean, to=BOOLEAN), _not, api="__invert__"),
    Function("AND", _TWO, _logical(pc.and_kleene), api="__and__"),
    Function("OR", _TWO, _logical(pc.or_kleene), api="__or__"),
]
