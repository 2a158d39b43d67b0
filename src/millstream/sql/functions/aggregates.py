"""Type rules of aggregates and window functions; operators compute them."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.functions.function import Arguments, Function, Kind, Resolved, Rule
from millstream.sql.functions.rules import BIGINT, DOUBLE, any_integer, any_type, integer, number, same_as, takes, text


def summed(kind: t.DataType) -> t.DataType:
    """Return the sum type."""
    return t.DecimalType(38, kind.scale) if isinstance(kind, t.DecimalType) else kind


def averaged(kind: t.DataType) -> t.DataType:
    """Return the average type."""
    return t.DecimalType(38, max(6, kind.scale)) if isinstance(kind, t.DecimalType) else kind


def _of(parameter: Callable[[t.DataType], t.DataType | None], to: Callable[[t.DataType], t.DataType]) -> Rule:
    """Return the rule of an aggregate of one column, nullable if the column is."""
    return takes(parameter, to=lambda a: to(a.types[0]))


def _same(kind: t.DataType) -> t.DataType:
    return kind


def _ordered(kind: t.DataType) -> t.DataType | None:
    return kind if type_rules.is_ordered(kind, kind) else None


def _count_rule(arguments: Arguments) -> Resolved:
    return Resolved(BIGINT.not_null(), arguments.types)


def _percentile_type(arguments: Arguments) -> t.DataType:
    several = isinstance(arguments.types[1], t.ArrayType)
    return t.ArrayType(DOUBLE) if several else DOUBLE


def _share(kind: t.DataType) -> t.DataType | None:
    """Accept a fraction or an array of fractions."""
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(DOUBLE.not_null()) if type_rules.is_numeric(kind.element_type) else None
    return DOUBLE if type_rules.is_numeric(kind) else None


def _shifted_rule(arguments: Arguments) -> Resolved | None:
    """LAG and LEAD: a value, an offset, and a default."""
    if not 1 <= len(arguments) <= 3 or (len(arguments) > 1 and any_integer(arguments.types[1]) is None):
        return None
    value = arguments.types[0]
    if len(arguments) < 3:
        return Resolved(value.nullable(), arguments.types)
    default = arguments.types[2]
    result = value.with_nullability(value.is_nullable or default.is_nullable)
    return Resolved(result, (value, arguments.types[1], value.with_nullability(default.is_nullable)))


def _numbered(to: t.DataType) -> Rule:
    return takes(to=to, nulls="never")


def _aggregate(name: str, rule: Rule, api: str = "") -> Function:
    return Function(name, rule, api=api, kind=Kind.AGGREGATE)


def _over(name: str, rule: Rule, api: str = "") -> Function:
    return Function(name, rule, api=api, kind=Kind.OVER)


# The type of Flink; longer texts are not truncated.
_JSON = t.VarCharType(2000)
_SPREAD = {
    "STDDEV_POP": "stddev_pop",
    "STDDEV_SAMP": "stddev_samp",
    "STDDEV": "",
    "VAR_POP": "var_pop",
    "VAR_SAMP": "var_samp",
    "VARIANCE": "",
}

FUNCTIONS = [
    _aggregate("COUNT", _count_rule, "count"),
    _aggregate("SUM", _of(number, summed), "sum"),
    _aggregate("$SUM0", takes(number, to=lambda a: summed(a.types[0]), nulls="never"), "sum0"),
    _aggregate("AVG", _of(number, averaged), "avg"),
    _aggregate("MIN", _of(_ordered, _same), "min"),
    _aggregate("MAX", _of(_ordered, _same), "max"),
    _aggregate("FIRST_VALUE", _of(any_type, _same), "first_value"),
    _aggregate("LAST_VALUE", _of(any_type, _same), "last_value"),
    _aggregate("SINGLE_VALUE", _of(any_type, _same)),
    _aggregate("LISTAGG", takes(text, text, to=same_as(0), optional=1), "list_agg"),
    _aggregate("ARRAY_AGG", takes(any_type, to=lambda a: t.ArrayType(a.types[0])), "array_agg"),
    _aggregate("COLLECT", takes(any_type, to=lambda a: t.MultisetType(a.types[0]), nulls="never"), "collect"),
    *(_aggregate(name, _of(number, averaged), api) for name, api in _SPREAD.items()),
    _aggregate(
        "PERCENTILE", takes(number, _share, any_integer, to=_percentile_type, optional=1, nulls="always"), "percentile"
    ),
    _aggregate("JSON_OBJECTAGG", takes(text, any_type, to=_JSON, nulls="never"), "json_object_agg"),
    _aggregate("JSON_ARRAYAGG", takes(any_type, to=_JSON, nulls="never"), "json_array_agg"),
    _aggregate("APPROX_COUNT_DISTINCT", takes(any_type, to=BIGINT, nulls="never")),
    _over("ROW_NUMBER", _numbered(BIGINT)),
    _over("RANK", _numbered(BIGINT)),
    _over("DENSE_RANK", _numbered(BIGINT)),
    _over("NTILE", takes(integer, to=BIGINT, nulls="never")),
    _over("PERCENT_RANK", _numbered(DOUBLE)),
    _over("CUME_DIST", _numbered(DOUBLE)),
    _over("LAG", _shifted_rule, "lag"),
    _over("LEAD", _shifted_rule, "lead"),
]


def resolved(function: Function, arguments: Arguments, has_rows: bool) -> Resolved | None:
    """Return an aggregate resolved for some arguments.

    Args:
        function: the aggregate.
        arguments: its arguments.
        has_rows: whether it sees at least one row: it is grouped and has no FILTER. Otherwise the result is nullable,
            except for functions that are never null.
    """
    result = function.rule(arguments)
    if result is None or has_rows or function.name in _NEVER_NULL or function.kind is Kind.OVER:
        return result
    return Resolved(result.type.nullable(), result.arguments)


# Aggregates that are null only if their arguments can be.
_NEVER_NULL = frozenset(
    ["COUNT", "$SUM0", "APPROX_COUNT_DISTINCT", "COLLECT", "ARRAY_AGG", "LISTAGG", "JSON_OBJECTAGG", "JSON_ARRAYAGG"]
)
