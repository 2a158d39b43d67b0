"""Binds GROUP BY: collects the bound keys and aggregates in an Aggregate, and rewrites expressions over its columns.

`select.py` binds the keys, `aggregates.py` the aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.bind import relation_builder
from millstream.sql.bind.scope import BindError
from millstream.sql.bind.unbound_calls import GROUP_FUNCTIONS, GROUP_WINDOWS, Aggregated, GroupProperty, Overed
from millstream.sql.expressions import AggregateCall, Call, Column, Constant, Expression, replaced
from millstream.sql.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Node,
    Project,
    Rank,
    WindowAggregate,
    WindowSpec,
    WindowTable,
)
from millstream.sql.plan.subqueries import Subquery, with_outer
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import BigIntType, BooleanType, IntType, LocalZonedTimestampType, TimestampType


@fast_dataclass
class GroupWindow:
    """A group window: TUMBLE(..), HOP(..) or SESSION(..) in GROUP BY.

    Attributes:
        spec: the windows; its time is a column of the input.
        time: that column.
        counts: (size, slide) of count windows.
    """

    spec: WindowSpec
    time: Expression
    counts: tuple[int, int] | None = None


class NotGrouped(Exception):
    """A reference to a column that is not grouped."""

    def __init__(self, column: Expression) -> None:
        self.column = column


@dataclass
class Groups:
    """Collects the aggregates of a query and rewrites expressions over the grouped rows.

    Attributes:
        input: the relation to group.
        keys: the grouping expressions over the input row.
        names: the names of the keys.
        sets: the grouping sets, as indexes of keys; one with all keys for plain GROUP BY.
        window: the group window.
        state_ttl: the TTL from a STATE_TTL hint.
    """

    input: Node
    keys: list[Expression]
    names: list[str]
    sets: list[tuple[int, ...]]
    window: GroupWindow | None = None
    state_ttl: int | None = None
    calls: list[Aggregated] = field(default_factory=list)
    call_names: list[str] = field(default_factory=list)
    properties: list[str] = field(default_factory=list)

    @property
    def has_sets(self) -> bool:
        """Whether there are several grouping sets."""
        return self.sets != [tuple(range(len(self.keys)))]

    # --- collecting

    def collect(self, expression: Expression, name: str | None = None) -> None:
        """Collect the aggregates in an expression; `name` is the name of the whole expression."""
        if isinstance(expression, Aggregated):
            if expression not in self.calls:
                self.calls.append(expression)
                self.call_names.append(name or f"$f{len(self.keys) + len(self.calls) - 1}")
            return
        if isinstance(expression, GroupProperty):
            self._collect_property(expression)
            return
        if isinstance(expression, Overed):
            for part in (*expression.call.arguments, *expression.frame.partition):
                self.collect(part)
            for key, _, _ in expression.frame.order:
                self.collect(key)
            return
        for part in expression.parts:
            self.collect(part)

    def _collect_property(self, group_property: GroupProperty) -> None:
        if group_property.function in GROUP_FUNCTIONS:
            return
        kind, part = GROUP_WINDOWS[group_property.function]
        if (
            self.window is None
            or self.window.spec.kind.value != kind
            or group_property.arguments[0] != self.window.time
        ):
            raise BindError(
                f"Call to auxiliary group function '{group_property.function}' must have matching call to group "
                f"function '{kind}' in GROUP BY clause"
            )
        if part not in self.properties:
            self.properties.append(part)

    # --- the nodes

    def node(self) -> Node:
        """Return the grouped relation: keys, aggregates, window properties."""
        columns: list[Expression] = list(self.keys)
        names = list(self.names)

        def column_of(expression: Expression) -> int:
            # With grouping sets a key that is also an argument has two columns, because the key can be null.
            start = len(self.keys) if self.has_sets else 0
            for i in range(start, len(columns)):
                if columns[i] == expression:
                    return i
            columns.append(expression)
            is_column = isinstance(expression, Column)
            taken = self.input.fields[expression.index].name if is_column else None  # type: ignore[attr-defined]
            names.append(taken if taken is not None and taken not in names else f"$f{len(columns) - 1}")
            return len(columns) - 1

        calls = [self._aggregate_call(c, column_of) for c in self.calls]
        time = None if self.window is None else column_of(self.window.time)
        if not columns:
            # A row needs at least one column.
            columns, names = [Constant(IntType(False), 0)], ["$f0"]
        below = relation_builder.project(self.input, columns, names)
        if self.has_sets:
            below = self._expanded(below)
        return self._grouped(below, calls, time)

    def _aggregate_call(self, call: Aggregated, column_of: Callable[[Expression], int]) -> AggregateCall:
        arguments = tuple(column_of(a) for a in call.arguments)
        condition = None if call.condition is None else column_of(_is_true(call.condition))
        order = tuple((column_of(k), d, n) for k, d, n in call.order)
        types = () if call.user is None else tuple(a.type for a in call.arguments)
        return AggregateCall(
            call.function, arguments, call.type, call.distinct, condition, order, call.options, call.user, types
        )

    def _grouped(self, below: Node, calls: list[AggregateCall], time: int | None) -> Node:
        keys = list(range(len(self.keys)))
        if self.has_sets:
            keys.append(len(below.fields) - 1)
        times = {} if self.has_sets else _window_times(below, keys)
        fields = [Field(below.fields[k].name, below.fields[k].type, times.get(k)) for k in keys]
        fields += [Field(n, c.type) for n, c in zip(self.call_names, calls, strict=True)]
        if self.window is None or time is None:
            return Aggregate(Fields(tuple(fields)), below, tuple(keys), tuple(calls), self.state_ttl)
        fields += [self._property_field(p) for p in self.properties]
        spec = self.window.spec
        window = WindowSpec(spec.kind, time, spec.is_event_time, spec.size, spec.step, spec.offset)
        return WindowAggregate(
            Fields(tuple(fields)), below, window, tuple(keys), tuple(calls), tuple(self.properties), self.window.counts
        )

    def _property_field(self, part: str) -> Field:
        assert self.window is not None
        name = {"start": "w$start", "end": "w$end", "rowtime": "w$rowtime", "proctime": "w$proctime"}[part]
        if part == "rowtime":
            return Field(name, self.window.time.type.not_null(), TimeAttribute.ROWTIME)
        if part == "proctime":
            return Field(name, LocalZonedTimestampType(3, False), TimeAttribute.PROCTIME)
        return Field(name, TimestampType(3, False))

    def _expanded(self, below: Node) -> Node:
        ids = self._set_ids()
        everything = relation_builder.columns(below.fields)
        rows: list[tuple[Expression, ...]] = []
        for present, number in zip(self.sets, ids, strict=True):
            row: list[Expression] = list(everything)
            for key in range(len(self.keys)):
                if key not in present:
                    row[key] = Constant(everything[key].type.nullable(), None)
            rows.append((*row, Constant(BigIntType(False), number)))
        absent = {k for k in range(len(self.keys)) if any(k not in s for s in self.sets)}
        fields = [
            Field(f.name, f.type.nullable() if i in absent else f.type, f.time if i not in absent else None)
            for i, f in enumerate(below.fields.fields)
        ]
        return Expand(Fields((*fields, Field("$e", BigIntType(False)))), below, tuple(rows))

    def _set_ids(self) -> list[int]:
        """Return an id per set: a bit per absent key, the last key lowest; higher bits number equal sets."""
        count = len(self.keys)
        seen: dict[int, int] = {}
        ids = []
        for present in self.sets:
            mask = sum(1 << (count - 1 - k) for k in range(count) if k not in present)
            ids.append(mask | (seen.get(mask, 0) << count))
            seen[mask] = seen.get(mask, 0) + 1
        return ids

    # --- rewriting

    def rewritten(self, expression: Expression) -> Expression:
        """Return the expression over the grouped row."""
        return replaced(expression, self._change)

    def _change(self, e: Expression) -> Expression | None:
        if isinstance(e, Overed):
            return self._over(e)
        for i, key in enumerate(self.keys):
            if e == key:
                absent = any(i not in s for s in self.sets)
                return Column(e.type.nullable() if absent else e.type, i)
        if isinstance(e, Aggregated):
            return Column(e.type, self._first_call + self.calls.index(e))
        if isinstance(e, GroupProperty):
            return self._property(e)
        if isinstance(e, Column):
            raise NotGrouped(e)
        if isinstance(e, Subquery):
            values = tuple(map(self.rewritten, e.values))
            return replace(e, values=values, node=with_outer(e.node, self._outer))
        return None

    def _outer(self, index: int) -> Expression:
        """Return the expression for an input column that a subquery refers to."""
        return self.rewritten(Column(self.input.fields[index].type, index))

    def _over(self, e: Overed) -> Overed:
        call = replace(
            e.call,
            arguments=tuple(map(self.rewritten, e.call.arguments)),
            condition=None if e.call.condition is None else self.rewritten(e.call.condition),
        )
        order = tuple((self.rewritten(k), d, n) for k, d, n in e.frame.order)
        frame = replace(e.frame, partition=tuple(map(self.rewritten, e.frame.partition)), order=order)
        return Overed(e.type, call, frame)

    @property
    def _first_call(self) -> int:
        return len(self.keys) + (1 if self.has_sets else 0)

    def _property(self, e: GroupProperty) -> Expression:
        if e.function not in GROUP_FUNCTIONS:
            part = GROUP_WINDOWS[e.function][1]
            return Column(e.type, self._first_call + len(self.calls) + self.properties.index(part))
        return self._grouping(e)

    def _grouping(self, e: GroupProperty) -> Expression:
        count = len(self.keys)
        if e.function == "GROUP_ID":
            values = [number >> count for number in self._set_ids()]
        else:
            try:
                key_indexes = [self.keys.index(a) for a in e.arguments]
            except ValueError:
                raise BindError(f"Argument to {e.function} operator must be a grouped expression") from None
            values = [sum((p not in s) << i for i, p in enumerate(reversed(key_indexes))) for s in self.sets]
        if not self.has_sets or len(set(values)) == 1:
            return Constant(BigIntType(False), values[0] if values else 0)
        number = Column(BigIntType(False), count)
        arguments: list[Expression] = []
        for identity, value in zip(self._set_ids()[:-1], values, strict=False):
            same = Call(BooleanType(False), "=", (number, Constant(BigIntType(False), identity)))
            arguments += [same, Constant(BigIntType(False), value)]
        return Call(BigIntType(False), "CASE", (*arguments, Constant(BigIntType(False), values[-1])))


def _is_true(condition: Expression) -> Expression:
    if not condition.type.is_nullable:
        return condition
    return Call(BooleanType(False), "IS TRUE", (condition,))


def grouping_sets(elements: Sequence[list[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """Return the cross product of the grouping sets of several GROUP BY elements."""
    result: list[tuple[int, ...]] = [()]
    for element in elements:
        result = [tuple(sorted({*before, *more})) for before in result for more in element]
    return result


def _window_times(node: Node, keys: list[int]) -> dict[int, TimeAttribute | None]:
    """Return the keys that remain time attributes: window_time of windows in the keys."""
    parts = {k: result for k in keys if (result := _part_of_window(node, k)) is not None}
    whole = {window for window, part in parts.values() if {(window, 0), (window, 1)} <= set(parts.values())}
    return {k: node.fields[k].time for k, (window, part) in parts.items() if part == 2 and window in whole}


def _part_of_window(node: Node, index: int) -> tuple[int, int] | None:
    """Return whether a column is the start (0), end (1) or time (2) of a window TVF; None for others."""
    if isinstance(node, WindowTable):
        part = index - len(node.input.fields)
        return (id(node), part) if part >= 0 else None
    if isinstance(node, Project):
        column = node.expressions[index]
        return _part_of_window(node.input, column.index) if isinstance(column, Column) else None
    if isinstance(node, Filter) or (isinstance(node, Rank) and index < len(node.input.fields)):
        return _part_of_window(node.input, index)
    return None
