"""A session: its declarations and settings, and the outcome of each statement."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.checkpoint.options import CheckpointOptions
from millstream.common.configuration import Configuration
from millstream.gateway.completion import Vocabulary
from millstream.jobmaster.machine.requests import SavepointRequest
from millstream.service.registry import Entry, Registry
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language import statements as s
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.schema import Field, Fields
from millstream.sql.types import DataTypes
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.result_kind import ResultKind
from millstream.table.statement_set import StatementSet
from millstream.table.table_environment import TableEnvironment
from millstream.table.table_result import JobResult, OkResult, RowsResult, TableResult

_STRING = DataTypes.STRING()
JOBS = Fields(
    (
        Field("job id", _STRING),
        Field("job name", _STRING),
        Field("status", _STRING),
        Field("start time", DataTypes.TIMESTAMP_LTZ(3)),
    )
)
SAVEPOINT = Fields((Field("savepoint path", _STRING),))


class JobStatements:
    """Executes statements about jobs."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def shown(self, zone: str) -> TableResult:
        """Return all jobs, the newest first."""
        return RowsResult(JOBS, [_row(e) for e in reversed(self._registry.entries())], zone)

    def described(self, job_id: str, zone: str) -> TableResult:
        """Return one job."""
        return RowsResult(JOBS, [_row(self._entry(job_id))], zone)

    def stopped(self, statement: s.StopJob, configuration: Configuration) -> TableResult:
        """Stop a job: with a savepoint, whose path is the result, or without."""
        if statement.drain and not statement.savepoint:
            raise ValidationException("WITH DRAIN could only be used with WITH SAVEPOINT.")
        entry = self._entry(statement.job)
        if not statement.savepoint:
            entry.job.cancel()
            entry.job.result.exception()
            return OkResult()
        directory = CheckpointOptions.read(configuration).savepoint_directory
        if directory is None:
            raise TableException(
                "No savepoint directory is configured: SET 'execution.checkpointing.savepoint-dir' = '...'."
            )
        request = SavepointRequest(directory, stop=True, drain=statement.drain)
        entry.job.ask(request)
        path = request.done.result()
        entry.job.result.exception()
        return RowsResult(SAVEPOINT, [(path,)])

    def _entry(self, job_id: str) -> Entry:
        entry = self._registry.find(job_id)
        if entry is None:
            raise ValidationException(f"The job '{job_id}' does not exist: see SHOW JOBS.")
        return entry


def _row(entry: Entry) -> tuple[str, str, str, datetime]:
    view = entry.view
    started = datetime.fromtimestamp(min(view.times.values()), UTC)
    return view.job_id, view.job_name, view.status.name, started


