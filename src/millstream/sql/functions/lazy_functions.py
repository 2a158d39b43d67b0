"""Functions that evaluate arguments only for the rows that need them: AND, OR, CASE, IF, COALESCE."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.functions.function import Arguments, Function, Resolved
from millstream.sql.functions.rules import BOOLEAN, boolean, common


def _case_rule(arguments: Arguments) -> Resolved | None:
    """CASE: conditions and values in turn, then the default."""
    count = len(arguments)
    if count < 3 or count % 2 == 0:
        return None
    conditions = [boolean(k) for k in arguments.types[:-1:2]]
    values = [*arguments.types[1:-1:2], arguments.types[-1]]
    result = type_rules.least_restrictive(values)
    if result is None or None in conditions:
        return None
    cast: list[t.DataType] = []
    for i, kind in enumerate(arguments.types):
        is_condition = i % 2 == 0 and i < count - 1
        cast.append((BOOLEAN if is_condition else result).with_nullability(kind.is_nullable))
    return Resolved(result, tuple(cast))


def _if_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) != 3 or boolean(arguments.types[0]) is None:
        return None
    first, second = arguments.types[1:]
    if type_rules.is_temporal(first) and type_rules.is_temporal(second) and type(first) is not type(second):
        return None
    return _of_common(arguments, 1, lambda kinds: any(k.is_nullable for k in kinds))


def _of_common(arguments: Arguments, start: int, nullable: Callable[[tuple[t.DataType, ...]], bool]) -> Resolved | None:
    kinds = arguments.types[start:]
    result = type_rules.common_type(kinds)
    if result is None:
        return None
    cast = tuple(result.with_nullability(k.is_nullable) for k in kinds)
    return Resolved(result.with_nullability(nullable(kinds)), (*arguments.types[:start], *cast))


def _ifnull_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) != 2:
        return None
    first, second = arguments.types
    if not first.is_nullable and type_rules.is_string(first) and type_rules.is_string(second):
        # The second argument is never evaluated.
        return Resolved(first, (first, first.with_nullability(second.is_nullable)))
    return _of_common(arguments, 0, lambda kinds: all(k.is_nullable for k in kinds))


FUNCTIONS = [
    Function("CASE", _case_rule),
    Function("IF", _if_rule, forms=("IF(<BOOLEAN>, <COMMON>, <COMMON>)",), api="then"),
    Function("COALESCE", common(nulls="all"), api="coalesce"),
    Function("IFNULL", _ifnull_rule, api="if_null"),
]
