"""TableEnvironment: catalogs and settings of SQL and Table API programs, and the entry point that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.common.aliases import Value
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation
from millstream.common.unsupported import missing_function
from millstream.datastream.data_stream import DataStream
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.datastream.table_bridge import Bridge
from millstream.sql.catalog.manager import InlineView
from millstream.sql.columns.batch import Batch
from millstream.sql.ddl.executor import Result
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language import statements as s
from millstream.sql.language import syntax
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.types import DataType, RowType
from millstream.table.catalog_methods import CatalogMethods
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.compiled_plan import CompiledPlan
from millstream.table.datastream_bridge import Streams
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.expression import Expression, tree_of
from millstream.table.file_tables import FileMethods
from millstream.table.in_memory_tables import RowSchema, batch_of, from_frame, row_type_of, scan_of
from millstream.table.job_submission import refuse_unknown
from millstream.table.plan_reference import PlanReference, plan_text
from millstream.table.schema import Schema
from millstream.table.sql_text import read_path, resolved_declaration
from millstream.table.statement_planner import EXPLAIN_DETAILS, StatementPlanner
from millstream.table.statement_set import StatementSet
from millstream.table.statistics import analyze
from millstream.table.table import Table
from millstream.table.table_base import declaration_of, node_of
from millstream.table.table_config import TableConfig
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_result import OkResult, RowsResult, TableResult, TextResult
from millstream.table.verification import verifier

if TYPE_CHECKING:
    import pandas

__all__ = ["StreamTableEnvironment", "TableEnvironment"]


class TableEnvironment(CatalogMethods, FileMethods):
    """Holds tables, views and functions by name, and runs statements of SQL and the Table API.

    Example:
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        >>> list(t_env.execute_sql("SELECT COUNT(*) FROM (VALUES (1), (2)) AS t(a)").collect())
        [<Row(2)>]
    """

    def __init__(self, environment: StreamExecutionEnvironment, settings: EnvironmentSettings) -> None:
        self._planner = StatementPlanner(Bridge(environment), settings)
        self._bridge = self._planner.bridge
        self._config = self._planner.config
        self._catalogs = self._planner.catalogs
        self._runner = self._planner.runner
        self._sources = 0

    @staticmethod
    def create(environment_settings: EnvironmentSettings | Configuration) -> TableEnvironment:
        """Return a new environment, in streaming mode unless the settings say batch.

        See `TableEnvironment` for an example.
        """
        settings = environment_settings
        if isinstance(settings, Configuration):
            settings = EnvironmentSettings.new_instance().with_configuration(settings).build()
        if not isinstance(settings, EnvironmentSettings):
            raise TypeError(
                f"argument should be EnvironmentSettings or Configuration, not {type(environment_settings).__name__}"
            )
        environment = StreamExecutionEnvironment.get_execution_environment(settings.get_configuration())
        return TableEnvironment(environment, settings)

    # --- statements

    def execute_sql(self, stmt: str) -> TableResult:
        """Execute one statement: DDL takes effect at once; a query or an INSERT starts a job and returns.

        Use `wait()` or `print()` of the result to wait for the job, or set `table.dml-sync`.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (word STRING, n BIGINT) WITH ('connector' = 'print')")
            >>> t_env.execute_sql("INSERT INTO sink VALUES ('to', 2), ('be', 1)").wait()
            +I[to, 2]
            +I[be, 1]
            >>> t_env.execute_sql("SHOW TABLES").print()
            +------------+
            | table name |
            +------------+
            |       sink |
            +------------+
            1 row in set
        """
        return self._executed(read_statement(stmt), stmt)

    def _executed(self, statement: s.Statement, text: str) -> TableResult:
        if isinstance(statement, s.QueryStatement):
            return self._runner.collect(self._planner.binder().query(statement.query, text=text))
        if isinstance(statement, s.Insert):
            return self._runner.run([self._planner.binder().insert(statement, text)])
        if isinstance(statement, s.StatementSet):
            binder = self._planner.binder()
            return self._runner.run([binder.insert(one, text) for one in statement.statements])
        if isinstance(statement, s.Explain):
            details = [EXPLAIN_DETAILS.index(d) for d in statement.details]
            return TextResult(self._planner.explain(self._planner.ends(statement.statement, text), details))
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
        ddl = self._planner.ddl()
        if not ddl.can(statement):
            raise refuse_unknown(statement, self._runner.is_batch)
        return self._shown(ddl.execute(statement, text))

    def _analyzed(self, statement: s.AnalyzeTable) -> TableResult:
        def run_query(query: str) -> Sequence[Value]:
            with self.execute_sql(query).collect() as rows:
                return list(next(rows))

        analyze(statement, self._catalogs, self._runner.is_batch, run_query)
        return OkResult()

    def _shown(self, result: Result) -> TableResult:
        if result.insert is not None:
            return self._runner.run([self._planner.binder().insert(result.insert)])
        return RowsResult(result.fields, result.rows) if result.is_content else OkResult()

    def sql_query(self, query: str) -> Table:
        """Return a query as a table, without running it; f-strings can name a Table.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["name", "price"])
            >>> large = t_env.sql_query(f"SELECT name FROM {orders} WHERE price > 4")
            >>> list(large.execute().collect())
            [<Row('bob')>]
        """
        statement = read_statement(query)
        if not isinstance(statement, s.QueryStatement):
            raise ValidationException(
                "Unsupported SQL query! sqlQuery() only accepts a single SQL query of type SELECT, UNION, INTERSECT, "
                "EXCEPT, VALUES, and ORDER_BY."
            )
        return Table(self._planner.binder().query(statement.query, text=query), self._planner)

    def explain_sql(self, stmt: str, *extra_details: int) -> str:
        """Return the plan of a query or an INSERT as text, without running it.

        Args:
            stmt: the statement.
            extra_details: values of ExplainDetail.

        Example:
            >>> "LogicalProject(EXPR$0=[UPPER(" in t_env.explain_sql("SELECT UPPER(a) FROM (VALUES 'x') AS t (a)")
            True
        """
        return self._planner.explain(self._planner.ends(read_statement(stmt), stmt), extra_details)

    # --- plans

    def _compile_plan(self, statement: s.CompilePlan, text: str) -> TableResult:
        if statement.execute and Path(statement.file).exists() and not self._recompiles():
            return self.execute_plan(PlanReference.from_file(statement.file))
        plan = self._planner.compile(self._planner.sinks(statement.statement, text))
        if self._recompiles():
            Path(statement.file).unlink(missing_ok=True)
        plan.write_to_file(statement.file, statement.if_not_exists)
        return plan.execute() if statement.execute else OkResult()

    def _recompiles(self) -> bool:
        return self._config.get("table.plan.force-recompile", "false").lower() == "true"

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """Compile an INSERT or a statement set to a plan that can be stored and executed unchanged by later versions.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'print')")
            >>> plan = t_env.compile_plan_sql("INSERT INTO sink SELECT COUNT(*) FROM (VALUES 1) AS t (x)")
            >>> plan.write_to_file("count.json")
            >>> t_env.execute_plan(PlanReference.from_file("count.json")).wait()
            +I[1]
        """
        statement = read_statement(stmt)
        if not isinstance(statement, (s.Insert, s.StatementSet)):
            raise TableException(
                "Unsupported SQL query! compilePlanSql() only accepts a single SQL statement of type INSERT"
            )
        return self._planner.compile(self._planner.sinks(statement, stmt))

    def load_plan(self, plan_reference: PlanReference) -> CompiledPlan:
        """Return a plan that was compiled before, to explain or execute it.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n BIGINT) WITH ('connector' = 'blackhole')")
            >>> plan = t_env.compile_plan_sql("INSERT INTO sink SELECT COUNT(*) FROM (VALUES 1) AS t (x)")
            >>> again = t_env.load_plan(PlanReference.from_json_string(plan.as_json_string()))
            >>> again.explain() == plan.explain()
            True
        """
        return self._planner.load_plan(plan_text(plan_reference))

    def execute_plan(self, plan_reference: PlanReference) -> TableResult:
        """Start a job that runs a plan which was compiled before.

        See `TableEnvironment.compile_plan_sql` for an example.
        """
        return self.load_plan(plan_reference).execute()

    def create_statement_set(self) -> StatementSet:
        """Return an empty set of INSERTs that run as one job.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE low (n BIGINT) WITH ('connector' = 'blackhole')")
            >>> _ = t_env.execute_sql("CREATE TABLE high (n BIGINT) WITH ('connector' = 'print')")
            >>> numbers = t_env.from_elements([(1,), (20,)], ["n"])
            >>> inserts = t_env.create_statement_set()
            >>> _ = inserts.add_insert("low", numbers.filter(col("n") < 10))
            >>> inserts.add_insert("high", numbers.filter(col("n") >= 10)).execute().wait()
            +I[20]
        """
        return StatementSet(self._planner)

    # --- tables

    def from_path(self, path: str) -> Table:
        """Return a table or view of a catalog, by its name or its full path.

        Example:
            >>> _ = t_env.execute_sql("CREATE VIEW words AS SELECT 'to' AS word")
            >>> list(t_env.from_path("words").execute().collect())
            [<Row('to')>]
            >>> t_env.from_path("default_catalog.default_database.words").get_resolved_schema().get_column_names()
            ['word']
        """
        parts = read_path(path)
        full_path = self._catalogs.full_path(parts)
        table = self._catalogs.find(full_path)
        if table is None:
            hint = self._catalogs.suggestion(full_path) or "."
            raise ValidationException(f"Table `{'`.`'.join(parts)}` was not found{hint}")
        declared = table.declared if isinstance(table, InlineView) else None if table.is_view else table
        return Table(self._planner.binder().query(syntax.TableQuery(syntax.TableName(parts))), self._planner, declared)

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """Return the table that a descriptor describes, without naming it.

        Example:
            >>> schema = Schema.new_builder().column("n", "INT").build()
            >>> numbers = TableDescriptor.for_connector("datagen").schema(schema).option("fields.n.kind", "sequence")
            >>> numbers = numbers.option("fields.n.start", 1).option("fields.n.end", 2).build()
            >>> list(t_env.from_descriptor(numbers).execute().collect())
            [<Row(1)>, <Row(2)>]
        """
        descriptor.check()
        path = self._planner.create_anonymous_table(descriptor)
        return Table(self._planner.binder().query(syntax.TableQuery(syntax.TableName(path))), self._planner)

    def from_elements(self, elements: Iterable[Value], schema: RowSchema = None, verify_schema: bool = True) -> Table:
        """Return a table of Python values: tuples, Rows, dicts, or `row(...)` expressions.

        Without a schema, names are _1, _2, .. and types follow from the values: int is BIGINT, float DOUBLE. With one,
        values of other types are rejected; without `verify_schema` they are converted where possible.

        Example:
            >>> import decimal
            >>> list(t_env.from_elements([("ann", 3), ("bob", None)], ["name", "price"]).execute().collect())
            [<Row('ann', 3)>, <Row('bob', None)>]
            >>> kind = DataTypes.ROW([DataTypes.FIELD("price", DataTypes.DECIMAL(10, 2))])
            >>> t_env.from_elements([(decimal.Decimal("3.50"),)], kind).print_schema()
            (
              `price` DECIMAL(10, 2)
            )
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

    def _of_rows(self, kind: RowType, batch: Batch, source: str, subtasks: int = 1) -> Table:
        self._sources += 1
        name = f"*anonymous_{source}${self._sources}*"
        types = [f.data_type for f in kind.fields]
        return Table(scan_of(kind.names, types, batch, name, subtasks), self._planner)

    def _from_expressions(self, rows: list[Value], schema: RowSchema) -> Table:
        if not all(isinstance(e, Expression) for e in rows):
            raise ValueError("It doesn't support part of the elements are Expression, while the others are not.")
        trees = [tree_of(e) for e in rows]
        members = [t.arguments if isinstance(t, syntax.Call) and t.name == "ROW" else (t,) for t in trees]
        binder = self._planner.binder()
        node = binder.query(syntax.Values(tuple(members)))
        if schema is None:
            return Table(binder.rename(node, [f"f{i}" for i in range(len(node.fields))]), self._planner)
        if isinstance(schema, RowType):
            node = binder.cast_to(node, [f.data_type for f in schema.fields])
            return Table(binder.rename(node, schema.names), self._planner)
        if isinstance(schema, DataType):
            raise TypeError(f"from_elements() of expressions takes a ROW type or names of columns, not {schema!r}.")
        return Table(binder.rename(node, list(schema)), self._planner)

    def from_pandas(
        self, pdf: pandas.DataFrame, schema: RowSchema | Sequence[DataType] = None, splits_num: int = 1
    ) -> Table:
        """Return a table of a pandas.DataFrame's rows.

        Args:
            pdf: the data frame.
            schema: the names of the columns, or a ROW type; by default those of the data frame.
            splits_num: the number of subtasks that read the rows.

        Example:
            >>> import pandas
            >>> orders = t_env.from_pandas(pandas.DataFrame({"name": ["ann", "bob"], "price": [3, 5]}))
            >>> list(orders.filter(col("price") > 4).execute().collect())
            [<Row('bob', 5)>]
        """
        # Imported only for programs that use pandas, which is optional.
        import pandas

        if not isinstance(pdf, pandas.DataFrame):
            raise TypeError(f"Unsupported type, expected pandas.DataFrame, got {type(pdf)}")
        kind, batch = from_frame(pdf, schema)
        return self._of_rows(kind, batch, "arrow", splits_num)

    def create_temporary_view(
        self, view_path: str, table_or_data_stream: Table | DataStream, *fields_or_schema: Schema | Expression | str
    ) -> None:
        """Name a table, or a stream, for SQL; the view is dropped with the environment.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["name", "price"])
            >>> t_env.create_temporary_view("orders", orders)
            >>> list(t_env.execute_sql("SELECT SUM(price) FROM orders WHERE name <> 'ann'").collect())
            [<Row(5)>]
        """
        table = table_or_data_stream
        if isinstance(table, DataStream):
            table = self._streams().table(table, fields_or_schema)
        if not isinstance(table, Table):
            raise InvalidProgramError(f"create_temporary_view() takes a Table or a DataStream, not {table!r}.")
        self._planner.create_view(view_path, node_of(table), declaration_of(table))

    def create_view(self, view_path: str, table: Table, ignore_if_exists: bool | None = False) -> None:
        """Name a table for SQL, for the lifetime of the environment; `drop_temporary_view` drops it.

        Args:
            view_path: the name, or the full path.
            table: the table.
            ignore_if_exists: does nothing if the name exists; by default that is an error.

        Example:
            >>> t_env.create_view("orders", t_env.from_elements([("ann", 3)], ["name", "price"]))
            >>> t_env.list_views()
            ['orders']
        """
        self._planner.create_view(view_path, node_of(table), declaration_of(table), bool(ignore_if_exists))

    def create_temporary_table(
        self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool | None = False
    ) -> None:
        """Declare a temporary table, which hides a permanent one of the same name.

        Example:
            >>> schema = Schema.new_builder().column("n", "INT").build()
            >>> sink = TableDescriptor.for_connector("print").schema(schema).build()
            >>> t_env.create_temporary_table("sink", sink)
            >>> t_env.execute_sql("INSERT INTO sink VALUES 1").wait()
            +I[1]
        """
        self._create(path, descriptor, True, bool(ignoreIfExists))

    def create_table(self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool | None = False) -> None:
        """Declare a table in the current catalog, as CREATE TABLE does.

        Args:
            path: the name, or the full path.
            descriptor: the schema, the connector and its options.
            ignoreIfExists: does nothing if the name exists; by default that is an error.

        Example:
            >>> schema = Schema.new_builder().column("n", "INT").build()
            >>> t_env.create_table("sink", TableDescriptor.for_connector("print").schema(schema).build())
            >>> t_env.list_tables()
            ['sink']
        """
        self._create(path, descriptor, False, bool(ignoreIfExists))

    def _create(self, path: str, descriptor: TableDescriptor, temporary: bool, if_not_exists: bool) -> None:
        descriptor.check()
        table = resolved_declaration(self._planner.sql_binder(), descriptor.as_table())
        self._catalogs.create(self._catalogs.full_path(read_path(path)), table, temporary, if_not_exists)

    # --- removed in Flink 2

    connect = missing_function("connect", "Flink 2 has removed it: use create_table() or CREATE TABLE")
    register_function = missing_function(
        "register_function", "Flink 2 has removed it: use create_temporary_system_function()"
    )
    register_table = missing_function("register_table", "Flink 2 has removed it: use create_temporary_view()")
    sql_update = missing_function("sql_update", "Flink 2 has removed it: use execute_sql()")
    insert_into = missing_function("insert_into", "Flink 2 has removed it: use Table.execute_insert()")
    scan = missing_function("scan", "Flink 2 has removed it: use from_path()")
    execute = missing_function("execute", "Flink 2 has removed it: execute_sql() and execute_insert() start the job")

    # --- settings

    def get_config(self) -> TableConfig:
        """Return the settings, to read and to change.

        Example:
            >>> _ = t_env.get_config().set("table.exec.state.ttl", "1 h")
            >>> t_env.get_config().get_idle_state_retention()
            datetime.timedelta(seconds=3600)
        """
        return self._config

    def add_python_file(self, file_path: str) -> None:
        """Distribute a Python file, package or directory to the workers, where user-defined functions can import it.

        Example:
            >>> from pathlib import Path
            >>> _ = Path("prices.py").write_text("VAT = 25")
            >>> t_env.add_python_file("prices.py")
        """
        self._bridge.environment.add_python_file(file_path)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install packages for the workers, from a file as for `pip install -r` and an optional directory of packages.

        Example:
            >>> from pathlib import Path
            >>> _ = Path("requirements.txt").write_text("geopy==2.4.1")
            >>> t_env.set_python_requirements("requirements.txt")
        """
        self._bridge.environment.set_python_requirements(requirements_file_path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Distribute an archive to the workers, extracted in their working directory under `target_dir`.

        Example:
            >>> import shutil
            >>> archive = shutil.make_archive("data", "zip", ".", "")
            >>> t_env.add_python_archive(archive, "data")
        """
        self._bridge.environment.add_python_archive(archive_path, target_dir)

    # --- streams

    def _streams(self) -> Streams:
        return Streams(self._planner)


