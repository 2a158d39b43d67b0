"""CompiledPlan: a plan that can be stored and executed unchanged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.connectors.registry import Connectors
from millstream.sql.catalog.manager import CatalogManager, InlineView
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.connector_contract import TableContext, TableSink, TableSource
from millstream.sql.errors import TableException
from millstream.sql.functions.function import UserFunction
from millstream.sql.plan.nodes import Planned

if TYPE_CHECKING:
    from millstream.table.job_submission import Runner
    from millstream.table.table_result import TableResult

__all__ = ["CompiledPlan"]


class CompiledPlan:
    """Holds a plan: operators, expressions and tables, with the names that identify the state of operators.

    A plan that an earlier version compiled runs unchanged, and restores its checkpoints.

    Example:
        >>> from millstream.table import PlanReference
        >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
        >>> plan = t_env.compile_plan_sql("INSERT INTO sink SELECT COUNT(*) FROM (VALUES 1) AS t (x)")
        >>> plan.write_to_file("count.json")
        >>> t_env.execute_plan(PlanReference.from_file("count.json")).wait()
        +I[1]
    """

    def __init__(self, runner: Runner, plans: Sequence[Planned], known: KnownByName) -> None:
        # Imported with the first plan, to save start-up time.
        from millstream.sql.plan.compiled import as_json

        self._runner = runner
        self._plans = plans
        self._text = as_json(plans, known, runner.is_batch)

    def __str__(self) -> str:
        return self.explain()

    def as_json_string(self) -> str:
        """Return the plan in JSON."""
        return self._text

    def as_smile_bytes(self) -> bytes:
        """Return the plan in bytes, for `PlanReference.from_smile_bytes`; unlike Flink's, they are JSON."""
        return self._text.encode()

    def write_to_file(self, file: str | Path, ignore_if_exists: bool = False) -> None:
        """Write the plan to a file; an existing file is an error, or left unchanged with `ignore_if_exists`."""
        path = Path(file)
        if path.exists():
            if not ignore_if_exists:
                raise TableException(
                    f"Cannot overwrite the plan file '{file}'. Either manually remove the file or, if you're debugging "
                    "your job, set the option 'table.plan.force-recompile' to true."
                )
            return
        path.write_text(self._text)

    def get_flink_version(self) -> str:
        """Return the Flink version of the SQL dialect."""
        return str(json.loads(self._text)["flinkVersion"])

    def print_json_string(self) -> None:
        """Print the plan in JSON."""
        print(self._text)

    def execute(self) -> TableResult:
        """Start a job that runs the plan."""
        return self._runner.run_planned(self._plans)

    def explain(self, *extra_details: int) -> str:
        """Return the plan as text."""
        # Imported with the first EXPLAIN, to save start-up time.
        from millstream.sql.optimizer.explain import execution_text

        return execution_text(self._plans)

    def print_explain(self, *extra_details: int) -> None:
        """Print the plan as text."""
        print(self.explain(*extra_details))


class KnownByName:
    """Resolves the tables and functions of a plan in the current catalogs of an environment."""

    def __init__(self, catalogs: CatalogManager, runner: Runner) -> None:
        self._catalogs = catalogs
        self._runner = runner

    def function_path(self, function: UserFunction) -> tuple[str, ...]:
        path = self._catalogs.function_path(function)
        if path is None:
            raise TableException(
                f"A plan cannot be compiled with a function that has no name: {function}. Register it with "
                "create_temporary_system_function()."
            )
        return path

    def function(self, path: tuple[str, ...]) -> UserFunction:
        function: UserFunction | None = self._catalogs.find_function(path)
        if function is None:
            raise TableException(f"The plan calls the function '{'.'.join(path)}', which is not registered here.")
        return function

    def table(self, name: tuple[str, ...], planned: CatalogTable) -> CatalogTable:
        current = self._catalogs.find(self._catalogs.full_path(name))
        if current is None or isinstance(current, InlineView):
            return planned
        if [(c.name, c.type) for c in current.columns] != [(c.name, c.type) for c in planned.columns]:
            raise TableException(
                f"The table '{'.'.join(name)}' has other columns than when the plan was compiled: compile it again."
            )
        return current

    def source(self, name: tuple[str, ...], table: CatalogTable) -> TableSource:
        return Connectors().source(self._context(name, table))

    def sink(self, name: tuple[str, ...], table: CatalogTable) -> TableSink:
        return Connectors().sink(self._context(name, table))

    def _context(self, name: tuple[str, ...], table: CatalogTable) -> TableContext:
        return TableContext(name, table, self._runner.settings(), self._runner.is_batch)


def compiled(catalogs: CatalogManager, runner: Runner, plans: Sequence[Planned]) -> CompiledPlan:
    """Return a CompiledPlan of an optimized plan."""
    return CompiledPlan(runner, plans, KnownByName(catalogs, runner))


def loaded(catalogs: CatalogManager, runner: Runner, text: str) -> CompiledPlan:
    """Return the plan of a text."""
    # Imported with the first plan, to save start-up time.
    from millstream.sql.plan.compiled import from_json

    known = KnownByName(catalogs, runner)
    return CompiledPlan(runner, from_json(text, known, runner.is_batch), known)
