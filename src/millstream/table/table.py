"""Table: a relational query that a program builds step by step."""

from __future__ import annotations

from millstream.common.errors import InvalidProgramError
from millstream.sql.errors import ValidationException
from millstream.sql.plan.nodes import JoinKind
from millstream.table.api_syntax import sort_key
from millstream.table.api_to_syntax import tables_columns
from millstream.table.expression import Expression, aliases_of, is_descending, tree_of
from millstream.table.grouped_tables import (
    AggregatedTable,
    FlatAggregateTable,
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    WindowGroupedTable,
)
from millstream.table.table_base import TableBase
from millstream.table.udf import (
    UserDefinedAggregateFunctionWrapper,
    UserDefinedFunctionWrapper,
    UserDefinedTableFunctionWrapper,
)
from millstream.table.window import GroupWindow, OverWindow

__all__ = ["GroupWindowedTable", "GroupedTable", "OverWindowedTable", "Table", "WindowGroupedTable"]


class Table(TableBase):
    """A query over rows with named columns; execute() runs it.

    Example:
        >>> from millstream.table import EnvironmentSettings, TableEnvironment
        >>> from millstream.table.expressions import col
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = t_env.from_elements([("to", 1), ("be", 2)], ["word", "n"])
        >>> list(words.select(col("word").upper_case).execute().collect())
        [<Row('TO')>, <Row('BE')>]
    """

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
