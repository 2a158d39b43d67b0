"""StatementPlanner: the catalogs, functions and settings of a table environment; binds, explains and runs statements.

TableEnvironment, Table, StatementSet and the other classes of the API share one, so that the classes with PyFlink's
names have no other public methods than PyFlink's. A bound statement is planned by `sql/optimizer/planner.py`, which its
`runner` calls (`job_submission.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from millstream.connectors.registry import Connectors
from millstream.datastream.table_bridge import Bridge
from millstream.sql.bind.binder import Binder
from millstream.sql.bind.functions import LanguageFunctions
from millstream.sql.catalog import memory
from millstream.sql.catalog.manager import CatalogManager, InlineView
from millstream.sql.catalog.memory import CatalogFunction
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.ddl.executor import Ddl
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language import statements as s
from millstream.sql.plan.nodes import Collected, Node, Sink
from millstream.table.compiled_plan import CompiledPlan, compiled, loaded
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.job_submission import Runner
from millstream.table.schema import Schema
from millstream.table.sql_text import read_path, resolved_declaration
from millstream.table.table_config import SettingsMap, TableConfig
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.translating_binder import TranslatingBinder
from millstream.table.udf import AggregateFunction, TableAggregateFunction, UserDefinedFunctionWrapper, udaf, udtaf

EXPLAIN_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


class StatementPlanner:
    """Binds, explains and runs the queries of one table environment.

    Attributes:
        bridge: the DataStream program that queries are added to.
        config: the settings.
        catalogs: tables, views and functions by name.
        functions: the built-in functions.
        runner: adds planned queries to the program and runs them.
    """

    def __init__(self, bridge: Bridge, settings: EnvironmentSettings) -> None:
        self.bridge = bridge
        self.config = TableConfig(bridge.environment.get_configuration())
        self.catalogs = CatalogManager(
            settings.get_built_in_catalog_name(),
            settings.get_built_in_database_name(),
            load_function=loaded_function,
        )
        self.functions = LanguageFunctions()
        self.runner = Runner(self.bridge, self.config, self.catalogs)
        self._connectors = Connectors()
        self._unnamed_tables = 0
        self._inline_functions: dict[UserDefinedFunctionWrapper, str] = {}

    # --- binding

    def sql_binder(self) -> Binder:
        """Return a binder that reports errors in SQL's terms."""
        return Binder(self.catalogs, self.functions, self.runner.settings(), self._connectors, self.runner.is_batch)

    def binder(self) -> TranslatingBinder:
        """Return a binder that reports errors in the Table API's terms."""
        return TranslatingBinder(self.sql_binder())

    def ddl(self) -> Ddl:
        """Return the executor of DDL statements."""
        settings = SettingsMap(self.config.get_configuration())
        return Ddl(self.sql_binder(), settings, {"jdbc": _jdbc_catalog}, loaded_function)

    def ends(self, statement: s.Statement, text: str) -> list[Sink | Collected]:
        """Return the sinks of a bound query, INSERT or statement set."""
        binder = self.binder()
        if isinstance(statement, s.QueryStatement):
            node = binder.query(statement.query, text=text)
            return [Collected(node.fields, node)]
        if isinstance(statement, s.Insert):
            return [binder.insert(statement, text)]
        if isinstance(statement, s.StatementSet):
            return [binder.insert(one, text) for one in statement.statements]
        raise TableException("EXPLAIN is for queries, INSERT and statement sets.")

    def sinks(self, statement: s.Statement, text: str) -> list[Sink]:
        """Return the sinks of a bound INSERT or statement set."""
        return [end for end in self.ends(statement, text) if isinstance(end, Sink)]

    def sink(self, node: Node, target: str | TableDescriptor, overwrite: bool) -> Sink:
        """Return a sink that writes a relation to a table."""
        if isinstance(target, TableDescriptor):
            path: Sequence[str] = self.create_anonymous_table(target, node)
        else:
            path = read_path(target)
        return self.binder().written_to(node, path, overwrite)

    # --- names

    def create_view(
        self, path: str, node: Node, declared: CatalogTable | None = None, if_not_exists: bool = False
    ) -> None:
        """Name a relation of the program for SQL."""
        full_path = self.catalogs.full_path(read_path(path))
        self.catalogs.create_temporary(full_path, InlineView(node, path, declared), if_not_exists)

    def create_unnamed_view(self, node: Node, declared: CatalogTable | None) -> str:
        """Name a relation for SQL under a generated name, and return the name."""
        name = f"UnnamedTable${self._unnamed_tables}"
        self._unnamed_tables += 1
        self.create_view(name, node, declared)
        return name

    def create_anonymous_table(self, descriptor: TableDescriptor, node: Node | None = None) -> tuple[str, ...]:
        """Declare the table of a descriptor, by default with the columns of a relation; return its generated name."""
        table = descriptor.as_table()
        if not table.columns and node is not None:
            schema = Schema.new_builder().from_fields(node.fields.names, [t.nullable() for t in node.fields.types])
            table = schema.build().as_table(descriptor.get_options(), descriptor.get_partition_keys())
        self._unnamed_tables += 1
        name = f"*anonymous_{descriptor.get_options().get('connector', '')}${self._unnamed_tables}*"
        path = self.catalogs.full_path((name,))
        self.catalogs.create_temporary(path, resolved_declaration(self.sql_binder(), table))
        return path

    def is_aggregate(self, name: str) -> bool:
        """Return whether a name is that of an aggregate function."""
        user = self.sql_binder().user_function(name)
        return (self.functions.kind(name) if user is None else user.kind) == "aggregate"

    def has_system_function(self, name: str) -> bool:
        """Return whether a temporary system function of this name is registered."""
        return self.catalogs.find_system_function(name) is not None

    def inline_name(self, function: UserDefinedFunctionWrapper) -> str:
        """Return the name under which the binder finds a function that is not registered."""
        functions = self._inline_functions
        if function not in functions:
            number = f"${len(functions)}" if functions else ""
            name = f"*{function.name.replace('.', '_')}{number}*"
            self.catalogs.create_system_function(name, as_function(function))
            functions[function] = name
        return functions[function]

    # --- plans

    def explain(self, ends: Sequence[Sink | Collected], details: Sequence[int]) -> str:
        """Return the plan of bound queries as text, with some of `EXPLAIN_DETAILS` by index."""
        # Imported with the first EXPLAIN, to save start-up time.
        from millstream.sql.optimizer.explain import explained

        names = [EXPLAIN_DETAILS[d] for d in details]
        text = explained(list(ends), self.runner.settings(), self.runner.is_batch, names)
        if "JSON_EXECUTION_PLAN" not in names:
            return text
        return f"{text}\n== Physical Execution Plan ==\n{self.runner.execution_plan(ends)}"

    def compile(self, sinks: Sequence[Sink]) -> CompiledPlan:
        """Compile bound statements to a plan that can be stored."""
        return compiled(self.catalogs, self.runner, self.runner.planned(sinks))

    def load_plan(self, text: str) -> CompiledPlan:
        """Return the compiled plan that a text describes."""
        return loaded(self.catalogs, self.runner, text)


def as_function(function: object) -> UserDefinedFunctionWrapper:
    """Return a user-defined function as the binder's wrapper."""
    if isinstance(function, UserDefinedFunctionWrapper):
        return function
    if isinstance(function, TableAggregateFunction):
        return udtaf(function)
    if isinstance(function, AggregateFunction):
        return udaf(function)
    raise ValidationException(
        f"{function!r} is not a function of SQL: create one with udf(...), udtf(...) or udaf(...) and its types."
    )


def loaded_function(function: CatalogFunction) -> UserDefinedFunctionWrapper:
    """Return the function that CREATE FUNCTION names as `module.object`."""
    name = function.implementation
    if function.language.upper() != "PYTHON":
        raise ValidationException(
            f"The function '{name}' is in {function.language.title()}: functions are in Python here, LANGUAGE PYTHON."
        )
    module, _, attribute = name.rpartition(".")
    try:
        value = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as e:
        raise ValidationException(f"Failed to load Python function '{name}': {e}") from e
    return as_function(value)


def _jdbc_catalog(name: str, options: dict[str, str]) -> memory.Catalog:
    # Imported late: it loads database drivers, which few programs need.
    from millstream.connectors.jdbc.catalog import catalog_of

    return catalog_of(name, options)
