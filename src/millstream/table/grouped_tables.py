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
    """Holds rows grouped by columns, until an aggregate is selected; `Table.group_by` returns it."""

    def __init__(self, table: Table, keys: Sequence[Expression]) -> None:
        self._table = table
        self._keys = tuple(keys)

    def select(self, *fields: Expression) -> Table:
        """Return a row for each group, with keys and aggregates; a group that changes is updated.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5), ("ann", 4)], ["user", "price"])
            >>> orders.group_by(col("user")).select(col("user"), col("price").max.alias("largest")).to_pandas()
              user  largest
            0  bob        5
            1  ann        4
        """
        return with_node(self._table, selection_of(self._table).grouped(self._keys, fields))

    def aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> AggregatedTable:
        """Aggregate each group to a row with a function; `select` must follow.

        The fields of a ROW result become columns.

        Example:
            >>> from millstream.table.udf import AggregateFunction, udaf
            >>> class Product(AggregateFunction):
            ...     def create_accumulator(self): return [1]
            ...     def accumulate(self, accumulator, n): accumulator[0] *= n
            ...     def get_value(self, accumulator): return accumulator[0]
            >>> product = udaf(Product(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
            >>> numbers = t_env.from_elements([("a", 2), ("b", 3), ("a", 4)], ["key", "n"])
            >>> products = numbers.group_by(col("key")).aggregate(product(col("n")).alias("all"))
            >>> products.select(col("key"), col("all")).to_pandas()
              key  all
            0   b    3
            1   a    8
        """
        return AggregatedTable(with_node(self._table, selection_of(self._table).aggregated(self._keys, func)))

    def flat_aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> FlatAggregateTable:
        """Aggregate each group to any number of rows with a table aggregate function; `select` must follow.

        Example:
            >>> from millstream.table.udf import TableAggregateFunction, udtaf
            >>> class Top2(TableAggregateFunction):
            ...     def create_accumulator(self): return []
            ...     def accumulate(self, accumulator, n): accumulator[:] = sorted([*accumulator, n])[-2:]
            ...     def emit_value(self, accumulator): yield from accumulator
            >>> top2 = udtaf(Top2(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
            >>> numbers = t_env.from_elements([("a", 3), ("b", 1), ("a", 5), ("a", 4)], ["key", "n"])
            >>> tops = numbers.group_by(col("key")).flat_aggregate(top2(col("n")).alias("top"))
            >>> tops.select(col("key"), col("top")).to_pandas()
              key  top
            0   b    1
            1   a    4
            2   a    5
        """
        return FlatAggregateTable(with_node(self._table, selection_of(self._table).flat_aggregated(self._keys, func)))


class GroupWindowedTable:
    """Holds a table and a window, until `group_by` names the window; `Table.window` returns it."""

    def __init__(self, table: Table, window: GroupWindow) -> None:
        self._table = table
        self._window = window

    def group_by(self, *fields: Expression) -> WindowGroupedTable:
        """Group by the window, by its alias, and by columns.

        Without columns, one subtask processes all windows.

        Example:
            >>> from millstream.table.expressions import call_sql, row_interval
            >>> from millstream.table.window import Tumble
            >>> clicks = t_env.from_elements([("ann",), ("bob",), ("ann",)], ["user"])
            >>> clicks = clicks.add_columns(call_sql("PROCTIME()").alias("at"))
            >>> pairs = clicks.window(Tumble.over(row_interval(2)).on(col("at")).alias("w"))
            >>> list(pairs.group_by(col("w"), col("user")).select(col("user"), col("user").count).execute().collect())
            [<Row('ann', 2)>]
        """
        aliases = [tree_of(f) for f in fields]
        if syntax.Name((self._window.alias,)) not in aliases:
            raise ValidationException(
                f"group_by() after window() must have the window's alias: col('{self._window.alias}')."
            )
        return WindowGroupedTable(self._table, self._window, fields)


