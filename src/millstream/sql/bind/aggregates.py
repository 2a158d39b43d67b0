"""Binds aggregates, OVER and functions of groups."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.sql import type_rules
from millstream.sql.bind.scope import BindError
from millstream.sql.bind.unbound_calls import GROUP_FUNCTIONS, Aggregated, Frame, GroupProperty, Overed, cast
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Constant, Expression, Option, UserFunction
from millstream.sql.language import syntax
from millstream.sql.types import BigIntType, DataType, LocalZonedTimestampType, TimestampType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


class AggregateBinder:
    """Binds aggregates; a part of `ExpressionBinder`."""

    def __init__(self, binder: Binder, windows: dict[str, syntax.Window], grouped: bool) -> None:
        self._binder = binder
        self._windows = windows
        # Whether aggregates are grouped: a group has at least one row, so SUM of NOT NULL is NOT NULL.
        self._grouped = grouped
        self._inside_aggregate = False

    @abstractmethod
    def bind(self, e: syntax.Expression) -> Expression:
        """Return the typed expression; a processing time attribute becomes the current time."""

    @abstractmethod
    def raw(self, e: syntax.Expression) -> Expression:
        """Return the typed expression; a processing time attribute stays one."""

    @abstractmethod
    def boolean(self, e: syntax.Expression, clause: str) -> Expression:
        """Return a condition."""

    def _aggregate(self, e: syntax.Call, options: tuple[Option, ...] = ()) -> Expression:
        if e.name.upper() == "APPROX_COUNT_DISTINCT":
            # The exact count is a valid approximation.
            e = replace(e, name="COUNT", distinct=True)
        if self._inside_aggregate:
            raise BindError("Aggregate expressions cannot be nested", e.position)
        self._inside_aggregate = e.over is None
        try:
            is_star = len(e.arguments) == 1 and isinstance(e.arguments[0], syntax.Star)
            if is_star and e.name.upper() != "COUNT":
                raise BindError(f"Unknown identifier '*': only COUNT accepts it, not {e.name}", e.position)
            words = tuple(a.word for a in e.arguments if isinstance(a, syntax.Symbol))
            values = [] if is_star else [self.bind(a) for a in e.arguments if not isinstance(a, syntax.Symbol)]
            try:
                is_full = (self._grouped or e.over is not None) and e.condition is None
                resolved = self._binder.functions.aggregate(e.name, values, is_full)
            except ValidationException as error:
                raise BindError(str(error), e.position) from None
            arguments = tuple(cast(a, t) for a, t in zip(values, resolved.arguments, strict=True))
            if e.over is None and self._binder.functions.needs_over(e.name):
                raise BindError("OVER clause is necessary for window functions", e.position)
            if e.name.upper() == "COUNT" and len(arguments) == 1 and not arguments[0].type.is_nullable:
                arguments = arguments if e.distinct else ()
            return self._aggregated(e, arguments, resolved.type, None, options + words)
        finally:
            self._inside_aggregate = False

    def _aggregated(
        self,
        e: syntax.Call,
        arguments: tuple[Expression, ...],
        kind: DataType,
        user: UserFunction,
        options: tuple[Option, ...] = (),
    ) -> Expression:
        condition = None if e.condition is None else self.boolean(e.condition, "FILTER")
        order = tuple(self._sort_key(k) for k in e.order)
        name = e.name if user is not None else self._binder.functions.canonical(e.name)
        if e.nulls is not None:
            options = (*options, "IGNORE NULLS" if e.nulls else "RESPECT NULLS")
        call = Aggregated(kind, name, arguments, e.distinct, condition, order, options, user)
        return call if e.over is None else Overed(kind, call, self._frame(e))

    def _sort_key(self, key: syntax.SortKey) -> tuple[Expression, bool, bool]:
        # Nulls sort low.
        nulls_first = not key.descending if key.nulls_first is None else key.nulls_first
        return self.raw(key.value), key.descending, nulls_first

    def _frame(self, e: syntax.Call) -> Frame:
        window = self._window(e.over, e.position)
        partition = tuple(self.bind(p) for p in window.partition)
        order = tuple(self._sort_key(k) for k in window.order)
        rows = window.unit == "ROWS"
        by_time = bool(order) and type_rules.is_temporal(order[0][0].type)
        start = self._bound(window.start, rows, by_time) if window.start is not None else None
        end = self._bound(window.end, rows, by_time) if window.end is not None else 0
        if window.unit is None and not window.order:
            end = None
        if e.name.upper() in _RANKING:
            rows, start, end = e.name.upper() == "ROW_NUMBER", None, 0
        return Frame(partition, order, rows, start, end)

    def _window(
        self, over: syntax.Window | str | None, position: int, within: frozenset[str] = frozenset()
    ) -> syntax.Window:
        if isinstance(over, str):
            if over not in self._windows or over in within:
                raise BindError(f"Window '{over}' not found", position)
            return self._window(self._windows[over], position, within | {over})
        assert over is not None
        if over.base is None:
            return over
        base = self._window(over.base, position, within)
        return replace(
            base,
            order=base.order or over.order,
            unit=over.unit or base.unit,
            start=over.start or base.start,
            end=over.end or base.end,
        )

    def _bound(self, bound: syntax.Bound, rows: bool, by_time: bool) -> int | None:
        if bound.side == 0:
            return 0
        if bound.distance is None:
            return None
        distance = self._binder.folded(self.bind(bound.distance))
        if not isinstance(distance, Constant) or not isinstance(distance.value, int):
            raise BindError("A bound of a window must be a constant", bound.position)
        if (by_time and not rows) != type_rules.is_interval(distance.type):
            distance_kind = "a number of rows" if rows else "an interval" if by_time else "a number"
            raise BindError(
                f"Data Type mismatch between ORDER BY and RANGE clause: expected {distance_kind}", bound.position
            )
        return bound.side * distance.value

    # --- groups

    def group_property(self, e: syntax.Call) -> Expression:
        """Return a function of groups: TUMBLE_START(..) and the like, GROUPING(..)."""
        name = e.name.upper()
        arguments = tuple(self.raw(a) for a in e.arguments)
        if name in GROUP_FUNCTIONS:
            return GroupProperty(BigIntType(False), name, arguments)
        if not arguments:
            raise BindError(f"No match found for function signature {name}()", e.position)
        kind = _window_property_type(name, arguments[0].type)
        return GroupProperty(kind, name, arguments)


def _window_property_type(name: str, time: DataType) -> DataType:
    if name.endswith("_PROCTIME"):
        return LocalZonedTimestampType(3, False)
    if name.endswith("_ROWTIME"):
        return time.not_null()
    return TimestampType(3, False)


_RANKING = frozenset(["ROW_NUMBER", "RANK", "DENSE_RANK", "CUME_DIST", "PERCENT_RANK", "NTILE", "LAG", "LEAD"])
