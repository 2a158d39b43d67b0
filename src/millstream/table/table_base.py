"""The base of Table: its columns, its plan, and how it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self, TypeVar

from millstream.common.call_site import warn_deprecated
from millstream.common.errors import InvalidProgramError
from millstream.datastream.live_view import MAX_ROWS, LiveView, check_notebook
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import ValidationException
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Collected, Node
from millstream.table.api_syntax import Subquery
from millstream.table.api_to_syntax import Selection
from millstream.table.catalog import ResolvedSchema
from millstream.table.expression import Expression
from millstream.table.in_memory_tables import arrow_table, as_pandas
from millstream.table.table_pipeline import TablePipeline
from millstream.table.table_schema import TableSchema
from millstream.table.window import GroupWindow

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from millstream.sql.catalog.tables import CatalogTable
    from millstream.table.statement_planner import StatementPlanner
    from millstream.table.table_descriptor import TableDescriptor
    from millstream.table.table_result import TableResult
    from millstream.table.translating_binder import TranslatingBinder

AnyTable = TypeVar("AnyTable", bound="TableBase")


class TableBase(Subquery):
    """A query with its columns, its plan, and its execution."""

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

    def _with_node(self, node: Node) -> Self:
        return type(self)(node, self._planner)

    @property
    def _binder(self) -> TranslatingBinder:
        return self._planner.binder()

    def _selection(
        self, window: GroupWindow | None = None, over: Mapping[str, syntax.Window] | None = None
    ) -> Selection:
        return Selection(self._planner, self._node, window, over)

    def _check_environment(self, other: TableBase) -> None:
        if not isinstance(other, TableBase):
            raise InvalidProgramError(f"A Table is required, not {other!r}.")
        if other._planner is not self._planner:
            raise ValidationException("Only tables from the same TableEnvironment can be joined.")

    # --- schema and plan

    def get_schema(self) -> TableSchema:
        """Return the columns as a TableSchema.

        Deprecated, as in Flink: use `get_resolved_schema`.
        """
        warn_deprecated("get_schema()", "use get_resolved_schema()")
        return TableSchema(self._node.fields.names, self._node.fields.types)

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns; for a declared table also computed columns, the watermark and the key.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> orders.get_resolved_schema().get_column_data_types()
            [VarCharType(2147483647, true), BigIntType(true)]
        """
        if self._declared is None:
            return ResolvedSchema.of_fields(self._node.fields)
        return ResolvedSchema.of_table(self._declared, self._node.fields)

    def print_schema(self) -> None:
        """Print the columns and their types.

        Example:
            >>> t_env.from_elements([("ann", 3)], ["user", "price"]).print_schema()
            (
              `user` STRING,
              `price` BIGINT
            )
        """
        print(self.get_resolved_schema())

    def explain(self, *extra_details: int) -> str:
        """Return the plan of the query as text, without running it.

        Args:
            extra_details: values of ExplainDetail, such as `ExplainDetail.CHANGELOG_MODE`.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> "== Optimized Execution Plan ==" in orders.explain()
            True
        """
        return self._planner.explain([Collected(self._node.fields, self._node)], extra_details)

    def print_explain(self, *extra_details: int) -> None:
        """Print the plan of the query, as `explain` returns it.

        Example:
            >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
            >>> orders.select(col("price")).print_explain()
            == Abstract Syntax Tree ==
            LogicalProject(price=[$1])
            +- LogicalTableScan(table=[[*anonymous_python-input-format$1*]])
            <BLANKLINE>
            == Optimized Physical Plan ==
            TableSourceScan(table=[[*anonymous_python-input-format$1*]], fields=[price])
            <BLANKLINE>
            == Optimized Execution Plan ==
            TableSourceScan(table=[[*anonymous_python-input-format$1*]], fields=[price])
            <BLANKLINE>
        """
        print(self.explain(*extra_details))

    # --- running

    def execute(self) -> TableResult:
        """Run the query and return its result: `print()` prints the rows, `collect()` iterates over them.

        Example:
            >>> t_env.from_elements([("ann", 3)], ["user", "price"]).execute().print()
            +----+--------------------------------+----------------------+
            | op |                           user |                price |
            +----+--------------------------------+----------------------+
            | +I |                            ann |                    3 |
            +----+--------------------------------+----------------------+
            1 row in set
        """
        return self._planner.runner.collect(self._node)

    def show_live(self, max_rows: int = MAX_ROWS) -> LiveView[Batch]:
        """Run the query and show its rows in a notebook while they arrive. Not in PyFlink.

        The cell shows the last rows, or the rows after all changes if the query updates its result. The job runs in the
        background; the returned view has `stop()` and `wait()`, and a Stop button if ipywidgets is installed.

        Args:
            max_rows: the number of rows to show.
        """
        check_notebook("show_live")
        return self._planner.runner.collect(self._node).show_live(max_rows)

    def insert_into(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TablePipeline:
        """Return a pipeline into a table, to be executed or added to a statement set; nothing runs yet.

        Args:
            table_path_or_descriptor: the name of a table, or a descriptor of an anonymous one.
            overwrite: replaces the table's rows; by default rows are appended.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'blackhole')")
            >>> pipeline = t_env.from_elements([(1,)]).insert_into("sink")
            >>> pipeline.get_sink_identifier().as_summary_string()
            'default_catalog.default_database.sink'
        """
        return TablePipeline(self._planner, self._planner.sink(self._node, table_path_or_descriptor, overwrite))

    def execute_insert(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TableResult:
        """Write the rows to a table: start a job and return at once; `wait()` waits for its end.

        Args:
            table_path_or_descriptor: the name of a table, or a descriptor of an anonymous one.
            overwrite: replaces the table's rows; by default rows are appended.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> t_env.from_elements([(1,), (2,)]).execute_insert("sink").wait()
            +I[1]
            +I[2]
        """
        return self.insert_into(table_path_or_descriptor, overwrite).execute()

    def to_arrow(self) -> pa.Table:
        """Run the query and return all rows as a pyarrow.Table; changes are applied. PyFlink has no such method.

        Example:
            >>> t_env.from_elements([("ann", 3)], ["user", "price"]).to_arrow().to_pylist()
            [{'user': 'ann', 'price': 3}]
        """
        return arrow_table(self._node.fields, self.execute().arrow_batches(), self._planner.config.get_local_timezone())

    def to_pandas(self) -> pandas.DataFrame:
        """Run the query and return all rows as a pandas.DataFrame; changes are applied, so a total occurs once.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("ann", 4)], ["user", "price"])
            >>> orders.group_by(col("user")).select(col("user"), col("price").sum.alias("total")).to_pandas()
              user  total
            0  ann      7
        """
        return as_pandas(self.to_arrow())


def node_of(table: TableBase) -> Node:
    """Return the relation of a table."""
    return table._node


def declaration_of(table: TableBase) -> CatalogTable | None:
    """Return the declaration that a table reads; None for the result of a query."""
    return table._declared


def with_node(table: AnyTable, node: Node) -> AnyTable:
    """Return a table of the same environment with another relation."""
    return table._with_node(node)


def selection_of(
    table: TableBase, window: GroupWindow | None = None, over: Mapping[str, syntax.Window] | None = None
) -> Selection:
    """Return the translation of expressions over the columns of a table, and over a window."""
    return table._selection(window, over)