class WindowGroupedTable:
    """Holds rows grouped by a window and columns, until an aggregate is selected."""

    def __init__(self, table: Table, window: GroupWindow, keys: Sequence[Expression]) -> None:
        self._table = table
        self._window = window
        self._keys = tuple(keys)

    def select(self, *fields: Expression) -> Table:
        """Return a row for each group and window: keys, aggregates, and `start` and `end` of the window.

        A row is emitted when the watermark passes the window's end; late rows are dropped.

        Example:
            >>> from millstream.table.window import Tumble
            >>> _ = t_env.execute_sql("CREATE TABLE clicks (n INT, "
            ...     "ts AS TIMESTAMPADD(SECOND, n, TIMESTAMP '2026-11-19 12:00:00'), WATERMARK FOR ts AS ts) WITH "
            ...     "('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            ...     "'fields.n.start' = '8', 'fields.n.end' = '12')")
            >>> windows = t_env.from_path("clicks").window(Tumble.over(lit(10).seconds).on(col("ts")).alias("w"))
            >>> counts = windows.group_by(col("w")).select(col("w").end.alias("end"), col("n").count.alias("n"))
            >>> counts.to_pandas()
                              end  n
            0 2026-11-19 12:00:10  2
            1 2026-11-19 12:00:20  3
        """
        chosen = selection_of(self._table, window=self._window)
        return with_node(self._table, chosen.grouped(self._keys, fields))

    def aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> WindowAggregatedTable:
        """Aggregate each group to a row with a function; `select` must follow.

        The fields of a ROW result become columns.

        Example:
            >>> from millstream.table.expressions import call_sql, row_interval
            >>> from millstream.table.udf import udaf
            >>> from millstream.table.window import Tumble
            >>> spread = udaf(lambda n: n.max() - n.min(), result_type="BIGINT", func_type="pandas")
            >>> numbers = t_env.from_elements([(1,), (8,)], ["n"]).add_columns(call_sql("PROCTIME()").alias("at"))
            >>> pairs = numbers.window(Tumble.over(row_interval(2)).on(col("at")).alias("w")).group_by(col("w"))
            >>> list(pairs.aggregate(spread(col("n")).alias("spread")).select(col("spread")).execute().collect())
            [<Row(7)>]
        """
        return WindowAggregatedTable(self._table, self._window, self._keys, func)


class OverWindowedTable:
    """Holds a table and windows for aggregates with `over`; `Table.over_window` returns it."""

    def __init__(self, table: Table, windows: Sequence[OverWindow]) -> None:
        self._table = table
        self._windows = tuple(windows)

    def select(self, *fields: Expression) -> Table:
        """Return columns, and aggregates over windows: one row for each row of the table.

        Example:
            >>> from millstream.table.expressions import call_sql, row_interval
            >>> from millstream.table.window import Over
            >>> prices = t_env.from_elements([("a", 1), ("b", 2), ("a", 3)], ["key", "price"])
            >>> prices = prices.add_columns(call_sql("PROCTIME()").alias("at"))
            >>> so_far = prices.over_window(Over.partition_by(col("key")).order_by(col("at")).alias("w"))
            >>> list(so_far.select(col("key"), col("price").sum.over(col("w"))).execute().collect())
            [<Row('a', 1)>, <Row('b', 2)>, <Row('a', 4)>]
        """
        chosen = selection_of(self._table, over={w.alias: w.tree for w in self._windows})
        return with_node(self._table, chosen.selected(fields))


class AggregatedTable:
    """Holds the result of `aggregate`, until columns are selected."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def select(self, *fields: Expression) -> Table:
        """Return columns of the grouping keys and of the function's result.

        Example:
            >>> from millstream.table.udf import AggregateFunction, udaf
            >>> class Product(AggregateFunction):
            ...     def create_accumulator(self): return [1]
            ...     def accumulate(self, accumulator, n): accumulator[0] *= n
            ...     def get_value(self, accumulator): return accumulator[0]
            >>> product = udaf(Product(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
            >>> products = t_env.from_elements([(2,), (3,)], ["n"]).aggregate(product(col("n")).alias("all"))
            >>> products.select((col("all") + 1).alias("one_more")).to_pandas()
               one_more
            0         7
        """
        return self._table.select(*fields)


class WindowAggregatedTable:
    """Holds the result of `aggregate` of each window, until columns are selected."""

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
        """Return columns: keys, the function's result, and `start` and `end` of the window.

        See `WindowGroupedTable.aggregate` for an example.
        """
        chosen = selection_of(self._table, window=self._window)
        return with_node(self._table, chosen.window_aggregated(self._keys, self._func, fields))


class FlatAggregateTable:
    """Holds the result of `flat_aggregate`, until columns are selected."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def select(self, *fields: Expression) -> Table:
        """Return columns of the grouping keys and of the function's result rows.

        See `GroupedTable.flat_aggregate` for an example.
        """
        return self._table.select(*fields)
