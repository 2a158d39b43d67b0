"""Tables grouped by columns or windows, and tables with OVER windows; `select` returns a Table again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.sql.errors import ValidationException
from millstream.sql.language import syntax
from millstream.table.expression import Expression, tree_of
from millstream.table.table_base import selection_of, with_node
from millstream.table.udf import UserDefinedAggregateFunctionWrapper
from millstream.table.window import GroupWindow, OverWindow

if TYPE_CHECKING:
    from millstream.table.table import Table

__all__ = ["GroupWindowedTable", "GroupedTable", "OverWindowedTable", "WindowGroupedTable"]


class GroupedTable:
    """A table grouped by columns."""

    def __init__(self, table: Table, keys: Sequence[Expression]) -> None:
        self._table = table
        self._keys = tuple(keys)

    def select(self, *fields: Expression) -> Table:
        """Return a row for each group: keys and aggregates."""
        return with_node(self._table, selection_of(self._table).grouped(self._keys, fields))

    def aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> AggregatedTable:
        """Aggregate each group to a row with a function; the fields of a ROW result become columns."""
        return AggregatedTable(with_node(self._table, selection_of(self._table).aggregated(self._keys, func)))

    def flat_aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> FlatAggregateTable:
        """Aggregate each group to any number of rows with a table aggregate function."""
        return FlatAggregateTable(with_node(self._table, selection_of(self._table).flat_aggregated(self._keys, func)))


class GroupWindowedTable:
    """A table grouped by a window."""

    def __init__(self, table: Table, window: GroupWindow) -> None:
        self._table = table
        self._window = window

    def group_by(self, *fields: Expression) -> WindowGroupedTable:
        """Group by the window, by its alias, and by columns."""
        aliases = [tree_of(f) for f in fields]
        if syntax.Name((self._window.alias,)) not in aliases:
            raise ValidationException(
                f"group_by() after window() must have the window's alias: col('{self._window.alias}')."
            )
        return WindowGroupedTable(self._table, self._window, fields)


class WindowGroupedTable:
    """A table grouped by a window and columns."""

    def __init__(self, table: Table, window: GroupWindow, keys: Sequence[Expression]) -> None:
        self._table = table
        self._window = window
        self._keys = tuple(keys)

    def select(self, *fields: Expression) -> Table:
        """Return a row for each group: keys, aggregates, and `start` and `end` of the window."""
        chosen = selection_of(self._table, window=self._window)
        return with_node(self._table, chosen.grouped(self._keys, fields))

    def aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> WindowAggregatedTable:
        """Aggregate each group to a row with a function; the fields of a ROW result become columns."""
        return WindowAggregatedTable(self._table, self._window, self._keys, func)


class OverWindowedTable:
    """A table with the windows of aggregates with `over`."""

    def __init__(self, table: Table, windows: Sequence[OverWindow]) -> None:
        self._table = table
        self._windows = tuple(windows)

    def select(self, *fields: Expression) -> Table:
        """Return columns, and aggregates over windows."""
        chosen = selection_of(self._table, over={w.alias: w.tree for w in self._windows})
        return with_node(self._table, chosen.selected(fields))


class AggregatedTable:
    """The result of `aggregate` of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def select(self, *fields: Expression) -> Table:
        """Return columns of the grouping keys and of the function's result."""
        return self._table.select(*fields)


class WindowAggregatedTable:
    """The result of `aggregate` of a table grouped by a window."""

    def __init__(
        self,
        table: Table,
        window: GroupWindow,
        keys: Sequence[Expression],
        func: Expression | UserDefinedAggregateFunctionWrapper,
    ) -> None:
        self._table = table
        self._window = window
        self._keys = tuple(keys)
        self._func = func

    def select(self, *fields: Expression) -> Table:
        """Return columns: keys, the function's result, and `start` and `end` of the window."""
        chosen = selection_of(self._table, window=self._window)
        return with_node(self._table, chosen.window_aggregated(self._keys, self._func, fields))


class FlatAggregateTable:
    """The result of `flat_aggregate` of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def select(self, *fields: Expression) -> Table:
        """Return columns of the grouping keys and of the function's result rows."""
        return self._table.select(*fields)
