"""The errors a user can meet. Each one is a sentence that names the operator and, where we know it, the fix."""

from __future__ import annotations

from typing import ClassVar


class MillstreamError(Exception):
    """The base of everything millstream raises on purpose.

    Attributes:
        is_of_program: found where the program is put together, so that the program's line is shown with it.
    """

    is_of_program: ClassVar[bool] = False

    def _render_traceback_(self) -> list[str]:
        """Let a notebook show the program's lines and the sentence, and no frames of ours."""
        from millstream.common.error_rendering import tell

        return tell(self).splitlines()


class InvalidProgramError(MillstreamError, ValueError):
    """The program cannot run as written; found before anything was started."""

    is_of_program = True


class WrongTypeError(InvalidProgramError, TypeError):
    """A method was given an object of another kind than it takes."""


class TypeMismatchError(MillstreamError, TypeError):
    """A value does not fit the type that was declared for it."""

    is_of_program = True


class IncurableError(MillstreamError):
    """Starting the job again would end in the same way, so it is not tried."""


class LostOutputError(IncurableError):
    """Output that was written, and is to be committed now, is not there any more."""


class RecordTooLargeError(IncurableError):
    """A record is larger than what can be sent from one subtask to another."""


class DamagedStateError(MillstreamError):
    """A file of a checkpoint or savepoint cannot be used: it is missing, damaged, or of a newer version."""


class UntrustedStateError(MillstreamError):
    """A checkpoint or savepoint is not signed with a key that this job trusts."""


class StateNotSharedError(MillstreamError):
    """A machine of the cluster does not see where a job's state is."""


class StateLostError(MillstreamError):
    """A process was taken for another one, which held state in memory."""


class MissingClassError(MillstreamError):
    """State cannot be read because a class of the user's program cannot be imported."""


class JavaNotFoundError(MillstreamError):
    """No Java 17 or newer could be found to run Spark on."""


class JobCancelledError(MillstreamError):
    """The job was cancelled before it ended by itself."""


class DeposedError(MillstreamError):
    """Another job manager leads, or may: what this one wanted to write does not count."""


class JobSuspendedError(MillstreamError):
    """The job does not run here any more, and has not ended: whoever leads goes on with it."""


class JobExecutionError(MillstreamError):
    """A job failed.

    The text begins with the user's own traceback when user code raised; `engine_trace` holds what
    Spark said, for the rare case that it is needed.
    """

    def __init__(self, message: str, *, engine_trace: str = "") -> None:
        super().__init__(message)
        self.engine_trace = engine_trace