_JOB_ID = Fields((Field("job id", DataTypes.STRING()),))
_SYNC = "table.dml-sync"
_ONLY_INSERTS = (
    "Only 'INSERT/CREATE TABLE AS' statement is allowed in Statement Set or use 'END' statement to submit Statement "
    "Set."
)
# Statements that configure a session, by Flink's list.
CONFIGURING = (
    *(s.SetOption, s.ResetOption, s.CreateTable, s.CreateView, s.CreateDatabase, s.CreateFunction, s.CreateCatalog),
    *(s.CreateModel, s.Drop, s.AlterTable, s.AlterView, s.AlterFunction, s.AlterModel, s.AlterOptions, s.Use),
    *(s.UseModules, s.LoadModule, s.UnloadModule, s.Jar),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a statement.

    Attributes:
        statement: the statement.
        fields: the columns of its rows.
        batches: the rows, streamed.
        zone: the time zone in which instants are shown.
        is_ok: whether the result is only OK.
        is_query: whether the rows are those of a query.
        result: the result of the Table API.
        job_id: the started job, or None.
    """

    statement: s.Statement
    fields: Fields
    batches: Iterator[Batch]
    zone: str
    is_ok: bool
    is_query: bool
    result: TableResult
    job_id: str | None = None

    def cancel(self) -> None:
        """Cancel the job of a query; an INSERT's job continues without the session."""
        client = self.result.get_job_client()
        if self.is_query and client is not None:
            client.cancel()


class Session:
    """Runs statements one at a time, from any thread."""

    def __init__(self, settings: Mapping[str, str], registry: Registry) -> None:
        """Create a session.

        Args:
            settings: initial settings, as set by SET.
            registry: the jobs.
        """
        self._initial_settings = dict(settings)
        environment = EnvironmentSettings.new_instance().with_configuration(
            Configuration.from_dict(self._initial_settings)
        )
        self._t_env = TableEnvironment.create(environment.build())
        self._jobs = JobStatements(registry)
        self._statement_set: StatementSet | None = None
        self._in_set = 0
        self._lock = threading.RLock()

    @property
    def settings(self) -> dict[str, str]:
        """The current settings."""
        return {k: str(v) for k, v in self._configuration.to_dict().items()}

    @property
    def is_batch(self) -> bool:
        """Whether queries run in batch mode."""
        return self.settings.get("execution.runtime-mode", "STREAMING").upper() == "BATCH"

    @property
    def _configuration(self) -> Configuration:
        return self._t_env.get_config().get_configuration()

    def execute(self, text: str, only_now: Mapping[str, str] | None = None) -> Outcome:
        """Execute a statement.

        Args:
            text: the statement.
            only_now: settings for this statement only.
        """
        with self._lock, self._with_settings(only_now or {}):
            statement = read_statement(text)
            return self._outcome(statement, self._executed(statement, text))

    def configure(self, text: str) -> None:
        """Execute a statement that configures the session; fail for any other."""
        statement = read_statement(text)
        if not isinstance(statement, CONFIGURING):
            raise TableException(
                f"Unsupported statement for configuring session: {text}\nThe configureSession API only supports "
                "statements that declare or set something: SET, RESET, CREATE, DROP, ALTER, USE, LOAD MODULE, UNLOAD "
                "MODULE, ADD JAR."
            )
        self.execute(text)

    @contextmanager
    def _with_settings(self, only_now: Mapping[str, str]) -> Iterator[None]:
        before = self.settings
        for key, value in only_now.items():
            self._configuration.set_string(key, value)
        try:
            yield
        finally:
            for key in only_now:
                self._configuration.remove_config(key)
                if key in before:
                    self._configuration.set_string(key, before[key])

    def _executed(self, statement: s.Statement, text: str) -> TableResult:
        if self._statement_set is not None:
            return self._collected(statement, text, self._statement_set)
        zone = self._t_env.get_config().get_local_timezone()
        match statement:
            case s.BeginStatementSet():
                self._statement_set, self._in_set = self._t_env.create_statement_set(), 0
                return OkResult()
            case s.EndStatementSet():
                raise ValidationException(
                    "No Statement Set to submit. 'END' statement should be used after 'BEGIN STATEMENT SET'."
                )
            case s.Show(kind="JOBS"):
                return self._jobs.shown(zone)
            case s.Describe(kind="JOB"):
                return self._jobs.described(statement.name[0], zone)
            case s.StopJob():
                return self._jobs.stopped(statement, self._configuration)
            case s.ResetOption(key=None):
                return self._reset_all()
            case s.ResetOption(key=str() as key) if key in self._initial_settings:
                self._configuration.set_string(key, self._initial_settings[key])
                return OkResult()
        return self._t_env.execute_sql(text)

    def _collected(self, statement: s.Statement, text: str, collecting: StatementSet) -> TableResult:
        """Add a statement between BEGIN STATEMENT SET and END."""
        if isinstance(statement, s.EndStatementSet):
            self._statement_set = None
            return collecting.execute() if self._in_set else OkResult()
        if not isinstance(statement, s.Insert):
            raise ValidationException(_ONLY_INSERTS)
        collecting.add_insert_sql(text)
        self._in_set += 1
        return OkResult()

    def _reset_all(self) -> TableResult:
        """Restore the session's initial settings."""
        for key in self.settings.keys() - self._initial_settings.keys():
            self._configuration.remove_config(key)
        for key, value in self._initial_settings.items():
            self._configuration.set_string(key, value)
        return OkResult()

    def _outcome(self, statement: s.Statement, result: TableResult) -> Outcome:
        client = result.get_job_client()
        job_id = None if client is None else str(client.get_job_id())
        if isinstance(result, JobResult) and self.settings.get(_SYNC, "false").lower() != "true":
            # The result of an INSERT is its job id, without waiting for the job.
            listed = RowsResult(_JOB_ID, [(job_id,)])
            return self._new_outcome(statement, result, listed, job_id)
        return self._new_outcome(statement, result, result, job_id)

    def _new_outcome(
        self, statement: s.Statement, result: TableResult, shown: TableResult, job_id: str | None
    ) -> Outcome:
        schema = shown.get_resolved_schema()
        columns = zip(schema.get_column_names(), schema.get_column_data_types(), strict=True)
        return Outcome(
            statement=statement,
            fields=Fields(tuple(Field(n, k) for n, k in columns)),
            batches=shown.arrow_batches(),
            zone=self._t_env.get_config().get_local_timezone(),
            is_ok=shown.get_result_kind() == ResultKind.SUCCESS,
            is_query=isinstance(statement, s.QueryStatement),
            result=result,
            job_id=job_id,
        )

    def vocabulary(self) -> Vocabulary:
        """Return the names that statements of this session can use."""
        with self._lock:
            tables = {name: self._columns(name) for name in self._t_env.list_tables()}
            path = f"{self._t_env.get_current_catalog()}.{self._t_env.get_current_database()}"
            return Vocabulary(tables, self._t_env.list_functions(), path, tuple(self._t_env.list_catalogs()))

    def _columns(self, table: str) -> Sequence[str]:
        quoted = table.replace("`", "``")
        with self._t_env.execute_sql(f"DESCRIBE `{quoted}`").collect() as rows:
            return [row[0] for row in rows]
