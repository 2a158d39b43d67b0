"""Binds expressions: resolves names to columns, derives types and adds implicit casts.

Calls that are not plain functions: `CASE` (condition, value, .., default), `CAST`, `TRY_CAST` (to the call's type),
`FIELD` (a row; option: the field's name), `ITEM` (array or map, index), `ROW`, `ARRAY`, `MAP` (elements), `IN` (value,
then constants), `PROCTIME` (the current time). Keywords such as time units are options, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from millstream.common.dispatch import MethodDispatch
from millstream.sql import type_rules
from millstream.sql.bind import literals
from millstream.sql.bind.aggregates import AggregateBinder
from millstream.sql.bind.functions import UserFunction, resolved_user_call
from millstream.sql.bind.scope import BindError, Scope
from millstream.sql.bind.unbound_calls import (
    BOOLEAN,
    GROUP_FUNCTIONS,
    GROUP_WINDOWS,
    PROCTIME,
    TypedExpression,
    cast,
    comparison_type,
)
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Column, Constant, Expression, Option, UserCall, conjunction, disjunction
from millstream.sql.language import syntax
from millstream.sql.plan.subqueries import Outer, Subquery, SubqueryKind
from millstream.sql.schema import TimeAttribute
from millstream.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    NullType,
    RowField,
    RowType,
)

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


class ExpressionBinder(AggregateBinder):
    """Binds the expressions of one clause."""

    def __init__(
        self,
        binder: Binder,
        scope: Scope,
        *,
        windows: dict[str, syntax.Window] | None = None,
        grouped: bool = False,
        aliases: dict[str, Expression] | None = None,
    ) -> None:
        super().__init__(binder, windows or {}, grouped)
        self._scope = scope
        self._aliases = aliases or {}

    # --- entry

    def bind(self, e: syntax.Expression) -> Expression:
        """Return the typed expression; a processing time attribute becomes the current time."""
        return self._materialized(self.raw(e))

    def raw(self, e: syntax.Expression) -> Expression:
        """Return the typed expression; a processing time attribute stays one."""
        handler = _HANDLERS.get(e)
        if handler is None:
            raise BindError(f"{type(e).__name__} is not allowed here", e.position)
        return handler(self, e)

    def boolean(self, e: syntax.Expression, clause: str) -> Expression:
        """Return a condition."""
        result = self.bind(e)
        if isinstance(result.type, NullType):
            return Constant(BOOLEAN, None)
        if not isinstance(result.type, BooleanType):
            raise BindError(f"{clause} clause must be a condition, but it is of type {result.type}", e.position)
        return result

    def time_of(self, e: Expression) -> TimeAttribute | None:
        """Return the type of time attribute of an expression, if any."""
        if isinstance(e, Column):
            return self._scope.fields[e.index].time
        return TimeAttribute.PROCTIME if isinstance(e, Call) and e.function == "PROCTIME" else None

    def _materialized(self, e: Expression) -> Expression:
        return PROCTIME if isinstance(e, Column) and self.time_of(e) is TimeAttribute.PROCTIME else e

    # --- names and literals

    def _name(self, e: syntax.Name) -> Expression:
        if len(e.parts) == 1 and e.parts[0] in self._aliases:
            return self._aliases[e.parts[0]]
        result = self._scope.find(e.parts, e.position)
        column: Expression = (
            Column(result.field.type, result.index)
            if result.level == 0
            else Outer(result.field.type, result.index, result.level)
        )
        for name in result.rest:
            column = self._member(column, name, e.position)
        return column

    def _member(self, value: Expression, name: str, position: int) -> Expression:
        kind = value.type
        if not isinstance(kind, RowType):
            raise BindError(f"Column '{name}' not found: a value of type {kind} has no fields", position)
        for field in kind:
            if field.name == name:
                nullable = field.data_type.is_nullable or kind.is_nullable
                return Call(field.data_type.with_nullability(nullable), "FIELD", (value,), (name,))
        raise BindError(f"Column '{name}' not found in the fields {', '.join(kind.names)}", position)

    def _field(self, e: syntax.Field) -> Expression:
        return self._member(self.bind(e.value), e.name, e.position)

    def _literal(self, e: syntax.Literal) -> Expression:
        return literals.constant(e)

    def _interval(self, e: syntax.Interval) -> Expression:
        return literals.interval(e)

    def _star(self, e: syntax.Star) -> Expression:
        raise BindError("'*' is allowed only as an item of SELECT and in COUNT(*)", e.position)

    def _typed(self, e: TypedExpression) -> Expression:
        return e.value

    # --- calls

    def _cast(self, e: syntax.Cast) -> Expression:
        try:
            return self._binder.functions.cast(self.bind(e.value), e.type, e.lenient)
        except ValidationException as error:
            raise BindError(str(error), e.position) from None

    def _case(self, e: syntax.Case) -> Expression:
        conditions: list[Expression] = []
        for when, _ in e.branches:
            test = when if e.value is None else syntax.Call("=", (e.value, when), position=when.position)
            conditions.append(self.boolean(test, "WHEN"))
        values = [self.bind(then) for _, then in e.branches]
        values.append(Constant(NullType(), None) if e.otherwise is None else self.bind(e.otherwise))
        kind = type_rules.least_restrictive([v.type for v in values])
        if kind is None:
            raise BindError("Illegal mixing of types in CASE or COALESCE statement", e.position)
        if isinstance(kind, NullType):
            raise BindError("ELSE clause or at least one THEN clause must be non-NULL", e.position)
        values = [cast(v, kind) for v in values]
        arguments = [x for pair in zip(conditions, values, strict=False) for x in pair]
        return Call(kind, "CASE", (*arguments, values[-1]))

    def _call(self, e: syntax.Call) -> Expression:
        if e.names:
            raise BindError(f"Arguments of {e.name} are positional, not named", e.position)
        special = _CALLS.get(e.name.upper())
        if special is not None:
            return special(self, e)
        user = self._binder.user_function(e.name)
        if user is not None:
            return self._user_call(e, user)
        kind = self._binder.functions.kind(e.name)
        if kind == "aggregate":
            return self._aggregate(e)
        if e.over is not None and kind is not None:
            raise BindError(f"OVER must be applied to aggregate function, {e.name} is not one", e.position)
        return self._plain(e)

    def _plain(self, e: syntax.Call) -> Expression:
        if e.distinct or e.condition is not None or e.order:
            raise BindError(
                f"DISTINCT, FILTER and ORDER BY apply only to aggregates, and {e.name} is not one", e.position
            )
        options = tuple(a.word for a in e.arguments if isinstance(a, syntax.Symbol))
        # A comparison of times may bound a processing-time join, which needs the columns themselves.
        bind = self.raw if e.name in _TIME_COMPARISONS else self.bind
        arguments = [bind(a) for a in e.arguments if not isinstance(a, syntax.Symbol)]
        return self.call(e.name, arguments, options, e.position)

    def call(
        self, name: str, arguments: Sequence[Expression], options: tuple[Option, ...] = (), position: int | None = None
    ) -> Expression:
        """Return a call of a built-in function with typed arguments."""
        try:
            return self._binder.functions.call(name, arguments, options)
        except ValidationException as e:
            raise BindError(str(e), position) from None

    def _user_call(self, e: syntax.Call, user: UserFunction) -> Expression:
        if user.kind not in ("scalar", "aggregate"):
            raise BindError(
                f"'{e.name}' is a table function; call it in FROM as LATERAL TABLE({e.name}(..))", e.position
            )
        arguments = [self.bind(a) for a in e.arguments]
        resolved = resolved_user_call(e.name, user, [a.type for a in arguments], e.position)
        assert resolved.type is not None
        arguments_cast = tuple(cast(a, t) for a, t in zip(arguments, resolved.arguments, strict=True))
        if user.kind == "aggregate":
            return self._aggregated(e, arguments_cast, resolved.type, user)
        return UserCall(resolved.type, e.name, user, arguments_cast)

    def _between(self, e: syntax.Call) -> Expression:
        value, low, high = e.arguments
        within = _both(_binary(">=", value, low, e.position), _binary("<=", value, high, e.position))
        if e.name == "BETWEEN SYMMETRIC":
            reversed_ = _both(_binary(">=", value, high, e.position), _binary("<=", value, low, e.position))
            within = syntax.Call("OR", (within, reversed_), position=e.position)
        return self.raw(within)

    def _item(self, e: syntax.Call) -> Expression:
        if len(e.arguments) == 2 and isinstance(e.arguments[1], syntax.Literal) and e.arguments[1].kind == "STRING":
            value = self.bind(e.arguments[0])
            if isinstance(value.type, RowType):
                return self._member(value, e.arguments[1].text, e.position)
        return self._plain(e)

    def _negative(self, e: syntax.Call) -> Expression:
        (argument,) = e.arguments
        number, is_negative = _number_written(e)
        if number is not None:
            return literals.signed_integer(number, is_negative)
        if isinstance(argument, syntax.Literal) and argument.kind in ("DECIMAL", "DOUBLE"):
            return literals.negated(literals.constant(argument))
        if isinstance(argument, syntax.Interval):
            return literals.negated(literals.interval(argument))
        return self._plain(e)

    def _positive(self, e: syntax.Call) -> Expression:
        return self.bind(e.arguments[0])

    def _row(self, e: syntax.Call) -> Expression:
        if not e.arguments:
            raise BindError("ROW takes at least one value", e.position)
        members = [self.bind(a) for a in e.arguments]
        fields = [RowField(f"EXPR${i}", m.type) for i, m in enumerate(members)]
        return Call(RowType(fields, False), "ROW", tuple(members))

    def _array(self, e: syntax.Call) -> Expression:
        if len(e.arguments) == 1 and isinstance(e.arguments[0], syntax.Subquery):
            raise BindError("ARRAY(query) is not supported; use ARRAY_AGG", e.position)
        members = [self.bind(a) for a in e.arguments]
        kind = self._common(members, "ARRAY", e.position)
        return Call(ArrayType(kind, False), "ARRAY", tuple(cast(m, kind) for m in members))

    def _map(self, e: syntax.Call) -> Expression:
        if any(isinstance(a, syntax.Subquery) for a in e.arguments):
            raise BindError("MAP(query) is not supported; use MAP[..] or JSON_OBJECTAGG", e.position)
        members = [self.bind(a) for a in e.arguments]
        if len(members) % 2:
            raise BindError("Map requires an even number of arguments", e.position)
        keys, values = members[::2], members[1::2]
        if any(isinstance(k.type, NullType) for k in keys):
            raise BindError("A key of a MAP cannot be NULL", e.position)
        kind = MapType(self._common(keys, "MAP", e.position), self._common(values, "MAP", e.position), False)
        pairs = zip(keys, values, strict=True)
        elements = [x for k, v in pairs for x in (cast(k, kind.key_type), cast(v, kind.value_type))]
        return Call(kind, "MAP", tuple(elements))

    def _common(self, members: Sequence[Expression], constructor: str, position: int) -> DataType:
        if not members:
            raise BindError(f"Require at least 1 argument in {constructor}[..]", position)
        kind = type_rules.least_restrictive([m.type for m in members])
        if kind is None:
            raise BindError("Parameters must be of the same type", position)
        return kind

    def _units(self, e: syntax.Call) -> Expression:
        """Bind INTERVAL n UNIT with a computed number."""
        count, unit = e.arguments
        assert isinstance(unit, syntax.Symbol)
        bound = self.bind(count)
        kind = literals.interval_type(unit.word, unit.word).with_nullability(bound.type.is_nullable)
        if isinstance(bound, Constant):
            if bound.value is None:
                return Constant(kind, None)
            if not isinstance(bound.value, (int, float, Decimal)) or isinstance(bound.value, bool):
                raise BindError(f"INTERVAL takes a number, not a {bound.type}", e.position)
            return Constant(kind, int(bound.value * literals.unit_value(unit.word)))
        one = Constant(kind.with_nullability(False), literals.unit_value(unit.word))
        return self.call("*", [one, bound], (), e.position)

    def _json(self, e: syntax.Json) -> Expression:
        words = [self._json_default(x) for x in (e.empty, e.error)]
        options = (e.returning, *words, e.wrapper, e.null)
        if e.name.endswith("AGG"):
            *key, value = e.arguments
            shown = value if _is_json(value) else syntax.Call("JSON_STRING", (value,), position=value.position)
            call = syntax.Call(e.name, (*key, shown), condition=e.condition, position=e.position)
            return self._aggregate(call, options)
        arguments = [self.bind(a) for a in e.arguments]
        return self.call(e.name, arguments, options, e.position)

    def _json_default(self, default: str | syntax.Expression | None) -> Option:
        return self.bind(default) if isinstance(default, syntax.Expression) else default

    # --- IN, EXISTS, subqueries

    def _in(self, e: syntax.In) -> Expression:
        if isinstance(e.operands, syntax.Query):
            result = self._in_query(e.value, e.operands, e.position)
        else:
            result = self._in_list(e.value, e.operands, e.position)
        return Call(result.type, "NOT", (result,)) if e.negated else result

    def _in_list(self, value: syntax.Expression, operands: Sequence[syntax.Expression], position: int) -> Expression:
        bound = [self.bind(value), *map(self.bind, operands)]
        types = [b.type for b in bound]
        kind = self._in_type(types, position)
        nullable = any(t.is_nullable for t in types)
        arguments = [cast(b, kind) for b in bound]
        if not all(isinstance(b, Constant) for b in bound[1:]) or isinstance(kind, RowType):
            first = TypedExpression(arguments[0])
            tests = [self.raw(_binary("=", first, TypedExpression(a), position)) for a in arguments[1:]]
            return disjunction(tests)
        return Call(BooleanType(nullable), "IN", tuple(arguments))

    def _in_type(self, types: list[DataType], position: int) -> DataType:
        kind = types[0]
        for other in types[1:]:
            common = comparison_type(kind, other)
            if common is None:
                raise BindError("Values passed to IN operator must have compatible types", position)
            kind = common
        return kind

    def _in_query(self, value: syntax.Expression, query: syntax.Query, position: int) -> Expression:
        is_row = isinstance(value, syntax.Call) and value.name == "ROW"
        values = [self.bind(v) for v in (value.arguments if is_row and isinstance(value, syntax.Call) else [value])]
        node = self._binder.query(query, outer=self._scope)
        if len(node.fields) != len(values):
            raise BindError("Values passed to IN operator must have compatible types", position)
        kinds = [self._in_type([v.type, f.type], position) for v, f in zip(values, node.fields.fields, strict=True)]
        node = self._binder.cast_to(node, kinds)
        nullable = any(v.type.is_nullable for v in values) or any(f.type.is_nullable for f in node.fields.fields)
        operands = tuple(cast(v, k) for v, k in zip(values, kinds, strict=True))
        return Subquery(BooleanType(nullable), SubqueryKind.IN, node, operands)

    def _exists(self, e: syntax.Exists) -> Expression:
        node = self._binder.query(e.query, outer=self._scope)
        return Subquery(BooleanType(False), SubqueryKind.EXISTS, node)

    def _subquery(self, e: syntax.Subquery) -> Expression:
        node = self._binder.query(e.query, outer=self._scope)
        if len(node.fields) != 1:
            raise BindError("A scalar subquery must have one column", e.position)
        return Subquery(node.fields[0].type.nullable(), SubqueryKind.SCALAR, node)

    def _quantified(self, e: syntax.Quantified) -> Expression:
        some = e.quantifier in ("SOME", "ANY")
        if isinstance(e.operands, syntax.Query):
            if some and e.operator == "=":
                return self._in_query(e.value, e.operands, e.position)
            if not some and e.operator == "<>":
                result = self._in_query(e.value, e.operands, e.position)
                return Call(result.type, "NOT", (result,))
            raise BindError(
                f"{e.operator} {e.quantifier} (query) is not supported; compare with MIN or MAX of it", e.position
            )
        tests = [self.raw(_binary(e.operator, e.value, x, e.position)) for x in e.operands]
        return disjunction(tests) if some else conjunction(tests)


def _number_written(e: syntax.Expression) -> tuple[syntax.Literal | None, bool]:
    """Return the integer literal below signs, and whether it is negative; None for other expressions."""
    is_negative = False
    while isinstance(e, syntax.Call) and e.name in ("UNARY -", "UNARY +"):
        is_negative ^= e.name == "UNARY -"
        (e,) = e.arguments
    return (e, is_negative) if isinstance(e, syntax.Literal) and e.kind == "INTEGER" else (None, False)


_TIME_COMPARISONS = frozenset(["=", "<", "<=", ">", ">=", "+", "-"])


def _binary(operator: str, left: syntax.Expression, right: syntax.Expression, position: int) -> syntax.Call:
    return syntax.Call(operator, (left, right), position=position)


def _both(left: syntax.Expression, right: syntax.Expression) -> syntax.Call:
    return syntax.Call("AND", (left, right), position=left.position)


def _is_json(e: syntax.Expression) -> bool:
    """Return whether an expression's value is already JSON."""
    if isinstance(e, syntax.Call):
        return e.name.upper() == "JSON"
    return isinstance(e, syntax.Json) and e.name in ("JSON_OBJECT", "JSON_ARRAY")


