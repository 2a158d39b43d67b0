"""JobClient: the handle on a running job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from millstream.common.completable_future import CompletableFuture
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """Watch, wait for, or cancel a job that was started with `execute_async`."""

    @abstractmethod
    def get_job_id(self) -> str:
        """Return the job's id: 32 lowercase hexadecimal digits."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return the state the job is in now."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Stop the job; the future is done when it has stopped."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return the accumulators as of the last finished epoch."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the job's result; waiting for it waits for the job's end."""
