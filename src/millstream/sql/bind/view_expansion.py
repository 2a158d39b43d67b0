"""Expands a view's query for the catalog: qualifies columns, expands stars.

So a view is stable when its tables get more columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from millstream.sql.bind.scope import Scope
from millstream.sql.bind.select import expanded
from millstream.sql.bind.unbound_calls import TypedExpression
from millstream.sql.expressions import Column
from millstream.sql.language import syntax

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder

_Part = TypeVar("_Part")


def qualified(binder: Binder, query: syntax.Query, outer: Scope | None = None) -> syntax.Query:
    """Return the query with qualified columns; names of a WITH stay as they are."""
    if isinstance(query, syntax.Select):
        return _select(binder, query, outer)
    if isinstance(query, syntax.SetOperation):
        return replace(query, left=qualified(binder, query.left, outer), right=qualified(binder, query.right, outer))
    if isinstance(query, syntax.Ordered) and isinstance(query.query, syntax.Select):
        select = query.query
        _, scope = binder.relation(select.relation, outer)
        aliases = {i.alias for i in select.items if i.alias is not None}
        order = tuple(k if _is_alias(k.value, aliases) else _expression(binder, k, scope) for k in query.order)
        return replace(query, query=_select(binder, select, outer), order=order)
    return query


def _is_alias(e: syntax.Expression, aliases: set[str]) -> bool:
    return isinstance(e, syntax.Name) and len(e.parts) == 1 and e.parts[0] in aliases


def _select(binder: Binder, select: syntax.Select, outer: Scope | None) -> syntax.Select:
    _, scope = binder.relation(select.relation, outer)
    items: list[syntax.SelectItem] = []
    for item in select.items:
        if isinstance(item.value, syntax.Star):
            items += _star(item, scope)
        else:
            items.append(_expression(binder, item, scope))
    relation = None if select.relation is None else _relation(binder, select.relation, outer)
    # QUALIFY may use aliases of select items.
    return replace(
        select,
        items=tuple(items),
        relation=relation,
        where=_expression(binder, select.where, scope),
        group=_expression(binder, select.group, scope),
        having=_expression(binder, select.having, scope),
        windows=_expression(binder, select.windows, scope),
    )


def _star(item: syntax.SelectItem, scope: Scope) -> list[syntax.SelectItem]:
    result = []
    for column in expanded([item], scope):
        value = column.value
        if isinstance(value, TypedExpression) and isinstance(value.value, Column):
            value = _column_name(value.value.index, column.name, scope)
        result.append(syntax.SelectItem(value, position=item.position))
    return result


def _column_name(index: int, name: str, scope: Scope) -> syntax.Name:
    """Return a column's name by index: qualified, unless it is a merged column of a join."""
    if name in scope.merged:
        return syntax.Name((name,))
    source = next(s for s in scope.sources if s.start <= index < s.start + len(s.fields))
    own = source.fields[index - source.start].name
    return syntax.Name((source.path[-1], own)) if source.path else syntax.Name((own,))


def _expression(binder: Binder, part: _Part, scope: Scope) -> _Part:
    """Return an expression, or syntax that contains expressions, with qualified columns."""

    def change(node: syntax.Node) -> syntax.Node | None:
        if isinstance(node, syntax.Query):
            return qualified(binder, node, scope)
        return _name(node, scope) if isinstance(node, syntax.Name) else None

    return syntax.replaced(part, change)


def _name(name: syntax.Name, scope: Scope) -> syntax.Name:
    result = scope.find(name.parts, name.position)
    if len(name.parts) > 1 + len(result.rest):
        return name
    enclosing: Scope | None = scope
    for _ in range(result.level):
        assert enclosing is not None
        enclosing = enclosing.outer
    assert enclosing is not None
    column = _column_name(result.index, name.parts[0], enclosing)
    return syntax.Name((*column.parts, *result.rest), position=name.position)


def _relation(binder: Binder, relation: syntax.Relation, outer: Scope | None) -> syntax.Relation:
    if isinstance(relation, syntax.TableName):
        return syntax.Aliased(relation, relation.parts[-1], position=relation.position)
    if isinstance(relation, syntax.Aliased):
        if isinstance(relation.relation, syntax.TableName):
            return relation
        return replace(relation, relation=_relation(binder, relation.relation, outer))
    if isinstance(relation, syntax.Derived) and not relation.lateral:
        return replace(relation, query=qualified(binder, relation.query, outer))
    if isinstance(relation, syntax.Join):
        _, scope = binder.relation(relation, outer)
        left, right = (_relation(binder, side, outer) for side in (relation.left, relation.right))
        condition = None if relation.condition is None else _expression(binder, relation.condition, scope)
        return replace(relation, left=left, right=right, condition=condition)
    return relation