class StreamTableEnvironment(TableEnvironment):
    """Shares a DataStream program: streams become tables, and tables streams.

    Example:
        >>> t_env = StreamTableEnvironment.create(env)
        >>> numbers = t_env.from_data_stream(env.from_collection([1, 2, 3]))
        >>> list(numbers.execute().collect())
        [<Row(1)>, <Row(2)>, <Row(3)>]
    """

    @staticmethod
    def create(  # type: ignore[override]
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        """Return an environment that shares a DataStream environment and its settings.

        See `StreamTableEnvironment` for an example.

        Args:
            stream_execution_environment: the environment; by default a new one.
            environment_settings: settings, which are added to the environment's.
        """
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

    def from_data_stream(self, data_stream: DataStream, *fields_or_schema: Schema | Expression | str) -> Table:
        """Return an append-only table of a stream's records.

        Args:
            data_stream: the stream; a stream of ROW or TUPLE has several columns, others have one.
            fields_or_schema: names for the columns, or a Schema.

        Example:
            >>> from millstream.common.typeinfo import Types
            >>> kind = Types.ROW_NAMED(["name", "price"], [Types.STRING(), Types.INT()])
            >>> orders = env.from_collection([("ann", 3)], kind)
            >>> list(t_env.from_data_stream(orders).select(col("price") + 1).execute().collect())
            [<Row(4)>]
        """
        return self._streams().table(data_stream, fields_or_schema)

    def from_changelog_stream(
        self, data_stream: DataStream, schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> Table:
        """Return a table of a stream of Rows, interpreted as a changelog by their row kinds.

        Args:
            data_stream: a stream of ROW.
            schema: the columns; by default those of the stream's type.
            changelog_mode: the kinds that occur, by default all.

        Example:
            >>> from millstream.common.types import Row, RowKind
            >>> from millstream.common.typeinfo import Types
            >>> added, removed = Row("ann", 3), Row("ann", 3)
            >>> removed.set_row_kind(RowKind.DELETE)
            >>> stream = env.from_collection([added, removed], Types.ROW([Types.STRING(), Types.INT()]))
            >>> t_env.from_changelog_stream(stream).to_pandas().empty
            True
        """
        return self._streams().changelog_table(data_stream, schema, changelog_mode)

    def to_data_stream(self, table: Table) -> DataStream:
        """Return the rows of an append-only table as a stream of Rows; a table with updates is an error.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["name", "price"])
            >>> list(t_env.to_data_stream(orders).map(lambda order: order.price * 2).execute_and_collect())
            [6, 10]
        """
        return self._streams().stream(table)

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> DataStream:
        """Return the changes of a table as a stream of Rows with row kinds.

        Args:
            table: the table.
            target_schema: the columns; by default those of the table.
            changelog_mode: the kinds to emit, by default all.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("ann", 4)], ["name", "price"])
            >>> totals = orders.group_by(col("name")).select(col("name"), col("price").sum)
            >>> changes = t_env.to_changelog_stream(totals)
            >>> list(changes.map(lambda row: (row.get_row_kind().name, row[1])).execute_and_collect())
            [('INSERT', 3), ('UPDATE_BEFORE', 3), ('UPDATE_AFTER', 7)]
        """
        return self._streams().changelog_stream(table, target_schema, changelog_mode)

    def to_append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """Return the rows of an append-only table as a stream of a type.

        Deprecated, as in Flink: use `to_data_stream`.
        """
        return self._streams().append_stream(table, type_info)

    def to_retract_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """Return pairs: True and an added row, or False and a retracted row.

        Deprecated, as in Flink: use `to_changelog_stream`.
        """
        return self._streams().retract_stream(table, type_info)
