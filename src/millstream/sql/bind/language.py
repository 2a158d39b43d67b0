"""The functions of the language, as the binder asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.sql import type_rules
from millstream.sql.bind.errors import Refused
from millstream.sql.bind.functions import AggregateResolved as Resolved
from millstream.sql.expressions import Call, Expression
from millstream.sql.types import BigIntType, BooleanType, CharType, DataType, DecimalType, NullType, VarCharType

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_TESTS = ("IS NULL", "IS NOT NULL", "IS TRUE", "IS FALSE", "IS UNKNOWN", "IS NOT TRUE", "IS NOT FALSE", "IS NOT UNKNOWN")
_AGGREGATES = frozenset(["COUNT", "SUM", "AVG", "MIN", "MAX", "ROW_NUMBER", "RANK", "DENSE_RANK", "FIRST_VALUE",
                         "LAST_VALUE", "LAG", "LEAD"])


class LanguageFunctions:
    """Provisional: the operators alone, until the table of functions is there."""

    def kind(self, name: str) -> str | None:
        return "aggregate" if name.upper() in _AGGREGATES else None

    def canonical(self, name: str) -> str:
        return name.upper()

    def names(self) -> list[str]:
        return []

    def is_deterministic(self, name: str) -> bool:
        return True

    def folded(self, expression: Expression) -> Expression:
        return expression

    def call(self, name: str, arguments: Sequence[Expression], options: tuple[Any, ...] = ()) -> Expression:
        from millstream.sql.bind.expressions import cast

        types = [a.type for a in arguments]
        found = _operator(name.upper(), types)
        if found is None:
            given = ", ".join(f"<{t}>" for t in types)
            raise Refused(f"No match found for function signature {name}({given})")
        given = tuple(cast(a, t) for a, t in zip(arguments, found.arguments, strict=True))
        return Call(found.type, name.upper(), given, options)

    def aggregate(self, name: str, arguments: Sequence[Expression], has_rows: bool) -> Resolved:
        types = tuple(a.type for a in arguments)
        name = name.upper()
        if name in ("COUNT", "ROW_NUMBER", "RANK", "DENSE_RANK"):
            return Resolved(BigIntType(False), types)
        kind = types[0]
        if name in ("SUM", "AVG") and isinstance(kind, DecimalType):
            kind = DecimalType(38, kind.scale if name == "SUM" else max(6, kind.scale))
        return Resolved(kind.with_nullability(types[0].is_nullable or not has_rows), types)


def _operator(name: str, types: list[DataType]) -> Resolved | None:
    nullable = any(t.is_nullable for t in types)
    if name in ("+", "-", "*", "/", "%") and len(types) == 2:
        kind = type_rules.arithmetic(name, *types)
        return None if kind is None else Resolved(kind, tuple(types))
    if name in _COMPARISONS:
        from millstream.sql.bind.expressions import comparison_type

        common = comparison_type(*types)
        result = BooleanType(nullable and "DISTINCT" not in name)
        return None if common is None else Resolved(result, (common, common))
    if name in _TESTS:
        return Resolved(BooleanType(False), tuple(types))
    if name in ("AND", "OR", "NOT"):
        fits = all(isinstance(t, (BooleanType, NullType)) for t in types)
        return Resolved(BooleanType(nullable), tuple(BooleanType() for _ in types)) if fits else None
    if name in ("LIKE", "SIMILAR TO"):
        return Resolved(BooleanType(nullable), tuple(types))
    if name == "||":
        kind = type_rules.concatenated(*types)
        return None if kind is None else Resolved(kind, tuple(types))
    if name == "UNARY -":
        return Resolved(types[0], tuple(types))
    if name in ("UPPER", "LOWER") and isinstance(types[0], (CharType, VarCharType)):
        return Resolved(VarCharType(2147483647, nullable), tuple(types))
    if name == "PROCTIME":
        from millstream.sql.bind.expressions import PROCTIME

        return Resolved(PROCTIME.type, ())
    if name == "COALESCE":
        kind = type_rules.common_type(types)
        return None if kind is None else Resolved(
            kind.with_nullability(all(t.is_nullable for t in types)), tuple([kind] * len(types))
        )
    return None
