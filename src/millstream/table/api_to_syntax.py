"""Translates Table API expressions to syntax for the binder: names, windows and inline functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields as parts_of
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from millstream.common.errors import MillstreamError
from millstream.sql.bind.relations import BoundRelation
from millstream.sql.errors import ValidationException
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Node
from millstream.sql.schema import Fields
from millstream.sql.types import CharType, DataType, DataTypes, RowField, RowType, VarCharType
from millstream.table.api_syntax import (
    Chosen,
    FieldAt,
    InlineCall,
    Operand,
    OverNamed,
    Range,
    TimeMark,
    WindowBound,
)
from millstream.table.expression import Expression, aliases_of, tree_of
from millstream.table.sql_text import OPERATORS, summary
from millstream.table.udf import UserDefinedFunctionWrapper
from millstream.table.window import GroupWindow

if TYPE_CHECKING:
    from millstream.table.statement_planner import StatementPlanner

_Fields = Sequence[Expression]
_Function = Expression | UserDefinedFunctionWrapper
_Change = Callable[[syntax.Node], syntax.Expression | None]
# Functions of `call()` under Table API names that SQL lacks.
_BUILT_IN = {called: name for name, called in OPERATORS.items() if called != name} | {"sum0": "$SUM0"}


def rewritten(tree: syntax.Expression, change: _Change) -> syntax.Expression:
    """Rewrite an expression bottom-up; None from the callback leaves a node unchanged."""
    result = _rewritten_part(tree, change)
    assert isinstance(result, syntax.Expression)
    return result


def _rewritten_part(tree: object, change: _Change) -> object:
    if isinstance(tree, tuple):
        return tuple(_rewritten_part(part, change) for part in tree)
    if not isinstance(tree, syntax.Node):
        return tree
    parts = {f.name: getattr(tree, f.name) for f in parts_of(tree) if f.name != "at"}
    new = {n: _rewritten_part(p, change) for n, p in parts.items()}
    if any(new[n] is not p for n, p in parts.items()):
        tree = replace(tree, **new)  # type: ignore[arg-type]
    changed = change(tree)
    return tree if changed is None else changed


def tables_columns(fields: _Fields, method: str) -> list[str]:
    """Return the names of expressions that must be plain columns."""
    names = []
    for field in fields:
        tree = tree_of(field) if isinstance(field, Expression) else syntax.Name((str(field),))
        if not isinstance(tree, syntax.Name):
            raise ValidationException(f"{method}() takes columns, not {summary(tree)}.")
        names.append(tree.parts[-1])
    return names


class Selection:
    """Derives relations from one relation and expressions.

    Attributes:
        window: the group window that expressions may name.
        over: the windows of OVER that they may name.
    """

    def __init__(
        self,
        planner: StatementPlanner,
        node: Node,
        window: GroupWindow | None = None,
        over: Mapping[str, syntax.Window] | None = None,
    ) -> None:
        self._planner = planner
        self._node = node
        self._window = window
        self._over = over or {}
        self._keys: dict[str, syntax.Expression] = {}

    # --- trees

    def tree(self, expression: Operand) -> syntax.Expression:
        """Return an expression as syntax for the binder."""
        return rewritten(tree_of(expression), self._changed)

    def _changed(self, tree: syntax.Node) -> syntax.Expression | None:
        match tree:
            case InlineCall(function, arguments):
                return syntax.Call(self._planner.inline_name(function), self._spread(arguments))
            case WindowBound(syntax.Name((alias,)), kind):
                return self._of_window(alias).part(f"_{kind}")
            case TimeMark(syntax.Name((alias,)), kind) if self._window is not None and alias == self._window.alias:
                return self._window.part(f"_{kind}")
            case OverNamed(syntax.Call() as call, alias):
                if alias not in self._over:
                    raise ValidationException(f"There is no window '{alias}': name it in over_window().")
                return replace(call, over=self._over[alias])
            case FieldAt(value, index):
                return syntax.Field(value, self._fields_of(value)[index])
            case syntax.Call(name) if self._is_redefined(name):
                return replace(tree, name=OPERATORS[name])
            case syntax.Call(name) if name in _BUILT_IN and not self._is_system_function(name):
                built_in = replace(tree, name=_BUILT_IN[name])
                return self._changed(built_in) or built_in
            case syntax.Call("+", (left, right)) if self._is_text(left) or self._is_text(right):
                text = DataTypes.STRING()
                return syntax.Call("CONCAT", (syntax.Cast(left, text), syntax.Cast(right, text)))
            case syntax.Call("ROW", members):
                return self._with_names(tree, members)
            case syntax.Name((alias,)) if alias in self._keys:
                return self._keys[alias]
        return None

    def _is_redefined(self, operator: str) -> bool:
        """Return whether a temporary system function overrides an operator, such as `plus` for `+`."""
        return operator in OPERATORS and self._is_system_function(OPERATORS[operator])

    def _is_system_function(self, name: str) -> bool:
        return self._planner.has_system_function(name)

    def _with_names(self, row: syntax.Call, members: tuple[syntax.Expression, ...]) -> syntax.Expression | None:
        """Return a row with the Table API's field names f0, f1, .."""
        kinds = [self._type(m) for m in members]
        fields = [RowField(f"f{i}", k) for i, k in enumerate(kinds) if k is not None]
        return syntax.Cast(row, RowType(fields, False)) if len(fields) == len(members) else None

    def _spread(self, arguments: tuple[syntax.Expression, ...]) -> tuple[syntax.Expression, ...]:
        """Return arguments with columns in place of `with_all_columns()` and the like."""
        return tuple(a for argument in arguments for a in self._columns(argument))

    def _of_window(self, alias: str) -> GroupWindow:
        if self._window is None or self._window.alias != alias:
            raise ValidationException(f"There is no window '{alias}': name it in window() and group_by().")
        return self._window

    def _type(self, tree: syntax.Expression) -> DataType | None:
        """Return the type of an expression, or None if it is unknown yet."""
        if isinstance(tree, syntax.Cast):
            return tree.type
        try:
            node = self._planner.binder().select(self._node, [syntax.SelectItem(tree)])
        except MillstreamError:
            return None
        return node.fields[0].type

    def _is_text(self, tree: syntax.Expression) -> bool:
        if isinstance(tree, syntax.Literal):
            return tree.kind == "STRING"
        if isinstance(tree, (syntax.Interval, syntax.Symbol)):
            return False
        return isinstance(self._type(tree), (CharType, VarCharType))

    def _fields_of(self, tree: syntax.Expression) -> list[str]:
        kind = self._type(tree)
        if not isinstance(kind, RowType):
            raise ValidationException(f"get() is for rows, and {summary(tree)} is of type {kind}.")
        return kind.names

    # --- columns

    def _columns(self, tree: syntax.Expression) -> list[syntax.Expression]:
        """Expand an expression to the columns that it selects."""
        names = self._node.fields.names
        if isinstance(tree, syntax.Star) and not tree.parts:
            return [syntax.Name((n,)) for n in names]
        if isinstance(tree, Chosen):
            chosen = [n for member in tree.members for n in self._named(member, names)]
            selected = [n for n in names if n not in chosen] if tree.excluded else chosen
            return [syntax.Name((n,)) for n in selected]
        if isinstance(tree, Range):
            return [syntax.Name((n,)) for n in self._named(tree, names)]
        return [tree]

    def _named(self, tree: syntax.Expression, names: list[str]) -> list[str]:
        match tree:
            case syntax.Name((name,)):
                return [name]
            case syntax.Literal("INTEGER", text):
                return [names[int(text) - 1]]
            case syntax.Star():
                return names
            case Range(start, end):
                first, last = (self._index(p, names) for p in (start, end))
                return names[first : last + 1]
            case syntax.Call("-" | "UNARY -", (inner,)):
                columns = self._named(inner, names)
                return [n for n in names if n not in columns]
        raise ValidationException(f"Columns are selected by name, index or range, not by {summary(tree)}.")

    def _index(self, column: str | int, names: list[str]) -> int:
        if isinstance(column, int):
            return column - 1
        if column not in names:
            raise ValidationException(f"There is no column '{column}' in {names}.")
        return names.index(column)

    def _items(self, fields: _Fields) -> list[syntax.SelectItem]:
        """Return the columns of a select under the Table API's names."""
        spread = [(tree, aliases_of(field)) for field in fields for tree in self._columns(tree_of(field))]
        namer = _Namer(self._planner, self._window)
        items = []
        for index, (tree, names) in enumerate(spread):
            if isinstance(tree, syntax.Star):
                items += self._flattened(tree)
                continue
            default = namer.name(tree, index)
            alias = names[0] if names else default
            items.append(syntax.SelectItem(self.tree(tree), alias))
        return items

    def _flattened(self, star: syntax.Star) -> list[syntax.SelectItem]:
        value = syntax.Name(star.parts)
        prefix = "$".join(star.parts)
        return [syntax.SelectItem(syntax.Field(value, n), f"{prefix}${n}") for n in self._fields_of(value)]

    # --- relations

    def _unique(self, items: Sequence[syntax.SelectItem]) -> Sequence[syntax.SelectItem]:
        seen: set[str] = set()
        for item in items:
            name = item.alias or ""
            if name in seen:
                raise ValidationException(f"Ambiguous column name: {name}")
            seen.add(name)
        return items

    def selected(self, fields: _Fields) -> Node:
        """Return columns."""
        return self._planner.binder().select(self._node, self._unique(self._items(fields)))

    def grouped(self, keys: _Fields, fields: _Fields) -> Node:
        """Return a row for each group."""
        trees: list[syntax.Expression] = []
        for key in keys:
            tree = tree_of(key)
            if self._window is not None and tree == syntax.Name((self._window.alias,)):
                trees.append(self._window.tree)
                continue
            bound = self.tree(key)
            trees.append(bound)
            aliases = aliases_of(key)
            if aliases:
                self._keys[aliases[0]] = bound
        items = self._unique(self._items(fields))
        node = self._planner.binder().aggregate(self._node, trees, items)
        return node if self._window is None else _with_nullable_times(node, items, self._window)

    def added(self, fields: _Fields, replaces: bool = False) -> Node:
        """Return the columns with others appended, or replaced by name."""
        names = self._node.fields.names
        items = {n: syntax.SelectItem(syntax.Name((n,)), n) for n in names}
        namer = _Namer(self._planner, None)
        for i, field in enumerate(fields):
            tree = tree_of(field)
            aliases = aliases_of(field)
            name = aliases[0] if aliases else namer.name(tree, len(names) + i)
            if name in items and not replaces:
                raise ValidationException(f"Ambiguous column name: {name}")
            items[name] = syntax.SelectItem(self.tree(tree), name)
        return self._planner.binder().select(self._node, list(items.values()))

    def dropped(self, fields: _Fields) -> Node:
        """Return all columns but some."""
        names = self._node.fields.names
        dropped = tables_columns([Expression(t) for f in fields for t in self._columns(tree_of(f))], "drop_columns")
        for name in dropped:
            if name not in names:
                raise ValidationException(f"Field {name} does not exist in source table")
        remaining = [syntax.SelectItem(syntax.Name((n,)), n) for n in names if n not in dropped]
        return self._planner.binder().select(self._node, remaining)

    # --- functions of users

    def _called(self, func: _Function) -> tuple[syntax.Call, tuple[str, ...]]:
        """Return a function call, with the row as argument if it has none."""
        if isinstance(func, UserDefinedFunctionWrapper):
            names = self._node.fields.names
            taking = func.taking_rows(names)
            call = InlineCall(taking, tuple(syntax.Name((n,)) for n in names))
            return self._call_of(call), func.alias_names
        return self._call_of(tree_of(func)), aliases_of(func)

    def _call_of(self, tree: syntax.Expression) -> syntax.Call:
        call = self.tree(tree)
        if not isinstance(call, syntax.Call):
            raise ValidationException(f"A function call is required, not {summary(tree)}.")
        return call

    def mapped(self, func: _Function) -> Node:
        """Return a relation that maps each row with a function."""
        call, names = self._called(func)
        binder = self._planner.binder()
        node = binder.select(self._node, [syntax.SelectItem(call, "_c0")])
        kind = node.fields[0].type
        if not isinstance(kind, RowType):
            return binder.rename(node, names[:1]) if names else node
        value = syntax.Name(("_c0",))
        called = [*names, *kind.names[len(names) :]]
        items = [syntax.SelectItem(syntax.Field(value, n), c) for n, c in zip(kind.names, called, strict=True)]
        return binder.select(node, items)

    def window_aggregated(self, keys: _Fields, func: _Function, fields: _Fields) -> Node:
        """Return the grouping keys, the aggregates and the window properties of each group."""
        trees = [tree_of(f) for f in fields]
        if any(isinstance(t, syntax.Star) for t in trees):
            raise ValidationException("Can not use * for window aggregate!")
        aggregates: dict[syntax.Expression, str] = {}

        def named(tree: syntax.Node) -> syntax.Expression | None:
            if not isinstance(tree, (WindowBound, TimeMark)):
                return None
            return syntax.Name((aggregates.setdefault(tree, f"EXPR${len(aggregates)}"),))

        moved = [rewritten(t, named) for t in trees]
        bounds = [syntax.SelectItem(self.tree(t), n) for t, n in aggregates.items()]
        names = [aliases_of(f) for f in fields]
        node = self.aggregated(keys, func, bounds)
        assert self._window is not None
        node = _with_nullable_times(node, [*[None] * (len(node.fields) - len(bounds)), *bounds], self._window)
        return Selection(self._planner, node).selected(
            [Expression(t, tuple(n)) for t, n in zip(moved, names, strict=True)]
        )

    def aggregated(self, keys: _Fields, func: _Function, bounds: Sequence[syntax.SelectItem] = ()) -> Node:
        """Return the grouping keys and the result of an aggregate function for each group."""
        call, names = self._called(func)
        binder = self._planner.binder()
        trees, items = self._group_keys(keys)
        node = binder.aggregate(self._node, trees, [*items, syntax.SelectItem(call, "_agg$"), *bounds])
        kind = node.fields[len(items)].type
        key_items = [syntax.SelectItem(syntax.Name((i.alias or "",)), i.alias) for i in items]
        value = syntax.Name(("_agg$",))
        ends = [syntax.SelectItem(syntax.Name((b.alias or "",)), b.alias) for b in bounds]
        if not isinstance(kind, RowType):
            return binder.select(node, [*key_items, syntax.SelectItem(value, names[0] if names else "TMP_0"), *ends])
        called = [*names, *(f"TMP_0${n}" for n in kind.names[len(names) :])]
        result_items = [syntax.SelectItem(syntax.Field(value, n), c) for n, c in zip(kind.names, called, strict=True)]
        return binder.select(node, [*key_items, *result_items, *ends])

    def flat_aggregated(self, keys: _Fields, func: _Function) -> Node:
        """Return the grouping keys and the rows of a table aggregate function for each group."""
        call, names = self._called(func)
        _, items = self._group_keys(keys)
        return self._planner.binder().table_aggregate(self._node, items, call, names)

    def _group_keys(self, keys: _Fields) -> tuple[list[syntax.Expression], list[syntax.SelectItem]]:
        """Return the grouping expressions and the keys as columns; a window is not a column."""
        trees: list[syntax.Expression] = []
        items: list[syntax.SelectItem] = []
        for key in keys:
            tree = tree_of(key)
            if self._window is not None and tree == syntax.Name((self._window.alias,)):
                trees.append(self._window.tree)
                continue
            trees.append(self.tree(key))
            names = aliases_of(key)
            items.append(syntax.SelectItem(trees[-1], names[0] if names else _plain_name(tree) or summary(tree)))
        return trees, items

    def lateral(self, func: _Function, predicate: Expression[bool] | None, kind: str) -> Node:
        """Join each row with the rows that a table function returns for it."""
        call, names = self._called(func)
        condition = None if predicate is None else self.tree(predicate)
        if condition is None and kind == "LEFT":
            condition = syntax.Literal("BOOLEAN", "TRUE")
        function: syntax.Relation = syntax.TableFunction(call, lateral=True)
        if names:
            function = syntax.Aliased(function, "T0", tuple(names))
        joined = syntax.Join("CROSS" if condition is None else kind, BoundRelation(self._node), function, condition)
        return self._planner.binder().query(syntax.Select((syntax.SelectItem(syntax.Star()),), joined))

    def flat_mapped(self, func: _Function) -> Node:
        """Return the rows that a table function returns for each row."""
        before = len(self._node.fields)
        # The function's columns may have the same names as the table's.
        hidden = self._planner.binder().rename(self._node, [f"{n}$" for n in self._node.fields.names])
        call, names = self._called(func)
        moved = rewritten(call, lambda t: syntax.Name((f"{t.parts[0]}$",)) if isinstance(t, syntax.Name) else None)
        joined = Selection(self._planner, hidden).lateral(Expression(moved, tuple(names)), None, "INNER")
        result_names = joined.fields.names[before:]
        return self._planner.binder().select(joined, [syntax.SelectItem(syntax.Name((n,)), n) for n in result_names])


