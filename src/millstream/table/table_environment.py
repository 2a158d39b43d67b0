"""TableEnvironment: catalogs and settings of SQL and Table API programs, and the entry point that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.unsupported import missing_function
from millstream.connectors.registry import Connectors
from millstream.datastream.data_stream import DataStream
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.datastream.table_bridge import Bridge
from millstream.sql.bind.binder import Binder
from millstream.sql.bind.functions import LanguageFunctions
from millstream.sql.catalog import memory
from millstream.sql.catalog.manager import CatalogManager, InlineView
from millstream.sql.ddl.executor import Ddl, Result
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language import statements as s
from millstream.sql.language import syntax
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.plan.nodes import Collected, Node, Sink
from millstream.sql.types import DataType, RowType
from millstream.table.api_to_syntax import ApiBinder
from millstream.table.catalog_methods import CatalogMethods, as_function, loaded_function
from millstream.table.datastream_bridge import Streams
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.expression import Expression, tree_of
from millstream.table.in_memory_tables import arrow_table, as_pandas, batch_of, from_frame, row_type_of, scan_of
from millstream.table.job_submission import Runner, refuse_unknown
from millstream.table.plan_reference import PlanReference
from millstream.table.sql_text import read_path, resolved_declaration
from millstream.table.statement_set import StatementSet
from millstream.table.table import Table
from millstream.table.table_config import SettingsMap, TableConfig
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_result import OkResult, RowsResult, TableResult, TextResult
from millstream.table.udf import UserDefinedFunctionWrapper
from millstream.table.verification import verifier

if TYPE_CHECKING:
    from millstream.table.compiled_plan import CompiledPlan

__all__ = ["StreamTableEnvironment", "TableEnvironment"]

_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


class TableEnvironment(CatalogMethods):
    """Knows tables, views and functions by name, and runs statements.

    Example:
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        >>> list(t_env.execute_sql("SELECT COUNT(*) FROM (VALUES (1), (2)) AS t(a)").collect())
        [<Row(2)>]
    """

    def __init__(self, environment: StreamExecutionEnvironment, settings: EnvironmentSettings) -> None:
        self._bridge = Bridge(environment)
        self._config = TableConfig(environment.get_configuration())
        self._catalogs = CatalogManager(
            settings.get_built_in_catalog_name(),
            settings.get_built_in_database_name(),
            load_function=loaded_function,
        )
        self._functions = LanguageFunctions()
        self._connectors = Connectors()
        self._runner = Runner(self._bridge, self._config, self._catalogs)
        self._unnamed = 0
        self._sources = 0
        self._inline: dict[UserDefinedFunctionWrapper, str] = {}

    @staticmethod
    def create(environment_settings: EnvironmentSettings | Configuration) -> TableEnvironment:
        """Return a new environment."""
        settings = environment_settings
        if isinstance(settings, Configuration):
            settings = EnvironmentSettings.new_instance().with_configuration(settings).build()
        if not isinstance(settings, EnvironmentSettings):
            raise TypeError(
                f"argument should be EnvironmentSettings or Configuration, not {type(environment_settings).__name__}"
            )
        environment = StreamExecutionEnvironment.get_execution_environment(settings.get_configuration())
        return TableEnvironment(environment, settings)

    # --- inside

    def _sql_binder(self) -> Binder:
        return Binder(self._catalogs, self._functions, self._runner.settings(), self._connectors, self._runner.is_batch)

    def _binder(self) -> ApiBinder:
        return ApiBinder(self._sql_binder())

    def _ddl(self) -> Ddl:
        settings = SettingsMap(self._config.get_configuration())
        return Ddl(self._sql_binder(), settings, {"jdbc": _jdbc_catalog}, loaded_function)

    def _parsed(self, statement: str) -> s.Statement:
        return read_statement(statement)

    def _is_aggregate(self, name: str) -> bool:
        user = self._sql_binder().user_function(name)
        return (self._functions.kind(name) if user is None else user.kind) == "aggregate"

    def _has_system_function(self, name: str) -> bool:
        return self._catalogs.find_system_function(name) is not None

    def _inline_name(self, function: UserDefinedFunctionWrapper) -> str:
        """Return a name under which the binder finds a function that has none."""
        if function not in self._inline:
            number = f"${len(self._inline)}" if self._inline else ""
            name = f"*{function.name.replace('.', '_')}{number}*"
            self._catalogs.create_system_function(name, as_function(function))
            self._inline[function] = name
        return self._inline[function]

    def _name_of(self, table: Table) -> str:
        name = f"UnnamedTable${self._unnamed}"
        self._unnamed += 1
        self.create_temporary_view(name, table)
        return name

    def _collected(self, node: Node) -> Collected:
        return Collected(node.fields, node)

    def _collect(self, node: Node) -> TableResult:
        return self._runner.collect(node)

    def _run(self, sinks: Sequence[Sink]) -> TableResult:
        return self._runner.run(sinks)

    def _attach(self, sinks: Sequence[Sink]) -> None:
        self._runner.attach(sinks)

    def _written(self, node: Node, target: str | TableDescriptor, overwrite: bool) -> Sink:
        if isinstance(target, TableDescriptor):
            path: Sequence[str] = self._anonymous(target, node)
        else:
            path = read_path(target)
        return self._binder().written_to(node, path, overwrite)

    def _anonymous(self, descriptor: TableDescriptor, node: Node | None = None) -> tuple[str, ...]:
        """Return a name for a table that is only described."""
        table = descriptor.as_table()
        if not table.columns and node is not None:
            from millstream.table.schema import Schema

            schema = Schema.new_builder().from_fields(node.fields.names, [t.nullable() for t in node.fields.types])
            table = schema.build().as_table(descriptor.get_options(), descriptor.get_partition_keys())
        self._unnamed += 1
        name = f"*anonymous_{descriptor.get_options().get('connector', '')}${self._unnamed}*"
        path = self._catalogs.full_path((name,))
        self._catalogs.create_temporary(path, resolved_declaration(self._sql_binder(), table))
        return path

    def _explained(self, ends: Sequence[Any], details: Sequence[int]) -> str:
        from millstream.sql.optimizer.explain import explained

        words = [_DETAILS[d] for d in details]
        text = explained(list(ends), self._runner.settings(), self._runner.is_batch, words)
        if "JSON_EXECUTION_PLAN" not in words:
            return text
        return f"{text}\n== Physical Execution Plan ==\n{self._runner.execution_plan(ends)}"

    def _arrow(self, table: Table) -> Any:
        return arrow_table(table._node.fields, table.execute().arrow_batches(), self._config.get_local_timezone())

    def _pandas(self, table: Table) -> Any:
        return as_pandas(self._arrow(table))

    # --- statements

    def execute_sql(self, stmt: str) -> TableResult:
        """Carry out a statement: DDL at once, a query or INSERT as a job that is started."""
        return self._executed(self._parsed(stmt), stmt)

    def _executed(self, statement: s.Statement, text: str) -> TableResult:
        if isinstance(statement, s.QueryStatement):
            return self._collect(self._binder().query(statement.query, text=text))
        if isinstance(statement, s.Insert):
            return self._run([self._binder().insert(statement, text)])
        if isinstance(statement, s.StatementSet):
            binder = self._binder()
            return self._run([binder.insert(one, text) for one in statement.statements])
        if isinstance(statement, s.Explain):
            return TextResult(self._explained(self._ends(statement.statement, text), _places(statement.details)))
        if isinstance(statement, s.Jar):
            return OkResult()
        if isinstance(statement, s.AnalyzeTable):
            return self._analyzed(statement)
        if isinstance(statement, s.CallProcedure):
            raise ValidationException(
                f"SQL validation failed. The procedure '{'.'.join(statement.name)}' cannot be called: getProcedure is "
                "not implemented for class GenericInMemoryCatalog."
            )
        if isinstance(statement, s.CompilePlan):
            return self._compile_plan(statement, text)
        if isinstance(statement, s.ExecutePlan):
            return self.execute_plan(PlanReference.from_file(statement.file))
        ddl = self._ddl()
        if not ddl.can(statement):
            raise refuse_unknown(statement, self._runner.is_batch)
        return self._shown(ddl.execute(statement, text))

    def _analyzed(self, statement: s.AnalyzeTable) -> TableResult:
        from millstream.table.statistics import analyze

        def ask(query: str) -> Sequence[Any]:
            with self.execute_sql(query).collect() as rows:
                return list(next(rows))

        analyze(statement, self._catalogs, self._runner.is_batch, ask)
        return OkResult()

    def _shown(self, result: Result) -> TableResult:
        if result.insert is not None:
            return self._run([self._binder().insert(result.insert)])
        return RowsResult(result.fields, result.rows) if result.is_content else OkResult()

    def _ends(self, statement: s.Statement, text: str) -> list[Sink | Collected]:
        binder = self._binder()
        if isinstance(statement, s.QueryStatement):
            return [self._collected(binder.query(statement.query, text=text))]
        if isinstance(statement, s.Insert):
            return [binder.insert(statement, text)]
        if isinstance(statement, s.StatementSet):
            return [binder.insert(one, text) for one in statement.statements]
        raise TableException("EXPLAIN is for queries, INSERT and statement sets.")

    def sql_query(self, query: str) -> Table:
        """Return a query as a table, without running it."""
        statement = self._parsed(query)
        if not isinstance(statement, s.QueryStatement):
            raise ValidationException(
                "Unsupported SQL query! sqlQuery() only accepts a single SQL query of type SELECT, UNION, INTERSECT, "
                "EXCEPT, VALUES, and ORDER_BY."
            )
        return Table(self._binder().query(statement.query, text=query), self)

    def explain_sql(self, stmt: str, *extra_details: int) -> str:
        """Return how a statement is run."""
        return self._explained(self._ends(self._parsed(stmt), stmt), extra_details)

    # --- plans

    def _compiled(self, sinks: Sequence[Sink]) -> CompiledPlan:
        from millstream.table.compiled_plan import compiled

        return compiled(self._catalogs, self._runner, self._runner.planned(sinks))

    def _compile_plan(self, statement: s.CompilePlan, text: str) -> TableResult:
        if statement.execute and Path(statement.file).exists() and not self._recompiles():
            return self.execute_plan(PlanReference.from_file(statement.file))
        plan = self._compiled([e for e in self._ends(statement.statement, text) if isinstance(e, Sink)])
        if self._recompiles():
            Path(statement.file).unlink(missing_ok=True)
        plan.write_to_file(statement.file, statement.if_not_exists)
        return plan.execute() if statement.execute else OkResult()

    def _recompiles(self) -> bool:
        return self._config.get("table.plan.force-recompile", "false").lower() == "true"

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """Compile an INSERT or a statement set to a plan that can be stored and executed unchanged."""
        statement = self._parsed(stmt)
        if not isinstance(statement, (s.Insert, s.StatementSet)):
            raise TableException(
                "Unsupported SQL query! compilePlanSql() only accepts a single SQL statement of type INSERT"
            )
        return self._compiled([e for e in self._ends(statement, stmt) if isinstance(e, Sink)])

    def load_plan(self, plan_reference: PlanReference) -> CompiledPlan:
        """Return a plan that was compiled before."""
        from millstream.table.compiled_plan import loaded

        return loaded(self._catalogs, self._runner, plan_reference._text())

    def execute_plan(self, plan_reference: PlanReference) -> TableResult:
        """Start a job that runs a plan which was compiled before."""
        return self.load_plan(plan_reference).execute()

    def create_statement_set(self) -> StatementSet:
        """Return an empty set of statements that run as one job."""
        return StatementSet(self)

    # --- tables

    def from_path(self, path: str) -> Table:
        """Return a table or view of a catalog."""
        parts = read_path(path)
        full_path = self._catalogs.full_path(parts)
        table = self._catalogs.find(full_path)
        if table is None:
            hint = self._catalogs.alike(full_path) or "."
            raise ValidationException(f"Table `{'`.`'.join(parts)}` was not found{hint}")
        declared = table.declared if isinstance(table, InlineView) else None if table.is_view else table
        return Table(self._binder().query(syntax.TableQuery(syntax.TableName(parts))), self, declared)

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """Return the table that a descriptor describes."""
        descriptor.check()
        path = self._anonymous(descriptor)
        return Table(self._binder().query(syntax.TableQuery(syntax.TableName(path))), self)

    def from_elements(self, elements: Iterable[Any], schema: Any = None, verify_schema: bool = True) -> Table:
        """Return a table of Python values: tuples, Rows, dicts, or `row(...)` expressions.

        Without a schema, names are _1, _2, .. and types follow from the values: int is BIGINT, float DOUBLE. With one,
        values that are not of their types are refused; without `verify_schema` they are converted as well as may be.
        """
        rows = list(elements)
        if rows and any(isinstance(e, Expression) for e in rows):
            return self._from_expressions(rows, schema)
        kind = row_type_of(rows, schema)
        is_single = not isinstance(schema, RowType) and schema is not None and not isinstance(schema, (list, tuple))
        if verify_schema and isinstance(schema, DataType):
            verify = verifier(schema)
            for row in rows:
                verify(row)
        batch = batch_of(rows, kind, is_single, self._config.get_local_timezone())
        return self._of_rows(kind, batch, "python-input-format")

    def _of_rows(self, kind: RowType, batch: Any, source: str, subtasks: int = 1) -> Table:
        self._sources += 1
        called = f"*anonymous_{source}${self._sources}*"
        types = [f.data_type for f in kind.fields]
        return Table(scan_of(kind.names, types, batch, called, subtasks), self)

    def _from_expressions(self, rows: list[Any], schema: Any) -> Table:
        if not all(isinstance(e, Expression) for e in rows):
            raise ValueError("It doesn't support part of the elements are Expression, while the others are not.")
        trees = [tree_of(e) for e in rows]
        members = [t.arguments if isinstance(t, syntax.Call) and t.name == "ROW" else (t,) for t in trees]
        binder = self._binder()
        node = binder.query(syntax.Values(tuple(members)))
        if schema is None:
            return Table(binder.rename(node, [f"f{i}" for i in range(len(node.fields))]), self)
        kind = schema if isinstance(schema, RowType) else None
        names = kind.names if kind is not None else list(schema)
        if kind is not None:
            node = binder.cast_to(node, [f.data_type for f in kind.fields])
        return Table(binder.rename(node, names), self)

    def from_pandas(self, pdf: Any, schema: Any = None, splits_num: int = 1) -> Table:
        """Return a table of a pandas.DataFrame's rows."""
        import pandas as pd

        if not isinstance(pdf, pd.DataFrame):
            raise TypeError(f"Unsupported type, expected pandas.DataFrame, got {type(pdf)}")
        kind, batch = from_frame(pdf, schema)
        return self._of_rows(kind, batch, "arrow", splits_num)

    def create_temporary_view(
        self, view_path: str, table_or_data_stream: Table | DataStream[Any], *fields_or_schema: Any
    ) -> None:
        """Name a table, or a stream, for SQL."""
        table = table_or_data_stream
        if isinstance(table, DataStream):
            table = self._streams().table(table, fields_or_schema)
        if not isinstance(table, Table):
            raise InvalidProgramError(f"create_temporary_view() takes a Table or a DataStream, not {table!r}.")
        path = self._catalogs.full_path(read_path(view_path))
        self._catalogs.create_temporary(path, InlineView(table._node, view_path, table._declared))

    def create_view(self, view_path: str, table: Table, ignore_if_exists: bool | None = False) -> None:
        """Name a table for SQL, as long as the environment lives."""
        path = self._catalogs.full_path(read_path(view_path))
        self._catalogs.create_temporary(
            path, InlineView(table._node, view_path, table._declared), bool(ignore_if_exists)
        )

    def create_temporary_table(
        self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool | None = False
    ) -> None:
        """Declare a temporary table."""
        self._create(path, descriptor, True, bool(ignoreIfExists))

    def create_table(self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool | None = False) -> None:
        """Declare a table."""
        self._create(path, descriptor, False, bool(ignoreIfExists))

    def _create(self, path: str, descriptor: TableDescriptor, temporary: bool, if_not_exists: bool) -> None:
        descriptor.check()
        table = resolved_declaration(self._sql_binder(), descriptor.as_table())
        self._catalogs.create(self._catalogs.full_path(read_path(path)), table, temporary, if_not_exists)

    # --- removed in Flink 2

    connect = missing_function("connect", "it is gone in Flink 2: use create_table() or CREATE TABLE")
    register_function = missing_function(
        "register_function", "it is gone in Flink 2: use create_temporary_system_function()"
    )
    register_table = missing_function("register_table", "it is gone in Flink 2: use create_temporary_view()")
    sql_update = missing_function("sql_update", "it is gone in Flink 2: use execute_sql()")
    insert_into = missing_function("insert_into", "it is gone in Flink 2: use Table.execute_insert()")
    scan = missing_function("scan", "it is gone in Flink 2: use from_path()")
    execute = missing_function("execute", "it is gone in Flink 2: execute_sql() and execute_insert() start the job")

    # --- settings

    def get_config(self) -> TableConfig:
        """Return the settings, to read and to change."""
        return self._config

    def add_python_file(self, file_path: str) -> None:
        """Bring a Python file, package or directory along to the workers."""
        self._bridge.environment.add_python_file(file_path)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install packages for the workers."""
        self._bridge.environment.set_python_requirements(requirements_file_path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Bring an archive along to the workers."""
        self._bridge.environment.add_python_archive(archive_path, target_dir)

    # --- streams

    def _streams(self) -> Streams:
        return Streams(self, self._bridge, self._runner)


