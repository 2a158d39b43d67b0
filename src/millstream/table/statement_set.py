"""StatementSet: several INSERTs as one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.errors import TableException
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.language.statements import Insert
from millstream.sql.plan.nodes import Sink
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_pipeline import TablePipeline, sink_of

if TYPE_CHECKING:
    from millstream.table.compiled_plan import CompiledPlan
    from millstream.table.statement_planner import StatementPlanner
    from millstream.table.table import Table
    from millstream.table.table_result import TableResult

__all__ = ["StatementSet"]


class StatementSet:
    """Runs several INSERTs as one job, which reads shared inputs once.

    Example:
        >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
        >>> statements = t_env.create_statement_set()
        >>> _ = statements.add_insert_sql("INSERT INTO sink VALUES 1, 2")
        >>> _ = statements.add_insert("sink", t_env.from_elements([(30,)]))
        >>> statements.execute().wait()
        +I[1]
        +I[2]
        +I[30]
    """

    def __init__(self, planner: StatementPlanner) -> None:
        self._planner = planner
        self._sinks: list[Sink] = []

    def add(self, table_pipeline: TablePipeline) -> StatementSet:
        """Add a pipeline that `Table.insert_into` returned.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> statements = t_env.create_statement_set()
            >>> statements.add(t_env.from_elements([(1,)]).insert_into("sink")).execute().wait()
            +I[1]
        """
        self._sinks.append(sink_of(table_pipeline))
        return self

    def add_insert_sql(self, stmt: str) -> StatementSet:
        """Add an INSERT in SQL; other statements are an error.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> t_env.create_statement_set().add_insert_sql("INSERT INTO sink VALUES 1").execute().wait()
            +I[1]
        """
        statement = read_statement(stmt)
        if not isinstance(statement, Insert):
            raise TableException("Only insert statement is supported now.")
        self._sinks.append(self._planner.binder().insert(statement, stmt))
        return self

    def attach_as_datastream(self) -> None:
        """Add the statements to the DataStream program, whose next `env.execute()` runs both, and clear the set.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> t_env.create_statement_set().add_insert_sql("INSERT INTO sink VALUES 1").attach_as_datastream()
            >>> _ = env.execute()
            +I[1]
        """
        self._planner.runner.attach(self._take_sinks())

    def add_insert(
        self, target_path_or_descriptor: str | TableDescriptor, table: Table, overwrite: bool = False
    ) -> StatementSet:
        """Add an INSERT of a table's rows into another table.

        Args:
            target_path_or_descriptor: the name of a table, or a descriptor of an anonymous one.
            table: the rows.
            overwrite: replaces the table's rows; by default rows are appended.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> t_env.create_statement_set().add_insert("sink", t_env.from_elements([(1,)])).execute().wait()
            +I[1]
        """
        return self.add(table.insert_into(target_path_or_descriptor, overwrite))

    def explain(self, *extra_details: int) -> str:
        """Return the plan of all statements as text, without running them.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n INT) WITH ('connector' = 'blackhole')")
            >>> statements = t_env.create_statement_set().add_insert_sql("INSERT INTO sink VALUES 1")
            >>> "Sink(table=[default_catalog.default_database.sink]" in statements.explain()
            True
        """
        return self._planner.explain(self._sinks, extra_details)

    def print_explain(self, *extra_details: int) -> None:
        """Print the plan of all statements, as `explain` returns it.

        See `Table.print_explain` for an example.
        """
        print(self.explain(*extra_details))

    def execute(self) -> TableResult:
        """Start one job for all statements, and clear the set; `wait()` of the result waits for its end.

        See `StatementSet` for an example.
        """
        return self._planner.runner.run(self._take_sinks())

    def _take_sinks(self) -> list[Sink]:
        if not self._sinks:
            raise TableException("The statement set is empty: add a statement first.")
        sinks, self._sinks = self._sinks, []
        return sinks

    def compile_plan(self) -> CompiledPlan:
        """Compile the statements to a plan that can be stored and executed unchanged, and clear the set.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> plan = t_env.create_statement_set().add_insert_sql("INSERT INTO sink VALUES 1").compile_plan()
            >>> plan.execute().wait()
            +I[1]
        """
        return self._planner.compile(self._take_sinks())
