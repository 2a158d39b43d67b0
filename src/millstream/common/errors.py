"""Errors that users see. Each message names the operator and, if known, the fix."""

from __future__ import annotations

from millstream.common.error_rendering import RenderedError


class MillstreamError(RenderedError):
    """The base class of all errors that millstream raises."""


class InvalidProgramError(MillstreamError, ValueError):
    """The program cannot run as written; raised before the job starts."""

    is_of_program = True


class WrongTypeError(InvalidProgramError, TypeError):
    """A method got an argument of the wrong type."""


class TypeMismatchError(MillstreamError, TypeError):
    """A value does not have its declared type."""

    is_of_program = True


class UnrecoverableError(MillstreamError):
    """A failure that a restart would repeat: the job is not restarted."""


class LostOutputError(UnrecoverableError):
    """Staged output was deleted before its commit."""


class RecordTooLargeError(UnrecoverableError):
    """A record exceeds the maximum size of a message between subtasks."""


class DamagedStateError(MillstreamError):
    """A file of a checkpoint or savepoint is missing, damaged, or of a newer version."""


class UntrustedStateError(MillstreamError):
    """A checkpoint or savepoint is not signed with a key that this job trusts."""


class StateNotSharedError(MillstreamError):
    """A machine of the cluster cannot access the job's state directory."""


class StateLostError(MillstreamError):
    """A slot process was replaced, and its in-memory state is lost."""


class MissingClassError(MillstreamError):
    """State cannot be read because a user class cannot be imported."""


class SparkNotFoundError(MillstreamError):
    """PySpark is not installed."""


NO_SPARK = (
    "PySpark is not installed: run `pip install 'pyspark>=4.3,<4.4'`, or run the program without Spark: "
    "`millstream run --local`."
)


class JavaNotFoundError(MillstreamError):
    """No Java 17 or newer was found."""


class JobCancelledError(MillstreamError):
    """The job was cancelled."""


class DeposedError(MillstreamError):
    """This job manager is no longer the leader: its write was rejected."""


class JobSuspendedError(MillstreamError):
    """The job is suspended here; the new leader continues it."""


class JobExecutionError(MillstreamError):
    """A job failed.

    The message starts with the user's traceback if user code raised; `engine_trace` holds Spark's error.
    """

    def __init__(self, message: str, *, engine_trace: str = "") -> None:
        super().__init__(message)
        self.engine_trace = engine_trace