class _Namer:
    """Names columns as Flink's Table API does."""

    def __init__(self, planner: StatementPlanner, window: GroupWindow | None) -> None:
        self._planner = planner
        self._window = window
        # Aggregates and window properties, in order of appearance.
        self._extracted: list[syntax.Expression] = []

    def name(self, tree: syntax.Expression, index: int) -> str:
        """Return the default name of an unnamed column."""
        for part in self._aggregates(tree):
            if part not in self._extracted:
                self._extracted.append(part)
        if tree in self._extracted:
            return f"EXPR${self._extracted.index(tree)}"
        return _plain_name(tree) or f"_c{index}"

    def _is_aggregate(self, tree: object) -> TypeGuard[syntax.Expression]:
        if isinstance(tree, InlineCall):
            return tree.function.kind == "aggregate"
        return isinstance(tree, syntax.Call) and tree.over is None and self._planner.is_aggregate(tree.name)

    def _aggregates(self, tree: object) -> Iterator[syntax.Expression]:
        if isinstance(tree, (WindowBound, TimeMark)) or self._is_aggregate(tree):
            yield tree
        elif isinstance(tree, OverNamed):
            return
        elif isinstance(tree, syntax.Node):
            for part in parts_of(tree):
                yield from self._aggregates(getattr(tree, part.name))
        elif isinstance(tree, tuple):
            for member in tree:
                yield from self._aggregates(member)


def _with_nullable_times(node: Node, items: Sequence[syntax.SelectItem | None], window: GroupWindow) -> Node:
    """Return a relation with nullable window bounds, as in the Table API; SQL's are not null."""
    bounds = [window.part(f"_{kind}") for kind in ("START", "END", "ROWTIME")]
    fields = [
        replace(f, type=f.type.nullable()) if i is not None and i.value in bounds else f
        for f, i in zip(node.fields.fields, items, strict=True)
    ]
    return replace(node, fields=Fields(tuple(fields)))


def _plain_name(tree: syntax.Expression) -> str | None:
    match tree:
        case syntax.Name(parts):
            return parts[-1]
        case syntax.Cast(value, kind, False):
            inner = _plain_name(value)
            return None if inner is None else f"{inner}-{kind}"
        case syntax.Field(value, name):
            inner = _plain_name(value)
            return None if inner is None else f"{inner}${name}"
        case FieldAt(value, index):
            inner = _plain_name(value)
            return None if inner is None else f"{inner}$_{index}"
    return None