_HANDLERS = (
    MethodDispatch[ExpressionBinder, [], Expression]()
    .on(syntax.Name, ExpressionBinder._name)
    .on(syntax.Star, ExpressionBinder._star)
    .on(syntax.Literal, ExpressionBinder._literal)
    .on(syntax.Interval, ExpressionBinder._interval)
    .on(syntax.Call, ExpressionBinder._call)
    .on(syntax.Cast, ExpressionBinder._cast)
    .on(syntax.Case, ExpressionBinder._case)
    .on(syntax.Field, ExpressionBinder._field)
    .on(syntax.In, ExpressionBinder._in)
    .on(syntax.Quantified, ExpressionBinder._quantified)
    .on(syntax.Exists, ExpressionBinder._exists)
    .on(syntax.Subquery, ExpressionBinder._subquery)
    .on(syntax.Json, ExpressionBinder._json)
    .on(TypedExpression, ExpressionBinder._typed)
)
_CALLS: dict[str, Callable[[ExpressionBinder, syntax.Call], Expression]] = {
    "BETWEEN": ExpressionBinder._between,
    "BETWEEN SYMMETRIC": ExpressionBinder._between,
    "UNARY -": ExpressionBinder._negative,
    "UNARY +": ExpressionBinder._positive,
    "ITEM": ExpressionBinder._item,
    "ROW": ExpressionBinder._row,
    "ARRAY": ExpressionBinder._array,
    "MAP": ExpressionBinder._map,
    "INTERVAL": ExpressionBinder._units,
    **dict.fromkeys([*GROUP_WINDOWS, *GROUP_FUNCTIONS], ExpressionBinder.group_property),
}
