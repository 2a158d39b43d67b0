"""TablePipeline: a query and its target table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.plan.nodes import Sink
from millstream.table.object_identifier import ObjectIdentifier

if TYPE_CHECKING:
    from millstream.table.compiled_plan import CompiledPlan
    from millstream.table.statement_planner import StatementPlanner
    from millstream.table.table_result import TableResult

__all__ = ["TablePipeline"]


class TablePipeline:
    """Joins a query and its target table, as `Table.insert_into` returns it.

    Example:
        >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
        >>> pipeline = t_env.from_elements([(1,), (2,)]).insert_into("sink")
        >>> pipeline.execute().wait()
        +I[1]
        +I[2]
    """

    def __init__(self, planner: StatementPlanner, sink: Sink) -> None:
        self._planner = planner
        self._sink = sink

    def __str__(self) -> str:
        return f"TablePipeline into {'.'.join(self._sink.name)}"

    def execute(self) -> TableResult:
        """Start a job that writes the rows, and return at once; `wait()` waits for its end.

        See `TablePipeline` for an example.
        """
        return self._planner.runner.run([self._sink])

    def explain(self, *extra_details: int) -> str:
        """Return the plan as text, without running it.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> pipeline = t_env.from_elements([(1,)]).insert_into("sink")
            >>> "Sink(table=[default_catalog.default_database.sink]" in pipeline.explain()
            True
        """
        return self._planner.explain([self._sink], extra_details)

    def print_explain(self, *extra_details: int) -> None:
        """Print the plan, as `explain` returns it.

        See `Table.print_explain` for an example.
        """
        print(self.explain(*extra_details))

    def get_sink_identifier(self) -> ObjectIdentifier | None:
        """Return the full name of the table; None for one without a name.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> t_env.from_elements([(1,)]).insert_into("sink").get_sink_identifier().get_object_name()
            'sink'
        """
        catalog, database, name = self._sink.name
        return None if name.startswith("*anonymous") else ObjectIdentifier.of(catalog, database, name)

    def compile_plan(self) -> CompiledPlan:
        """Compile to a plan that can be stored and executed unchanged.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> pipeline = t_env.sql_query("SELECT COUNT(*) FROM (VALUES 1) AS t (x)").insert_into("sink")
            >>> pipeline.compile_plan().execute().wait()
            +I[1]
        """
        return self._planner.compile([self._sink])


def sink_of(pipeline: TablePipeline) -> Sink:
    """Return the sink of a pipeline."""
    return pipeline._sink
