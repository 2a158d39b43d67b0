"""The steps of the Table API: each takes a relation and expressions of syntax, and returns a relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import cast as typed

from millstream.sql.bind import steps
from millstream.sql.bind.errors import Refused
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.relations import Given, joined_fields
from millstream.sql.bind.scope import Scope
from millstream.sql.bind.terms import has_aggregate
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Join, JoinKind, Node

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


class TableSteps:
    """What `Table` is made of; a part of `Binder`."""

    def filter(self, node: Node, condition: syntax.Expression) -> Node:
        """Return the rows for which a condition is true."""
        bound = ExpressionBinder(typed("Binder", self), Scope.of(node.fields)).boolean(condition, "filter")
        if has_aggregate(bound):
            raise Refused("An aggregate cannot stand in a filter; group first")
        return steps.filtered(node, bound)

    def select(self, node: Node, items: Sequence[syntax.SelectItem]) -> Node:
        """Return columns, or aggregates of all rows."""
        return self.aggregate(node, None, items)

    def aggregate(
        self, node: Node, keys: Sequence[syntax.Expression] | None, items: Sequence[syntax.SelectItem]
    ) -> Node:
        """Return a row for each group; of no keys at all (None), plain columns or one group."""
        from millstream.sql.bind.select import SelectBinder

        group = None if keys is None else tuple(keys)
        select = syntax.Select(tuple(items), relation=Given(node), group=group)
        return SelectBinder(typed("Binder", self), select, None).bound()[0]

    def join(
        self, left: Node, right: Node, condition: syntax.Expression | None = None, kind: JoinKind = JoinKind.INNER
    ) -> Node:
        """Return pairs of rows; both sides' columns must have different names."""
        common = set(left.fields.names) & set(right.fields.names)
        if common:
            raise Refused(f"join relations with ambiguous names: [{', '.join(sorted(common))}]")
        fields = joined_fields(kind, left.fields, right.fields)
        both = Scope.of(left.fields).beside(Scope.of(right.fields))
        bound = None
        if condition is not None:
            bound = ExpressionBinder(typed("Binder", self), both).boolean(condition, "join")
        return Join(fields, left, right, kind, condition=bound)

    def set_operation(self, operator: str, all_: bool, left: Node, right: Node) -> Node:
        """Return UNION, INTERSECT or EXCEPT."""
        return steps.set_operation(operator, all_, left, right)

    def distinct(self, node: Node) -> Node:
        """Return each row once."""
        return steps.distinct(node)

    def order(self, node: Node, keys: Sequence[syntax.SortKey]) -> Node:
        """Return rows in an order."""
        query = syntax.Ordered(syntax.Select((syntax.SelectItem(syntax.Star()),), Given(node)), tuple(keys))
        return typed("Binder", self).query(query)

    def limit(self, node: Node, offset: int = 0, fetch: int | None = None) -> Node:
        """Return some of the rows."""
        return steps.sorted_by(node, (), offset, fetch)

    def rename(self, node: Node, names: Sequence[str]) -> Node:
        """Return the rows with other names of columns; those behind the names given keep theirs."""
        if len(names) > len(node.fields):
            raise Refused(f"There are {len(names)} names for {len(node.fields)} columns")
        return steps.renamed(node, [*names, *node.fields.names[len(names) :]])
