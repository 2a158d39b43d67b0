"""Binds MATCH_RECOGNIZE: names in its expressions refer to rows matched by pattern variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from millstream.sql.bind import relation_builder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import BindError, Scope
from millstream.sql.bind.unbound_calls import PROCTIME, TypedExpression, cast
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import AggregateCall, Column, Constant, Expression
from millstream.sql.language import syntax
from millstream.sql.language.unparser import to_sql
from millstream.sql.plan.nodes import Definition, Match, MatchStep, Node, Reference
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataType, DayTimeIntervalType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder

_Part = TypeVar("_Part")
# Maps an expression over a row to a column.
ColumnIndex = Callable[[Expression], int]


def matched(binder: Binder, relation: syntax.Matched, node: Node, scope: Scope) -> Match:
    """Return the node of a MATCH_RECOGNIZE clause."""
    _check(relation)
    row_binder = ExpressionBinder(binder, scope)
    columns = relation_builder.columns(node.fields)
    names = list(node.fields.names)

    def column_of(e: Expression) -> int:
        if e in columns:
            return columns.index(e)
        columns.append(e)
        names.append(f"$f{len(columns) - 1}")
        return len(columns) - 1

    partition = tuple(_column(row_binder.raw(e), "PARTITION BY", e.position) for e in relation.partition)
    order = _order(relation, row_binder, node)
    variables = [s.variable for s in relation.pattern]
    measured = _References(binder, scope, row_binder, variables, column_of, order[0][0], node)
    measures = [measured.bound(e) for e, _ in relation.measures]
    definitions = []
    for variable, condition in relation.define:
        result = _References(binder, scope, row_binder, variables, column_of, order[0][0], node)
        definitions.append(Definition(variable, result.boolean(condition), tuple(result.references)))
    own = [node.fields[p] for p in partition]
    created = [
        Field(name, e.type, TimeAttribute.ROWTIME if measured.is_rowtime(e) else _time_of(e))
        for e, (_, name) in zip(measures, relation.measures, strict=True)
    ]
    below = relation_builder.project(node, columns, names)
    return Match(
        Fields((*own, *created)),
        below,
        partition,
        order,
        node.fields[order[0][0]].time is not TimeAttribute.PROCTIME,
        tuple(MatchStep(s.variable, s.min_count, s.max_count, s.reluctant) for s in relation.pattern),
        relation.skip,
        _within_millis(binder, row_binder, relation),
        tuple(definitions),
        tuple(measured.references),
        tuple(measures),
        _text(relation),
    )


def _time_of(e: Expression) -> TimeAttribute | None:
    return TimeAttribute.PROCTIME if e == PROCTIME else None


def _check(relation: syntax.Matched) -> None:
    if relation.rows == "ALL":
        raise TableException("All rows per match mode is not supported yet.")
    if relation.subsets:
        raise BindError("SUBSET is not supported yet", relation.position)
    last = relation.pattern[-1]
    if last.max_count != last.min_count and not last.reluctant and not (last.min_count == 0 and last.max_count == 1):
        raise TableException(
            "Greedy quantifiers are not allowed as the last element of a Pattern yet. Finish your pattern with either "
            "a simple variable or reluctant quantifier."
        )
    for step in relation.pattern:
        if step.reluctant and step.min_count == 0 and step.max_count == 1:
            raise TableException("Reluctant optional variables are not supported yet.")
    if all(s.min_count == 0 for s in relation.pattern):
        raise TableException(
            "Patterns that can produce empty matches are not supported. There must be at least one non-optional state."
        )
    known = {s.variable for s in relation.pattern}
    for variable, _ in relation.define:
        if variable not in known:
            raise BindError(f"Pattern variable '{variable}' has no occurrence in the pattern", relation.position)


def _column(e: Expression, clause: str, position: int) -> int:
    if not isinstance(e, Column):
        raise BindError(f"{clause} of MATCH_RECOGNIZE must use columns only", position)
    return e.index


def _order(relation: syntax.Matched, binder: ExpressionBinder, node: Node) -> tuple[tuple[int, bool, bool], ...]:
    result = []
    for key in relation.order:
        nulls_first = not key.descending if key.nulls_first is None else key.nulls_first
        result.append((_column(binder.raw(key.value), "ORDER BY", key.position), key.descending, nulls_first))
    if not result or node.fields[result[0][0]].time is None:
        raise ValidationException("You must specify either rowtime or proctime for order by.")
    if result[0][1]:
        raise ValidationException("Primary sort order of a streaming table must be ascending on time.")
    return tuple(result)


def _within_millis(binder: Binder, row_binder: ExpressionBinder, relation: syntax.Matched) -> int | None:
    if relation.within is None:
        return None
    length = binder.folded(row_binder.bind(relation.within))
    if not isinstance(length, Constant) or not isinstance(length.type, DayTimeIntervalType):
        raise TableException("Only constant intervals with millisecond resolution are supported as time constraints.")
    return int(length.value)


def _text(relation: syntax.Matched) -> str:
    """Return the pattern and its conditions as text, for the operator's name."""
    pattern = " ".join(f"{s.variable}{_quantified(s)}" for s in relation.pattern)
    define = ", ".join(f"{name} AS {to_sql(e)}" for name, e in relation.define)
    measures = ", ".join(f"{to_sql(e)} AS {name}" for e, name in relation.measures)
    skip = f", after=[SKIP {' '.join(relation.skip)}]" if relation.skip else ""
    return f"measures=[{measures}]{skip}, pattern=[({pattern})], define=[{define}]"


