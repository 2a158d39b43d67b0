"""Table: a relational query that a program builds step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.common.call_site import warn_deprecated
from millstream.common.errors import InvalidProgramError
from millstream.sql.errors import ValidationException
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Collected, JoinKind, Node
from millstream.table.api_syntax import Subquery, sort_key
from millstream.table.api_to_syntax import Selection, tables_columns
from millstream.table.catalog import ResolvedSchema
from millstream.table.expression import Expression, aliases_of, is_descending, tree_of
from millstream.table.in_memory_tables import arrow_table, as_pandas
from millstream.table.result_display import as_html
from millstream.table.table_pipeline import TablePipeline
from millstream.table.table_schema import TableSchema
from millstream.table.udf import (
    UserDefinedAggregateFunctionWrapper,
    UserDefinedFunctionWrapper,
    UserDefinedTableFunctionWrapper,
)
from millstream.table.window import GroupWindow, OverWindow

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from millstream.sql.catalog.tables import CatalogTable
    from millstream.table.statement_planner import StatementPlanner
    from millstream.table.table_descriptor import TableDescriptor
    from millstream.table.table_result import TableResult
    from millstream.table.translating_binder import TranslatingBinder

__all__ = ["GroupWindowedTable", "GroupedTable", "OverWindowedTable", "Table", "WindowGroupedTable"]


class Table(Subquery):
    """A query over rows with named columns; execute() runs it.

    Example:
        >>> from millstream.table import EnvironmentSettings, TableEnvironment
        >>> from millstream.table.expressions import col
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = t_env.from_elements([("to", 1), ("be", 2)], ["word", "n"])
        >>> list(words.select(col("word").upper_case).execute().collect())
        [<Row('TO')>, <Row('BE')>]
    """

    def __init__(
        self, node: Node, planner: StatementPlanner, declared: CatalogTable | None = None, is_sorted: bool = False
    ) -> None:
        self._node = node
        self._planner = planner
        self._name: str | None = None
        # The declaration, if the table is a declared one or a filter of it, and not the result of a query.
        self._declared = declared
        # `offset` and `fetch` complete the order or limit that a table ends with.
        self._is_sorted = is_sorted

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the first rows of a bounded table, the columns of an unbounded one."""
        return as_html(self, self._node, self._planner.config.get_local_timezone())

    def __str__(self) -> str:
        """Return the name of the table in SQL."""
        if self._name is None:
            self._name = self._planner.create_unnamed_view(self._node, self._declared)
        return self._name

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_") or name not in self._node.fields.names:
            raise AttributeError(
                f"The current table has no column named '{name}', available columns: "
                f"[{', '.join(self._node.fields.names) if '_node' in self.__dict__ else ''}]"
            )
        return Expression(syntax.Name((name,)))

    def _with_node(self, node: Node) -> Table:
        return Table(node, self._planner)

    @property
    def _binder(self) -> TranslatingBinder:
        return self._planner.binder()

    def _selection(
        self, window: GroupWindow | None = None, over: Mapping[str, syntax.Window] | None = None
    ) -> Selection:
        return Selection(self._planner, self._node, window, over)

    # --- columns

    def select(self, *fields: Expression) -> Table:
        """Return columns, or aggregates over all rows."""
        chosen = self._selection()
        return self._with_node(chosen.selected(fields))

    def alias(self, field: str, *fields: str) -> Table:
        """Rename the columns, starting with the first."""
        return self._with_node(self._binder.rename(self._node, [field, *fields]))

    def add_columns(self, *fields: Expression) -> Table:
        """Append columns under new names."""
        return self._with_node(self._selection().added(fields))

    def add_or_replace_columns(self, *fields: Expression) -> Table:
        """Append columns; a column of an existing name replaces it."""
        return self._with_node(self._selection().added(fields, replaces=True))

    def rename_columns(self, *fields: Expression) -> Table:
        """Rename columns: `rename_columns(col("a").alias("b"))`."""
        names = list(self._node.fields.names)
        for old, field in zip(tables_columns(fields, "rename_columns"), fields, strict=True):
            if old not in names:
                raise ValidationException(f"Rename column '{old}': there is no such column in {names}.")
            aliases = aliases_of(field)
            if not aliases:
                raise ValidationException(f"Rename column '{old}' needs an alias: col('{old}').alias('b').")
            names[names.index(old)] = aliases[0]
        return self._with_node(self._binder.rename(self._node, names))

    def drop_columns(self, *fields: Expression) -> Table:
        """Drop columns."""
        return self._with_node(self._selection().dropped(fields))

    # --- rows

    def filter(self, predicate: Expression[bool]) -> Table:
        """Return the rows for which a condition is true."""
        return Table(self._binder.filter(self._node, self._selection().tree(predicate)), self._planner, self._declared)

    def where(self, predicate: Expression[bool]) -> Table:
        """Return the rows for which a condition is true."""
        return self.filter(predicate)

    def group_by(self, *fields: Expression) -> GroupedTable:
        """Group rows, to select aggregates."""
        return GroupedTable(self, fields)

    def distinct(self) -> Table:
        """Remove duplicate rows."""
        return self._with_node(self._binder.distinct(self._node))

    def order_by(self, *fields: Expression) -> Table:
        """Order rows; `col("a").desc` orders descending. As in Flink, NULL is larger than every value."""
        chosen = self._selection()
        keys = [sort_key(chosen.tree(f), is_descending(f)) for f in fields]
        return Table(self._binder.order(self._node, keys), self._planner, self._declared, is_sorted=True)

    def offset(self, offset: int) -> Table:
        """Skip the first rows."""
        return self._limited(offset, None)

    def fetch(self, fetch: int) -> Table:
        """Limit the number of rows."""
        return self._limited(None, fetch)

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """Limit the number of rows, after skipping an offset."""
        return self._limited(offset, fetch)

    def _limited(self, offset: int | None, fetch: int | None) -> Table:
        node = self._binder.limit(self._node, offset, fetch, self._is_sorted)
        return Table(node, self._planner, self._declared, is_sorted=True)

    # --- two tables

    def join(self, right: Table, join_predicate: Expression[bool] | None = None) -> Table:
        """Return pairs of rows for which a condition is true."""
        return self._joined(right, join_predicate, JoinKind.INNER)

    def left_outer_join(self, right: Table, join_predicate: Expression[bool] | None = None) -> Table:
        """Return pairs of rows, and rows of this table without a partner."""
        return self._joined(right, join_predicate, JoinKind.LEFT)

    def right_outer_join(self, right: Table, join_predicate: Expression[bool]) -> Table:
        """Return pairs of rows, and rows of the other table without a partner."""
        return self._joined(right, join_predicate, JoinKind.RIGHT)

    def full_outer_join(self, right: Table, join_predicate: Expression[bool]) -> Table:
        """Return pairs of rows, and rows of both tables without a partner."""
        return self._joined(right, join_predicate, JoinKind.FULL)

    def _joined(self, right: Table, predicate: Expression[bool] | None, kind: JoinKind) -> Table:
        self._check_environment(right)
        condition = None if predicate is None else self._selection().tree(predicate)
        return self._with_node(self._binder.join(self._node, right._node, condition, kind))

    def _check_environment(self, other: Table) -> None:
        if not isinstance(other, Table):
            raise InvalidProgramError(f"A Table is required, not {other!r}.")
        if other._planner is not self._planner:
            raise ValidationException("Only tables from the same TableEnvironment can be joined.")

    def join_lateral(
        self,
        table_function_call: Expression | UserDefinedTableFunctionWrapper,
        join_predicate: Expression[bool] | None = None,
    ) -> Table:
        """Join each row with the rows that a table function returns for it."""
        return self._with_node(self._selection().lateral(table_function_call, join_predicate, "INNER"))

    def left_outer_join_lateral(
        self,
        table_function_call: Expression | UserDefinedTableFunctionWrapper,
        join_predicate: Expression[bool] | None = None,
    ) -> Table:
        """Join each row with the rows that a table function returns for it; rows without any are padded with nulls."""
        return self._with_node(self._selection().lateral(table_function_call, join_predicate, "LEFT"))

    def minus(self, right: Table) -> Table:
        """Return the distinct rows that the other table does not contain."""
        return self._set("EXCEPT", False, right)

    def minus_all(self, right: Table) -> Table:
        """Return the rows without those of the other table: each row of the other table removes one equal row."""
        return self._set("EXCEPT", True, right)

    def union(self, right: Table) -> Table:
        """Return the distinct rows of both tables."""
        return self._set("UNION", False, right)

    def union_all(self, right: Table) -> Table:
        """Return the rows of both tables."""
        return self._set("UNION", True, right)

    def intersect(self, right: Table) -> Table:
        """Return the distinct rows that are in both tables."""
        return self._set("INTERSECT", False, right)

    def intersect_all(self, right: Table) -> Table:
        """Return the rows that are in both tables, with duplicates."""
        return self._set("INTERSECT", True, right)

    def _set(self, operator: str, all_: bool, right: Table) -> Table:
        self._check_environment(right)
        widths = len(self._node.fields), len(right._node.fields)
        if widths[0] != widths[1]:
            raise ValidationException(
                f"The {operator.lower()} operation on two tables of different column sizes: {widths[0]} and "
                f"{widths[1]} is not supported"
            )
        return self._with_node(self._binder.set_operation(operator, all_, self._node, right._node))

    # --- windows

    def window(self, window: GroupWindow) -> GroupWindowedTable:
        """Group rows by a window in time."""
        if not isinstance(window, GroupWindow):
            raise InvalidProgramError(f"window() takes a Tumble, Slide or Session with an alias, not {window!r}.")
        return GroupWindowedTable(self, window)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable:
        """Define the windows of aggregates with `over`."""
        if not all(isinstance(w, OverWindow) for w in over_windows):
            raise InvalidProgramError("over_window() takes windows of Over with an alias.")
        return OverWindowedTable(self, over_windows)

    # --- functions of users

    def map(self, func: Expression | UserDefinedFunctionWrapper) -> Table:
        """Map each row to a row with a function; the fields of a ROW result become columns."""
        return self._with_node(self._selection().mapped(func))

    def flat_map(self, func: Expression | UserDefinedTableFunctionWrapper) -> Table:
        """Map each row to any number of rows with a table function."""
        return self._with_node(self._selection().flat_mapped(func))

    def aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> AggregatedTable:
        """Aggregate all rows to a row with a function; the fields of a ROW result become columns."""
        return self.group_by().aggregate(func)

    def flat_aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> FlatAggregateTable:
        """Aggregate all rows to any number of rows with a table aggregate function."""
        return self.group_by().flat_aggregate(func)

    # --- changes as rows

    def to_changelog(self, *arguments: Expression) -> Table:
        """Convert the changelog to append-only rows with a leading operation column.

        Args:
            arguments: `descriptor("name").as_argument("op")` for another name than op, and
                `map_("INSERT", "I", ..).as_argument("op_mapping")` sets the codes; unmapped kinds are dropped.
        """
        return self._with_node(self._binder.changelog("TO_CHANGELOG", self._node, [tree_of(a) for a in arguments]))

    def from_changelog(self, *arguments: Expression) -> Table:
        """Convert rows with an operation column to a changelog.

        Args:
            arguments: as of `to_changelog`; the mapping has the column's codes and the row kind of each:
                `map_("c, r", "INSERT", "d", "DELETE").as_argument("op_mapping")`.
        """
        return self._with_node(self._binder.changelog("FROM_CHANGELOG", self._node, [tree_of(a) for a in arguments]))

    # --- schema and plan

    def get_schema(self) -> TableSchema:
        """Old: return the columns in the older form."""
        warn_deprecated("get_schema()", "use get_resolved_schema()")
        return TableSchema(self._node.fields.names, self._node.fields.types)

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns; for a declared table also computed columns, the watermark and the key."""
        if self._declared is None:
            return ResolvedSchema.of_fields(self._node.fields)
        return ResolvedSchema.of_table(self._declared, self._node.fields)

    def print_schema(self) -> None:
        """Print the columns and their types."""
        print(self.get_resolved_schema())

    def explain(self, *extra_details: int) -> str:
        """Return the plan of the query."""
        return self._planner.explain([Collected(self._node.fields, self._node)], extra_details)

    def print_explain(self, *extra_details: int) -> None:
        """Print the plan of the query."""
        print(self.explain(*extra_details))

    # --- running

    def execute(self) -> TableResult:
        """Run the query; its rows are collected."""
        return self._planner.runner.collect(self._node)

    def insert_into(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TablePipeline:
        """Return a pipeline into a table, to be executed or added to a statement set."""
        return TablePipeline(self._planner, self._planner.sink(self._node, table_path_or_descriptor, overwrite))

    def execute_insert(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TableResult:
        """Write the rows to a table: start a job, `wait()` for its end."""
        return self.insert_into(table_path_or_descriptor, overwrite).execute()

    def to_arrow(self) -> pa.Table:
        """Run the query and return all rows as a pyarrow.Table."""
        return arrow_table(self._node.fields, self.execute().arrow_batches(), self._planner.config.get_local_timezone())

    def to_pandas(self) -> pandas.DataFrame:
        """Run the query and return all rows as a pandas.DataFrame."""
        return as_pandas(self.to_arrow())


def node_of(table: Table) -> Node:
    """Return the relation of a table."""
    return table._node


def declaration_of(table: Table) -> CatalogTable | None:
    """Return the declaration that a table reads; None for the result of a query."""
    return table._declared


class GroupedTable:
    """A table grouped by columns."""

    def __init__(self, table: Table, keys: Sequence[Expression]) -> None:
        self._table = table
        self._keys = tuple(keys)

    def select(self, *fields: Expression) -> Table:
        """Return a row for each group: keys and aggregates."""
        return self._table._with_node(self._table._selection().grouped(self._keys, fields))

    def aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> AggregatedTable:
        """Aggregate each group to a row with a function; the fields of a ROW result become columns."""
        return AggregatedTable(self._table._with_node(self._table._selection().aggregated(self._keys, func)))

    def flat_aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> FlatAggregateTable:
        """Aggregate each group to any number of rows with a table aggregate function."""
        return FlatAggregateTable(self._table._with_node(self._table._selection().flat_aggregated(self._keys, func)))


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
        chosen = self._table._selection(window=self._window)
        return self._table._with_node(chosen.grouped(self._keys, fields))

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
        chosen = self._table._selection(over={w.alias: w.tree for w in self._windows})
        return self._table._with_node(chosen.selected(fields))


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
        chosen = self._table._selection(window=self._window)
        return self._table._with_node(chosen.window_aggregated(self._keys, self._func, fields))


class FlatAggregateTable:
    """The result of `flat_aggregate` of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def select(self, *fields: Expression) -> Table:
        """Return columns of the grouping keys and of the function's result rows."""
        return self._table.select(*fields)
