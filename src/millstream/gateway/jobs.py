"""SHOW JOBS, DESCRIBE JOB and STOP JOB: the jobs of this process, for statements."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from millstream.checkpoint.options import CheckpointOptions
from millstream.common.configuration import Configuration
from millstream.jobmaster.machine.requests import SavepointRequest
from millstream.service.registry import Entry, Registry
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language import statements as s
from millstream.sql.schema import Field, Fields
from millstream.sql.types import DataTypes
from millstream.table.table_result import OkResult, RowsResult, TableResult

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
    """Carries out statements about jobs."""

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
                "There is no directory for the savepoint: SET 'execution.checkpointing.savepoint-dir' = '...'."
            )
        request = SavepointRequest(directory, stop=True, drain=statement.drain)
        entry.job.ask(request)
        path = request.done.result()
        entry.job.result.exception()
        return RowsResult(SAVEPOINT, [(path,)])

    def _entry(self, job_id: str) -> Entry:
        entry = self._registry.find(job_id)
        if entry is None:
            raise ValidationException(f"The job '{job_id}' is not found: SHOW JOBS lists those there are.")
        return entry


def _row(entry: Entry) -> tuple[Any, ...]:
    view = entry.view
    started = datetime.fromtimestamp(min(view.times.values()), UTC)
    return view.job_id, view.job_name, view.status.name, started