def _quantified(step: syntax.PatternStep) -> str:
    if step.min_count == step.max_count == 1:
        return ""
    upper = "" if step.max_count is None else str(step.max_count)
    return f"{{{step.min_count},{upper}}}{'?' if step.reluctant else ''}"


@dataclass
class _References:
    """The expressions of one clause, over numbered references to matched rows."""

    binder: Binder
    scope: Scope
    row_binder: ExpressionBinder
    variables: Sequence[str]
    column_of: ColumnIndex
    time: int
    node: Node
    references: list[Reference] = field(default_factory=list)

    def bound(self, e: syntax.Expression) -> Expression:
        """Return an expression over the references."""
        resolved = self._resolved(e)
        return ExpressionBinder(self.binder, self._references_scope()).bind(resolved)

    def boolean(self, e: syntax.Expression) -> Expression:
        """Return a condition over the references."""
        resolved = self._resolved(e)
        return ExpressionBinder(self.binder, self._references_scope()).boolean(resolved, "DEFINE")

    def _references_scope(self) -> Scope:
        return Scope.of(Fields(tuple(Field(f"$r{i}", r.type) for i, r in enumerate(self.references))))

    def is_rowtime(self, e: Expression) -> bool:
        """Return whether an expression is the time of the match."""
        return isinstance(e, Column) and self.references[e.index].function == "ROWTIME"

    def _resolved(self, e: syntax.Expression) -> syntax.Expression:
        """Return an expression with references to matched rows replaced by columns."""
        return syntax.replaced(e, self._replacement)

    def _replacement(self, node: syntax.Node) -> TypedExpression | None:
        if isinstance(node, syntax.Name):
            return self._shifted("LAST", node, 0)
        if not isinstance(node, syntax.Call):
            return None
        name = node.name.upper()
        if name in ("FIRST", "LAST"):
            return self._shifted(name, node.arguments[0], self._offset(node))
        if name == "MATCH_ROWTIME":
            return self._column(Reference("ROWTIME", None, self.time, 0, self.node.fields[self.time].type))
        if name == "MATCH_PROCTIME":
            return TypedExpression(PROCTIME)
        return self._aggregate(node) if self.binder.functions.kind(node.name) == "aggregate" else None

    def _column(self, reference: Reference) -> TypedExpression:
        if reference not in self.references:
            self.references.append(reference)
        return TypedExpression(Column(reference.type, self.references.index(reference)))

    def _offset(self, call: syntax.Call) -> int:
        if len(call.arguments) < 2:
            return 0
        number = self.binder.folded(self.row_binder.bind(call.arguments[1]))
        if not isinstance(number, Constant) or not isinstance(number.value, int):
            raise BindError(f"The offset of {call.name} must be a constant", call.position)
        return number.value

    def _shifted(self, function: str, value: syntax.Expression, offset: int) -> TypedExpression:
        variable, stripped = self._of_variable(value)
        bound = self.row_binder.bind(stripped)
        return self._column(Reference(function, variable, self.column_of(bound), offset, bound.type.nullable()))

    def _aggregate(self, call: syntax.Call) -> TypedExpression:
        is_star = len(call.arguments) == 1 and isinstance(call.arguments[0], syntax.Star)
        variable, stripped = (None, ()) if is_star else self._of_variable(call.arguments)
        values = [self.row_binder.bind(a) for a in stripped]
        try:
            resolved = self.binder.functions.aggregate(call.name, values, False)
        except ValidationException as error:
            raise BindError(str(error), call.position) from None
        columns = tuple(self.column_of(cast(a, t)) for a, t in zip(values, resolved.arguments, strict=True))
        kind: DataType = resolved.type
        result = AggregateCall(self.binder.functions.canonical(call.name), columns, kind, call.distinct)
        return self._column(Reference("AGGREGATE", variable, 0, 0, kind, result))

    def _of_variable(self, part: _Part) -> tuple[str | None, _Part]:
        """Return the pattern variable of expressions, None for all, and the expressions without it."""
        variables: set[str | None] = set()

        def unqualified(node: syntax.Node) -> syntax.Name | None:
            if not isinstance(node, syntax.Name):
                return None
            is_variable = len(node.parts) > 1 and node.parts[0] in self.variables
            variables.add(node.parts[0] if is_variable else None)
            return replace(node, parts=node.parts[1:]) if is_variable else node

        stripped = syntax.replaced(part, unqualified)
        if len(variables) > 1:
            raise ValidationException(
                "Aggregation must be applied to a single pattern variable, and so must FIRST and LAST."
            )
        return (variables.pop() if variables else None), stripped
