"""Binds SELECT: FROM, WHERE, the select items, HAVING, QUALIFY and ORDER BY; `grouping.py` binds GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from millstream.common.configuration import parse_duration_ms
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.bind import relation_builder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.grouping import Groups, GroupWindow, NotGrouped, grouping_sets
from millstream.sql.bind.scope import BindError, Scope, Source
from millstream.sql.bind.unbound_calls import TypedExpression, has_aggregate, is_over_free
from millstream.sql.bind.windows import with_overs
from millstream.sql.expressions import Column, Constant, Expression
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Join, Node
from millstream.sql.types import IntegralType, RowType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


# Functions without parentheses, which name their columns.
_LIKE_NAMES = frozenset(["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"])


@fast_dataclass
class Item:
    """A select item: its expression, its name, and whether that is an alias."""

    value: syntax.Expression
    name: str
    is_named: bool


class SelectBinder:
    """Binds one SELECT."""

    def __init__(self, binder: Binder, select: syntax.Select, outer: Scope | None) -> None:
        self._binder = binder
        self._select = select
        node, scope = binder.relation(select.relation, outer, select.hints)
        self._state_ttl = state_ttl(select, scope)
        if self._state_ttl is not None and isinstance(node, Join):
            node = replace(node, state_ttl=self._state_ttl, side_ttls=side_ttls(select, scope, len(node.left.fields)))
        if select.where is not None:
            condition = ExpressionBinder(binder, scope).boolean(select.where, "WHERE")
            self._refuse_aggregate(condition, "WHERE", select.where)
            node = relation_builder.filtered(node, condition)
        self._node, self._scope = node, scope
        self._items = expanded(select.items, scope)

    @staticmethod
    def _refuse_aggregate(e: Expression, clause: str, source: syntax.Expression) -> None:
        if has_aggregate(e):
            raise BindError(f"Aggregate expression is illegal in {clause} clause", source.position)

    def bound(self, order: Sequence[syntax.SortKey] = ()) -> tuple[Node, list[tuple[int, bool, bool]], int]:
        """Return the relation with sort keys appended, and the number of its own columns."""
        values = [self._expressions().raw(i.value) for i in self._items]
        keys = self._sort_keys(order, values)
        hidden = [key for key, _, _ in keys if isinstance(key, Expression)]
        node, computed = self._computed([*values, *hidden], values)
        names = [i.name for i in self._items]
        if not self._select.distinct:
            names += _hidden_names(computed[len(values) :], node.fields.names, names)
            return relation_builder.project(node, computed, names), _placed(keys, len(values)), len(values)
        if hidden:
            raise BindError("Expression in ORDER BY of SELECT DISTINCT must be in the select list", order[0].position)
        return (
            relation_builder.distinct(relation_builder.project(node, computed, names)),
            _placed(keys, len(values)),
            len(values),
        )

    def _expressions(self, values: list[Expression] | None = None) -> ExpressionBinder:
        """Return an expression binder; with the items' values, their aliases are visible."""
        aliases = {} if values is None else {i.name: v for i, v in zip(self._items, values, strict=True) if i.is_named}
        windows = dict(self._select.windows)
        grouped = bool(self._select.group)
        return ExpressionBinder(self._binder, self._scope, windows=windows, grouped=grouped, aliases=aliases)

    def _computed(self, expressions: list[Expression], values: list[Expression]) -> tuple[Node, list[Expression]]:
        """Return a relation over which the items can be computed, and the items: groups, HAVING, OVER, QUALIFY."""
        select = self._select
        having = None if select.having is None else self._expressions().boolean(select.having, "HAVING")
        qualify = None if select.qualify is None else self._expressions(values).boolean(select.qualify, "QUALIFY")
        node = self._node
        computed = expressions if qualify is None else [*expressions, qualify]
        if select.group is not None or having is not None or any(map(has_aggregate, computed)):
            node, computed, having = self._grouped(computed, having)
        if having is not None:
            node = relation_builder.filtered(node, having)
        node, computed = with_overs(node, computed)
        if qualify is not None:
            node = relation_builder.filtered(node, computed.pop())
        return node, computed

    # --- ORDER BY

    def _sort_keys(
        self, order: Sequence[syntax.SortKey], values: list[Expression]
    ) -> list[tuple[int | Expression, bool, bool]]:
        result: list[tuple[int | Expression, bool, bool]] = []
        for key in order:
            first = not key.descending if key.nulls_first is None else key.nulls_first
            result.append((self._sort_key(key.value, values), key.descending, first))
        return result

    def _sort_key(self, key: syntax.Expression, values: list[Expression]) -> int | Expression:
        if isinstance(key, syntax.Literal) and key.kind == "INTEGER":
            return ordinal(key, len(values))
        if isinstance(key, syntax.Name) and len(key.parts) == 1:
            for i, item in enumerate(self._items):
                if item.name == key.parts[0] and item.is_named:
                    return i
        bound = self._expressions(values).raw(key)
        return values.index(bound) if bound in values else bound

    # --- GROUP BY

    def _grouped(
        self, expressions: list[Expression], having: Expression | None
    ) -> tuple[Node, list[Expression], Expression | None]:
        groups = self._groups()
        named = [*(i.name for i in self._items), *([None] * (len(expressions) - len(self._items)))]
        for value, name in zip(expressions, named, strict=True):
            groups.collect(value, name)
        if having is not None:
            groups.collect(having)
        rewritten = [self._over_groups(groups, w) for w in expressions]
        condition = None if having is None else self._over_groups(groups, having)
        return groups.node(), rewritten, condition

    def _over_groups(self, groups: Groups, e: Expression) -> Expression:
        try:
            return groups.rewritten(e)
        except NotGrouped as error:
            raise self._not_grouped(error.column) from None

    def _not_grouped(self, column: Expression) -> BindError:
        """Return the error that names the column as written."""
        assert isinstance(column, Column)
        clauses = (self._select.items, self._select.having, self._select.qualify)
        for name in syntax.walk(clauses):
            if isinstance(name, syntax.Name):
                try:
                    result = self._scope.find(name.parts, name.position)
                except BindError:
                    continue
                if result.level == 0 and result.index == column.index:
                    return BindError(f"Expression '{'.'.join(name.parts)}' is not being grouped", name.position)
        return BindError(
            f"Expression '{self._scope.fields[column.index].name}' is not being grouped", self._select.position
        )

    def _groups(self) -> Groups:
        keys: list[Expression] = []
        names: list[str] = []
        window: GroupWindow | None = None
        elements: list[list[tuple[int, ...]]] = []
        binder = ExpressionBinder(self._binder, self._scope)

        def key(e: syntax.Expression) -> int:
            bound = binder.raw(e)
            self._refuse_aggregate(bound, "GROUP BY", e)
            if not is_over_free(bound):
                raise BindError("Windowed aggregate expression is illegal in GROUP BY clause", e.position)
            if bound not in keys:
                keys.append(bound)
                names.append(self._key_name(bound, names))
            return keys.index(bound)

        for element in self._select.group or ():
            result = self._binder.group_window(element, binder)
            if result is not None:
                if window is not None:
                    raise BindError("Only one window can be in a GROUP BY", element.position)
                window = result
            elif isinstance(element, syntax.GroupingSets):
                elements.append(self._sets(element, key))
            elif isinstance(element, syntax.Call) and element.name == "ROW":
                elements.append([tuple(key(a) for a in element.arguments)])
            else:
                elements.append([(key(element),)])
        return Groups(self._node, keys, names, grouping_sets(elements), window, self._state_ttl)

    def _key_name(self, bound: Expression, names: list[str]) -> str:
        if isinstance(bound, Column):
            name = self._scope.fields[bound.index].name
            if name not in names:
                return name
        return f"$f{len(names)}"

    def _sets(self, element: syntax.GroupingSets, key: Callable[[syntax.Expression], int]) -> list[tuple[int, ...]]:
        parts: list[list[tuple[int, ...]]] = []
        for one in element.sets:
            if isinstance(one, syntax.GroupingSets):
                parts.append(self._sets(one, key))
            else:
                parts.append([tuple(key(e) for e in one)])
        if element.kind == "SETS":
            return [s for part in parts for s in part]
        lists = [part[0] for part in parts]
        if element.kind == "ROLLUP":
            return [_joined(lists[:n]) for n in range(len(lists), -1, -1)]
        return [_joined(chosen) for n in range(len(lists), -1, -1) for chosen in combinations(lists, n)]


