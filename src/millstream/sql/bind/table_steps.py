"""Table API operations on relations with syntactic expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import cast as typed

from millstream.sql.bind import relation_builder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.functions import resolved_user_call
from millstream.sql.bind.relations import BoundRelation, joined_fields
from millstream.sql.bind.scope import BindError, Scope
from millstream.sql.bind.select import SelectBinder
from millstream.sql.bind.unbound_calls import cast, has_aggregate
from millstream.sql.expressions import AggregateCall
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Join, JoinKind, Node, Project, Sort, TableAggregate
from millstream.sql.schema import Field, Fields
from millstream.sql.types import RowType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


class TableSteps:
    """The Table API's part of `Binder`."""

    def filter(self, node: Node, condition: syntax.Expression) -> Node:
        """Return the rows that satisfy a condition."""
        bound = ExpressionBinder(typed("Binder", self), Scope.of(node.fields)).boolean(condition, "filter")
        if has_aggregate(bound):
            raise BindError("A filter must not contain an aggregate; call group_by() first")
        return relation_builder.filtered(node, bound)

    def changelog(self, function: str, node: Node, arguments: Sequence[syntax.Expression]) -> Node:
        """Return TO_CHANGELOG or FROM_CHANGELOG of a relation."""
        named = [a for a in arguments if isinstance(a, syntax.Argument)]
        if len(named) < len(arguments):
            raise BindError(f"Arguments of {function} must be named: descriptor('op').as_argument('op')")
        call_arguments = (syntax.TableArgument(BoundRelation(node)), *(a.value for a in named))
        call = syntax.Call(function, call_arguments, names=("input", *(a.name for a in named)))
        return typed("Binder", self).function_of_table(call)

    def select(self, node: Node, items: Sequence[syntax.SelectItem]) -> Node:
        """Return a projection, or a global aggregate."""
        return self.aggregate(node, None, items)

    def aggregate(
        self, node: Node, keys: Sequence[syntax.Expression] | None, items: Sequence[syntax.SelectItem]
    ) -> Node:
        """Return a grouped projection; for keys None, a projection or a global aggregate."""
        group = None if keys is None else tuple(keys)
        select = syntax.Select(tuple(items), relation=BoundRelation(node), group=group)
        return SelectBinder(typed("Binder", self), select, None).bound()[0]

    def table_aggregate(
        self, node: Node, keys: Sequence[syntax.SelectItem], call: syntax.Call, names: Sequence[str]
    ) -> Node:
        """Return the rows of a table aggregate function per group."""
        sql_binder = typed("Binder", self)
        binder = ExpressionBinder(sql_binder, Scope.of(node.fields))
        user = sql_binder.user_function(call.name)
        if user is None or user.kind != "table_aggregate":
            raise BindError(f"flat_aggregate() requires a table aggregate function, and {call.name} is not one")
        keyed = [binder.bind(k.value) for k in keys]
        arguments_bound = [binder.bind(a) for a in call.arguments]
        resolved = resolved_user_call(call.name, user, [a.type for a in arguments_bound], call.position)
        assert resolved.type is not None
        arguments_bound = [cast(a, t) for a, t in zip(arguments_bound, resolved.arguments, strict=True)]
        width = len(keyed)
        below = relation_builder.project(
            node, [*keyed, *arguments_bound], [f"$f{i}" for i in range(width + len(arguments_bound))]
        )
        if isinstance(resolved.type, RowType):
            created = list(zip(resolved.type.names, resolved.type.field_types(), strict=True))
        else:
            created = [("f0", resolved.type)]
        called = [*names, *(name for name, _ in created[len(names) :])]
        fields = [Field(k.alias or f"$f{i}", e.type) for i, (k, e) in enumerate(zip(keys, keyed, strict=True))]
        fields += [Field(name, kind) for name, (_, kind) in zip(called, created, strict=True)]
        arguments = tuple(range(width, width + len(arguments_bound)))
        aggregate = AggregateCall(
            call.name, arguments, resolved.type, user=user, argument_types=tuple(a.type for a in arguments_bound)
        )
        return TableAggregate(Fields(tuple(fields)), below, tuple(range(width)), aggregate)

    def join(
        self, left: Node, right: Node, condition: syntax.Expression | None = None, kind: JoinKind = JoinKind.INNER
    ) -> Node:
        """Return a join; both sides' columns must have distinct names."""
        common = set(left.fields.names) & set(right.fields.names)
        if common:
            raise BindError(f"join relations with ambiguous names: [{', '.join(sorted(common))}]")
        fields = joined_fields(kind, left.fields, right.fields)
        both = Scope.of(left.fields).joined(Scope.of(right.fields))
        bound = None
        if condition is not None:
            bound = ExpressionBinder(typed("Binder", self), both).boolean(condition, "join")
        return Join(fields, left, right, kind, condition=bound)

    def set_operation(self, operator: str, all_: bool, left: Node, right: Node) -> Node:
        """Return UNION, INTERSECT or EXCEPT."""
        return relation_builder.set_operation(operator, all_, left, right)

    def distinct(self, node: Node) -> Node:
        """Return the distinct rows."""
        return relation_builder.distinct(node)

    def order(self, node: Node, keys: Sequence[syntax.SortKey]) -> Node:
        """Return the relation sorted."""
        query = syntax.Ordered(syntax.Select((syntax.SelectItem(syntax.Star()),), BoundRelation(node)), tuple(keys))
        return typed("Binder", self).query(query)

    def limit(self, node: Node, offset: int | None, fetch: int | None, is_sorted: bool) -> Node:
        """Return the relation limited; `is_sorted` completes a preceding `order_by`, `offset` or `fetch`."""
        if offset is not None and offset < 0:
            raise BindError("Offset should be greater or equal 0")
        if fetch is not None and fetch < 0:
            raise BindError("FETCH count must be equal or larger than 0.")
        if is_sorted and isinstance(node, Project):
            # The order uses an expression that is not a column.
            return replace(node, input=self.limit(node.input, offset, fetch, is_sorted))
        if not is_sorted or not isinstance(node, Sort):
            return Sort(node.fields, node, (), offset or 0, fetch)
        if node.limit is not None:
            raise BindError("FETCH is already defined.")
        if offset is not None and node.offset:
            raise BindError("OFFSET already defined")
        return replace(node, offset=node.offset if offset is None else offset, limit=fetch)

    def rename(self, node: Node, names: Sequence[str]) -> Node:
        """Return the relation with renamed columns; columns beyond the names keep theirs."""
        if len(names) > len(node.fields):
            raise BindError(
                f"Aliasing more fields than we actually have: {len(names)} names for {len(node.fields)} columns"
            )
        every = [*names, *node.fields.names[len(names) :]]
        if len(set(every)) < len(every):
            raise BindError(f"Ambiguous column name: {next(n for n in every if every.count(n) > 1)}")
        return relation_builder.renamed(node, every)
