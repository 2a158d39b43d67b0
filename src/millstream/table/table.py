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
from millstream.table.result_display import as_html
from millstream.table.table_base import TableBase, node_of
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

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the first rows of a bounded table, the columns of an unbounded one."""
        return as_html(self, self._node, self._planner.config.get_local_timezone())

    # --- columns

    def select(self, *fields: Expression) -> Table:
        """Return some columns and expressions of them, or aggregates over all rows.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["user", "price"])
            >>> list(orders.select(col("user"), (col("price") * 2).alias("double")).execute().collect())
            [<Row('ann', 6)>, <Row('bob', 10)>]
            >>> orders.select(col("price").sum.alias("total")).to_pandas()
               total
            0      8
        """
        chosen = self._selection()
        return self._with_node(chosen.selected(fields))

    def alias(self, field: str, *fields: str) -> Table:
        """Rename the columns, starting with the first; the rest keep their names.

        Example:
            >>> t_env.from_elements([("ann", 3)]).alias("user", "price").get_resolved_schema().get_column_names()
            ['user', 'price']
        """
        return self._with_node(self._binder.rename(self._node, [field, *fields]))

    def add_columns(self, *fields: Expression) -> Table:
        """Append columns under new names.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> list(orders.add_columns((col("price") > 2).alias("large")).execute().collect())
            [<Row('ann', 3, True)>]
        """
        return self._with_node(self._selection().added(fields))

    def add_or_replace_columns(self, *fields: Expression) -> Table:
        """Append columns; a column of an existing name replaces it.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> list(orders.add_or_replace_columns(col("user").upper_case.alias("user")).execute().collect())
            [<Row('ANN', 3)>]
        """
        return self._with_node(self._selection().added(fields, replaces=True))

    def rename_columns(self, *fields: Expression) -> Table:
        """Rename columns, each by its alias; the others keep their names.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> orders.rename_columns(col("price").alias("amount")).get_resolved_schema().get_column_names()
            ['user', 'amount']
        """
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
        """Drop columns.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> list(orders.drop_columns(col("price")).execute().collect())
            [<Row('ann')>]
        """
        return self._with_node(self._selection().dropped(fields))

    # --- rows

    def filter(self, predicate: Expression[bool]) -> Table:
        """Return the rows for which a condition is true, as WHERE does; a row for which it is null is dropped.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["user", "price"])
            >>> list(orders.filter((col("price") > 4) & (col("user") != "eve")).execute().collect())
            [<Row('bob', 5)>]
        """
        return Table(self._binder.filter(self._node, self._selection().tree(predicate)), self._planner, self._declared)

    def where(self, predicate: Expression[bool]) -> Table:
        """Return the rows for which a condition is true; the same as `filter`.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["user", "price"])
            >>> list(orders.where(col("user") == "ann").execute().collect())
            [<Row('ann', 3)>]
        """
        return self.filter(predicate)

    def group_by(self, *fields: Expression) -> GroupedTable:
        """Group rows by columns or expressions, to select aggregates of each group.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5), ("ann", 4)], ["user", "price"])
            >>> totals = orders.group_by(col("user")).select(col("user"), col("price").sum.alias("total"))
            >>> totals.execute().print()
            +----+--------------------------------+----------------------+
            | op |                           user |                total |
            +----+--------------------------------+----------------------+
            | +I |                            ann |                    3 |
            | +I |                            bob |                    5 |
            | -U |                            ann |                    3 |
            | +U |                            ann |                    7 |
            +----+--------------------------------+----------------------+
            4 rows in set
        """
        return GroupedTable(self, fields)

    def distinct(self) -> Table:
        """Remove duplicate rows; each row is emitted once, when it first arrives.

        Example:
            >>> words = t_env.from_elements([("to",), ("be",), ("to",)], ["word"])
            >>> list(words.distinct().execute().collect())
            [<Row('to')>, <Row('be')>]
        """
        return self._with_node(self._binder.distinct(self._node))

    def order_by(self, *fields: Expression) -> Table:
        """Order rows; `col("a").desc` orders descending.

        NULL is larger than every value, as in Flink's Table API. In streaming mode, order by an ascending time
        attribute, or add `fetch`.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5), ("eve", 4)], ["user", "price"])
            >>> orders.order_by(col("price").desc).fetch(2).to_pandas()
              user  price
            0  bob      5
            1  eve      4
        """
        chosen = self._selection()
        keys = [sort_key(chosen.tree(f), is_descending(f)) for f in fields]
        return Table(self._binder.order(self._node, keys), self._planner, self._declared, is_sorted=True)

    def offset(self, offset: int) -> Table:
        """Skip the first rows of a table that `order_by` has ordered.

        Example:
            >>> numbers = t_env.from_elements([(3,), (1,), (2,)], ["n"])
            >>> numbers.order_by(col("n")).offset(1).fetch(1).to_pandas()["n"].tolist()
            [2]
        """
        return self._limited(offset, None)

    def fetch(self, fetch: int) -> Table:
        """Limit the number of rows; after `order_by` these are the first in order.

        Example:
            >>> numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
            >>> list(numbers.fetch(2).execute().collect())
            [<Row(1)>, <Row(2)>]
        """
        return self._limited(None, fetch)

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """Limit the number of rows, after skipping an offset, by default none.

        Example:
            >>> numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
            >>> list(numbers.limit(1, offset=1).execute().collect())
            [<Row(2)>]
        """
        return self._limited(offset, fetch)

    def _limited(self, offset: int | None, fetch: int | None) -> Table:
        node = self._binder.limit(self._node, offset, fetch, self._is_sorted)
        return Table(node, self._planner, self._declared, is_sorted=True)

    # --- two tables

    def join(self, right: Table, join_predicate: Expression[bool] | None = None) -> Table:
        """Return pairs of rows for which a condition is true; all pairs without a condition.

        Both tables need different column names. In streaming mode, the rows of both are retained in state.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["user", "price"])
            >>> cities = t_env.from_elements([("ann", "Oslo")], ["name", "city"])
            >>> joined = orders.join(cities, col("user") == col("name"))
            >>> list(joined.select(col("user"), col("price"), col("city")).execute().collect())
            [<Row('ann', 3, 'Oslo')>]
        """
        return self._joined(right, join_predicate, JoinKind.INNER)

    def left_outer_join(self, right: Table, join_predicate: Expression[bool] | None = None) -> Table:
        """Return pairs of rows, and rows of this table without a partner, padded with nulls.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["user", "price"])
            >>> cities = t_env.from_elements([("ann", "Oslo")], ["name", "city"])
            >>> joined = orders.left_outer_join(cities, col("user") == col("name"))
            >>> joined.select(col("user"), col("city")).to_pandas()
              user  city
            0  bob  None
            1  ann  Oslo
        """
        return self._joined(right, join_predicate, JoinKind.LEFT)

    def right_outer_join(self, right: Table, join_predicate: Expression[bool]) -> Table:
        """Return pairs of rows, and rows of the other table without a partner, padded with nulls.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> cities = t_env.from_elements([("bob", "Rome")], ["name", "city"])
            >>> list(orders.right_outer_join(cities, col("user") == col("name")).execute().collect())
            [<Row(None, None, 'bob', 'Rome')>]
        """
        return self._joined(right, join_predicate, JoinKind.RIGHT)

    def full_outer_join(self, right: Table, join_predicate: Expression[bool]) -> Table:
        """Return pairs of rows, and rows of both tables without a partner, padded with nulls.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> cities = t_env.from_elements([("bob", "Rome")], ["name", "city"])
            >>> list(orders.full_outer_join(cities, col("user") == col("name")).execute().collect())
            [<Row('ann', 3, None, None)>, <Row(None, None, 'bob', 'Rome')>]
        """
        return self._joined(right, join_predicate, JoinKind.FULL)

    def _joined(self, right: Table, predicate: Expression[bool] | None, kind: JoinKind) -> Table:
        self._check_environment(right)
        condition = None if predicate is None else self._selection().tree(predicate)
        return self._with_node(self._binder.join(self._node, node_of(right), condition, kind))

    def join_lateral(
        self,
        table_function_call: Expression | UserDefinedTableFunctionWrapper,
        join_predicate: Expression[bool] | None = None,
    ) -> Table:
        """Join each row with the rows that a table function returns for it; rows without any are dropped.

        Example:
            >>> from millstream.table.udf import udtf
            >>> split = udtf(lambda text: text.split(), result_types=[DataTypes.STRING()])
            >>> lines = t_env.from_elements([(1, "to be"), (2, "")], ["id", "text"])
            >>> words = lines.join_lateral(split(col("text")).alias("word"))
            >>> list(words.select(col("id"), col("word")).execute().collect())
            [<Row(1, 'to')>, <Row(1, 'be')>]
        """
        return self._with_node(self._selection().lateral(table_function_call, join_predicate, "INNER"))

    def left_outer_join_lateral(
        self,
        table_function_call: Expression | UserDefinedTableFunctionWrapper,
        join_predicate: Expression[bool] | None = None,
    ) -> Table:
        """Join each row with the rows that a table function returns for it; rows without any are padded with nulls.

        Example:
            >>> from millstream.table.udf import udtf
            >>> split = udtf(lambda text: text.split(), result_types=[DataTypes.STRING()])
            >>> lines = t_env.from_elements([(1, "to be"), (2, "")], ["id", "text"])
            >>> words = lines.left_outer_join_lateral(split(col("text")).alias("word"))
            >>> list(words.select(col("id"), col("word")).execute().collect())
            [<Row(1, 'to')>, <Row(1, 'be')>, <Row(2, None)>]
        """
        return self._with_node(self._selection().lateral(table_function_call, join_predicate, "LEFT"))

    def minus(self, right: Table) -> Table:
        """Return the distinct rows that the other table does not contain.

        Example:
            >>> left, right = t_env.from_elements([(1,), (1,), (2,)]), t_env.from_elements([(2,)])
            >>> left.minus(right).to_pandas()["_1"].tolist()
            [1]
        """
        return self._set("EXCEPT", False, right)

    def minus_all(self, right: Table) -> Table:
        """Return the rows without those of the other table: each row of the other table removes one equal row.

        Example:
            >>> left, right = t_env.from_elements([(1,), (1,), (2,)]), t_env.from_elements([(1,)])
            >>> left.minus_all(right).to_pandas()["_1"].tolist()
            [1, 2]
        """
        return self._set("EXCEPT", True, right)

    def union(self, right: Table) -> Table:
        """Return the distinct rows of both tables.

        Example:
            >>> left, right = t_env.from_elements([(1,), (2,)]), t_env.from_elements([(2,), (3,)])
            >>> sorted(left.union(right).to_pandas()["_1"])
            [1, 2, 3]
        """
        return self._set("UNION", False, right)

    def union_all(self, right: Table) -> Table:
        """Return the rows of both tables, with duplicates; this needs no state.

        Example:
            >>> left, right = t_env.from_elements([(1,), (2,)]), t_env.from_elements([(2,), (3,)])
            >>> sorted(left.union_all(right).to_pandas()["_1"])
            [1, 2, 2, 3]
        """
        return self._set("UNION", True, right)

    def intersect(self, right: Table) -> Table:
        """Return the distinct rows that are in both tables.

        Example:
            >>> left, right = t_env.from_elements([(1,), (2,), (2,)]), t_env.from_elements([(2,), (2,)])
            >>> list(left.intersect(right).execute().collect())
            [<Row(2)>]
        """
        return self._set("INTERSECT", False, right)

    def intersect_all(self, right: Table) -> Table:
        """Return the rows that are in both tables, with duplicates.

        Example:
            >>> left, right = t_env.from_elements([(1,), (2,), (2,)]), t_env.from_elements([(2,), (2,)])
            >>> list(left.intersect_all(right).execute().collect())
            [<Row(2)>, <Row(2)>]
        """
        return self._set("INTERSECT", True, right)

    def _set(self, operator: str, all_: bool, right: Table) -> Table:
        self._check_environment(right)
        widths = len(self._node.fields), len(node_of(right).fields)
        if widths[0] != widths[1]:
            raise ValidationException(
                f"The {operator.lower()} operation on two tables of different column sizes: {widths[0]} and "
                f"{widths[1]} is not supported"
            )
        return self._with_node(self._binder.set_operation(operator, all_, self._node, node_of(right)))

    # --- windows

    def window(self, window: GroupWindow) -> GroupWindowedTable:
        """Group rows by a window in time or of rows; `group_by` follows, with the window's alias.

        Example:
            >>> from millstream.table.expressions import call_sql, row_interval
            >>> from millstream.table.window import Tumble
            >>> prices = t_env.from_elements([(1,), (2,), (3,), (4,)], ["price"])
            >>> prices = prices.add_columns(call_sql("PROCTIME()").alias("at"))
            >>> pairs = prices.window(Tumble.over(row_interval(2)).on(col("at")).alias("w")).group_by(col("w"))
            >>> list(pairs.select(col("price").sum).execute().collect())
            [<Row(3)>, <Row(7)>]
        """
        if not isinstance(window, GroupWindow):
            raise InvalidProgramError(f"window() takes a Tumble, Slide or Session with an alias, not {window!r}.")
        return GroupWindowedTable(self, window)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable:
        """Define windows of rows before each row, which aggregates use with `over`.

        Example:
            >>> from millstream.table.expressions import call_sql, row_interval
            >>> from millstream.table.window import Over
            >>> prices = t_env.from_elements([(1,), (2,), (3,)], ["price"])
            >>> prices = prices.add_columns(call_sql("PROCTIME()").alias("at"))
            >>> last_two = Over.order_by(col("at")).preceding(row_interval(1)).alias("w")
            >>> sums = prices.over_window(last_two).select(col("price"), col("price").sum.over(col("w")))
            >>> list(sums.execute().collect())
            [<Row(1, 1)>, <Row(2, 3)>, <Row(3, 5)>]
        """
        if not all(isinstance(w, OverWindow) for w in over_windows):
            raise InvalidProgramError("over_window() takes windows of Over with an alias.")
        return OverWindowedTable(self, over_windows)

    # --- functions of users

    def map(self, func: Expression | UserDefinedFunctionWrapper) -> Table:
        """Map each row to a row with a scalar function; the fields of a ROW result become columns.

        Example:
            >>> from millstream.common.types import Row
            >>> from millstream.table.udf import udf
            >>> length = udf(lambda word: Row(word, len(word)), result_type="ROW<word STRING, n BIGINT>")
            >>> words = t_env.from_elements([("to",), ("sleep",)], ["word"])
            >>> list(words.map(length(col("word"))).execute().collect())
            [<Row('to', 2)>, <Row('sleep', 5)>]
        """
        return self._with_node(self._selection().mapped(func))

    def flat_map(self, func: Expression | UserDefinedTableFunctionWrapper) -> Table:
        """Map each row to any number of rows with a table function.

        Example:
            >>> from millstream.table.udf import udtf
            >>> split = udtf(lambda text: text.split(), result_types=[DataTypes.STRING()])
            >>> lines = t_env.from_elements([("to be",), ("or",)], ["text"])
            >>> list(lines.flat_map(split(col("text")).alias("word")).execute().collect())
            [<Row('to')>, <Row('be')>, <Row('or')>]
        """
        return self._with_node(self._selection().flat_mapped(func))

    def aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> AggregatedTable:
        """Aggregate all rows to a row with an aggregate function; the fields of a ROW result become columns.

        `select` must follow. `group_by(...).aggregate(...)` does the same for each group.

        Example:
            >>> from millstream.table.udf import AggregateFunction, udaf
            >>> class Product(AggregateFunction):
            ...     def create_accumulator(self): return [1]
            ...     def accumulate(self, accumulator, n): accumulator[0] *= n
            ...     def get_value(self, accumulator): return accumulator[0]
            >>> product = udaf(Product(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
            >>> numbers = t_env.from_elements([(2,), (3,), (4,)], ["n"])
            >>> numbers.aggregate(product(col("n")).alias("all")).select(col("all")).to_pandas()
               all
            0   24
        """
        return self.group_by().aggregate(func)

    def flat_aggregate(self, func: Expression | UserDefinedAggregateFunctionWrapper) -> FlatAggregateTable:
        """Aggregate all rows to any number of rows with a table aggregate function; `select` must follow.

        Example:
            >>> from millstream.table.udf import TableAggregateFunction, udtaf
            >>> class Top2(TableAggregateFunction):
            ...     def create_accumulator(self): return []
            ...     def accumulate(self, accumulator, n): accumulator[:] = sorted([*accumulator, n])[-2:]
            ...     def emit_value(self, accumulator): yield from accumulator
            >>> top2 = udtaf(Top2(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
            >>> numbers = t_env.from_elements([(3,), (1,), (2,)], ["n"])
            >>> numbers.flat_aggregate(top2(col("n")).alias("top")).select(col("top")).to_pandas()["top"].tolist()
            [2, 3]
        """
        return self.group_by().flat_aggregate(func)

    # --- changes as rows

    def to_changelog(self, *arguments: Expression) -> Table:
        """Convert the changelog to append-only rows with a leading operation column.

        Args:
            arguments: `descriptor("name").as_argument("op")` for another name than op, and
                `map_("INSERT", "I", ..).as_argument("op_mapping")` sets the codes; unmapped kinds are dropped.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("ann", 4)], ["user", "price"])
            >>> totals = orders.group_by(col("user")).select(col("user"), col("price").sum)
            >>> list(totals.to_changelog().execute().collect())
            [<Row('INSERT', 'ann', 3)>, <Row('UPDATE_BEFORE', 'ann', 3)>, <Row('UPDATE_AFTER', 'ann', 7)>]
        """
        return self._with_node(self._binder.changelog("TO_CHANGELOG", self._node, [tree_of(a) for a in arguments]))

    def from_changelog(self, *arguments: Expression) -> Table:
        """Convert rows with an operation column to a changelog.

        Args:
            arguments: as of `to_changelog`; the mapping has the column's codes and the row kind of each:
                `map_("c, r", "INSERT", "d", "DELETE").as_argument("op_mapping")`.

        Example:
            >>> rows = t_env.from_elements([("INSERT", 1), ("INSERT", 2), ("DELETE", 1)], ["op", "n"])
            >>> rows.from_changelog().execute().print()
            +----+----------------------+
            | op |                    n |
            +----+----------------------+
            | +I |                    1 |
            | +I |                    2 |
            | -D |                    1 |
            +----+----------------------+
            3 rows in set
        """
        return self._with_node(self._binder.changelog("FROM_CHANGELOG", self._node, [tree_of(a) for a in arguments]))