class StreamTableEnvironment(TableEnvironment):
    """A TableEnvironment that shares a DataStream program: streams are tables, and tables streams."""

    @staticmethod
    def create(  # type: ignore[override]
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        """Return an environment that shares a DataStream environment and its settings."""
        settings = environment_settings
        environment = stream_execution_environment
        if environment is None:
            settings = settings or EnvironmentSettings.in_streaming_mode()
            environment = StreamExecutionEnvironment.get_execution_environment(settings.get_configuration())
        if settings is None:
            settings = EnvironmentSettings(environment.get_configuration())
        else:
            environment.configure(settings.get_configuration())
        return StreamTableEnvironment(environment, settings)

    def from_data_stream(self, data_stream: DataStream[Any], *fields_or_schema: Any) -> Table:
        """Return a table of a stream's records, all of them inserted."""
        return self._streams().table(data_stream, fields_or_schema)

    def from_changelog_stream(
        self, data_stream: DataStream[Any], schema: Any = None, changelog_mode: Any = None
    ) -> Table:
        """Return a table of a stream of Rows, interpreted as a changelog by their row kinds."""
        return self._streams().changelog_table(data_stream, schema, changelog_mode)

    def to_data_stream(self, table: Table) -> DataStream[Any]:
        """Return the rows of a table, which must only be inserted, as a stream."""
        return self._streams().stream(table)

    def to_changelog_stream(
        self, table: Table, target_schema: Any = None, changelog_mode: Any = None
    ) -> DataStream[Any]:
        """Return the changes of a table as a stream of Rows with kinds."""
        return self._streams().changelog_stream(table, target_schema, changelog_mode)

    def to_append_stream(self, table: Table, type_info: Any) -> DataStream[Any]:
        """Old: return the rows of a table as a stream."""
        return self._streams().append_stream(table, type_info)

    def to_retract_stream(self, table: Table, type_info: Any) -> DataStream[Any]:
        """Old: return pairs of whether a row is added, and the row."""
        return self._streams().retract_stream(table, type_info)


def _places(details: Sequence[str]) -> list[int]:
    return [_DETAILS.index(d) for d in details]


def _jdbc_catalog(name: str, options: dict[str, str]) -> memory.Catalog:
    # Imported late: it loads database drivers, which few programs need.
    from millstream.connectors.jdbc.catalog import catalog_of

    return catalog_of(name, options)
