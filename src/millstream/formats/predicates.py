"""Conditions that files are asked about before they are read: a column beside a constant."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.sql import types as t
from millstream.sql.expressions import Call, Column, Constant, Expression

_TURNED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_FIRST = dt.date(1970, 1, 1)
# Whose order is that of Python's values, and that of the files' statistics.
_ORDERED = (t.IntegralType, t.DateType, t.CharType, t.VarCharType)


@record
class Comparison:
    """A column's value is equal to, below or above another.

    Attributes:
        name: the column's.
        operator: one of = < > <= >=.
        value: what it is compared with.
    """

    name: str
    operator: str
    value: Any


def comparisons_of(conditions: Sequence[Expression], columns: Sequence[str]) -> list[Comparison]:
    """Return those of some conditions that files can be asked about."""
    return [found for c in conditions if (found := _comparison(c, columns)) is not None]


def _comparison(condition: Expression, columns: Sequence[str]) -> Comparison | None:
    if not isinstance(condition, Call) or condition.function not in _TURNED or len(condition.arguments) != 2:
        return None
    left, right = condition.arguments
    operator = condition.function
    if isinstance(left, Constant):
        left, right, operator = right, left, _TURNED[operator]
    if not isinstance(left, Column) or not isinstance(right, Constant) or right.value is None:
        return None
    if not isinstance(left.type, _ORDERED):
        return None
    # A day is the number of days since 1970 here, and a day in statistics.
    value = _FIRST + dt.timedelta(right.value) if isinstance(left.type, t.DateType) else right.value
    return Comparison(columns[left.index], operator, value)


def may_pass(test: Comparison, statistics: Any) -> bool:
    """Tell whether some row of which there are statistics may pass a test."""
    if statistics is None or not statistics.has_min_max:
        return True
    least, most, value = statistics.min, statistics.max, test.value
    if type(least) is not type(value) or type(most) is not type(value):
        return True
    if test.operator == "=":
        return bool(least <= value <= most)
    if test.operator in ("<", "<="):
        return bool(least < value or (test.operator == "<=" and least == value))
    return bool(most > value or (test.operator == ">=" and most == value))