def _hidden_names(keys: Sequence[Expression], below: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return names for sort-only columns."""
    result: list[str] = []
    for i, key in enumerate(keys):
        name = below[key.index] if isinstance(key, Column) else ""
        result.append(name if name and name not in taken and name not in result else f"$o{i}")
    return result


def state_ttl(select: syntax.Select, scope: Scope) -> int | None:
    """Return the longest state TTL of the STATE_TTL hints of a SELECT; None without one."""
    return max((length for _, length in _ttls_by_source(select, scope)), default=None)


def side_ttls(select: syntax.Select, scope: Scope, width: int) -> tuple[int | None, int | None]:
    """Return the state TTL of each join side by the hints; `width` columns belong to the left."""
    ttls = _ttls_by_source(select, scope)
    left = max((length for source, length in ttls if source.start < width), default=None)
    return left, max((length for source, length in ttls if source.start >= width), default=None)


def _ttls_by_source(select: syntax.Select, scope: Scope) -> list[tuple[Source, int]]:
    ttls = []
    for hint in select.hints:
        for table, length in hint.options if hint.name == "STATE_TTL" else ():
            sources = [s for s in scope.sources if s.matches(tuple(table.split(".")))]
            if not sources:
                raise BindError(
                    f"The options of following hints cannot match the name of input tables: `{table}`", hint.position
                )
            ttls.append((sources[0], parse_duration_ms(length)))
    return ttls


def _joined(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({k for part in parts for k in part}))


def expanded(items: Sequence[syntax.SelectItem], scope: Scope) -> list[Item]:
    """Return the select items with stars expanded and names assigned."""
    result: list[Item] = []
    for item in items:
        value = item.value
        if isinstance(value, syntax.Star):
            result += _star(value, scope)
        elif item.alias is not None:
            result.append(Item(value, item.alias, True))
        elif isinstance(value, syntax.Name):
            result.append(Item(value, value.parts[-1], True))
        elif isinstance(value, syntax.Field):
            result.append(Item(value, value.name, True))
        elif isinstance(value, syntax.Call) and value.name in _LIKE_NAMES and not value.arguments:
            result.append(Item(value, value.name, False))
        else:
            result.append(Item(value, f"EXPR${len(result)}", False))
    return _distinct_names(result)


def _star(star: syntax.Star, scope: Scope) -> list[Item]:
    try:
        columns = scope.star(star.parts, star.position)
    except BindError:
        row = _row_of(star, scope)
        if row is None:
            raise
        parts = star.parts
        return [Item(syntax.Name((*parts, f.name), position=star.position), f.name, True) for f in row]
    if not columns:
        raise BindError("SELECT * requires a FROM clause", star.position)
    return [Item(TypedExpression(Column(f.type, i), position=star.position), f.name, True) for i, f in columns]


def _row_of(star: syntax.Star, scope: Scope) -> RowType | None:
    """Return the row type whose fields `r.*` expands."""
    try:
        result = scope.find(star.parts, star.position)
    except BindError:
        return None
    kind = result.field.type
    for name in result.rest:
        kind = kind[name].data_type if isinstance(kind, RowType) else kind
    return kind if isinstance(kind, RowType) else None


def _distinct_names(items: list[Item]) -> list[Item]:
    """Number columns with duplicate names, as Flink does."""
    seen: set[str] = set()
    result: list[Item] = []
    for item in items:
        name, number = item.name, 0
        while name in seen:
            name = f"{item.name}{number}"
            number += 1
        seen.add(name)
        result.append(Item(item.value, name, item.is_named))
    return result


def _placed(keys: Sequence[tuple[int | Expression, bool, bool]], own: int) -> list[tuple[int, bool, bool]]:
    """Return the indexes of sort keys: select items, or columns appended to them."""
    result = []
    for key, descending, first in keys:
        if isinstance(key, int):
            result.append((key, descending, first))
        else:
            result.append((own, descending, first))
            own += 1
    return result


def ordinal(key: syntax.Literal, count: int) -> int:
    """Return the index that an ordinal in ORDER BY refers to."""
    number = int(key.text)
    if not 1 <= number <= count:
        raise BindError("Ordinal out of range", key.position)
    return number - 1


def whole_number(binder: Binder, e: syntax.Expression | None, clause: str) -> int | None:
    """Return the number of a LIMIT or OFFSET."""
    if e is None:
        return None
    value = binder.folded(ExpressionBinder(binder, Scope()).bind(e))
    if not isinstance(value, Constant) or not isinstance(value.type, IntegralType) or value.value < 0:
        raise BindError(f"{clause} must be a non-negative integer", e.position)
    assert isinstance(value.value, int)
    return value.value
