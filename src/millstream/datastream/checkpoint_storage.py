"""CheckpointStorage classes: an alternative to `execution.checkpointing.dir`."""

from __future__ import annotations

from millstream.checkpoint.options import DIRECTORY, SAVEPOINT_DIRECTORY, STORAGE, storage_type
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError

__all__ = ["CheckpointStorage", "CustomCheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]


class CheckpointStorage:
    """A location of checkpoints: the base of all storages; `execution.checkpointing.dir` sets the same."""

    _savepoint_path: str | None = None

    def _write(self, config: Configuration) -> None:
        """Write this storage to a job's configuration."""
        raise InvalidProgramError(
            f"{type(self).__name__} is not a supported checkpoint storage: use FileSystemCheckpointStorage(path)."
        )

    def get_savepoint_path(self) -> str | None:
        """Return the default savepoint directory, or None.

        Example:
            >>> FileSystemCheckpointStorage("file:///var/checkpoints").get_savepoint_path() is None
            True
        """
        return self._savepoint_path


class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints that are deleted with their job, unless a path is set.

    Flink keeps them in the memory of the JobManager and refuses large ones. Here they are files of the job's own
    directory, and no size is refused.

    Example:
        >>> JobManagerCheckpointStorage().get_max_state_size()
        5242880
    """

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        self._checkpoint_path = None if checkpoint_path is None else clean_path(checkpoint_path, type(self))
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if self._max_state_size <= 0:
            raise InvalidProgramError(f"max_state_size is {max_state_size}: it must be more than 0 bytes.")

    def get_checkpoint_path(self) -> str | None:
        """Return the directory of the checkpoints, None for the job's own.

        Example:
            >>> JobManagerCheckpointStorage("/var/checkpoints").get_checkpoint_path()
            '/var/checkpoints'
        """
        return self._checkpoint_path

    def get_max_state_size(self) -> int:
        """Return the configured size; it has no effect: no state is too large.

        Example:
            >>> JobManagerCheckpointStorage(max_state_size=1_000_000).get_max_state_size()
            1000000
        """
        return self._max_state_size

    def _write(self, config: Configuration) -> None:
        STORAGE.write(config, "jobmanager")
        if self._checkpoint_path is not None:
            DIRECTORY.write(config, self._checkpoint_path)

    def __repr__(self) -> str:
        return f"JobManagerCheckpointStorage({self._checkpoint_path or ''})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints in a directory that outlives the job.

    The two sizes have no effect. Unlike in Flink, a path needs no scheme.

    Example:
        >>> FileSystemCheckpointStorage("file:///var/checkpoints/").get_checkpoint_path()
        'file:///var/checkpoints'
    """

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024

    def __init__(
        self, checkpoint_path: str, file_state_size_threshold: int | None = None, write_buffer_size: int = -1
    ) -> None:
        self._checkpoint_path = clean_path(checkpoint_path, type(self))
        self._threshold = -1 if file_state_size_threshold is None else file_state_size_threshold
        self._write_buffer_size = write_buffer_size
        if not -1 <= self._threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise InvalidProgramError(
                f"file_state_size_threshold is {self._threshold}: "
                f"it must be from 0 to {self.MAX_FILE_STATE_THRESHOLD} bytes, or -1 for the default."
            )

    def get_checkpoint_path(self) -> str:
        """Return the directory of the checkpoints.

        Example:
            >>> FileSystemCheckpointStorage("s3://bucket/checkpoints").get_checkpoint_path()
            's3://bucket/checkpoints'
        """
        return self._checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """Return the configured value; it has no effect.

        Example:
            >>> FileSystemCheckpointStorage("/var/checkpoints").get_min_file_size_threshold()
            20480
        """
        return 20 * 1024 if self._threshold == -1 else self._threshold

    def get_write_buffer_size(self) -> int:
        """Return the configured value; it has no effect.

        Example:
            >>> FileSystemCheckpointStorage("/var/checkpoints").get_write_buffer_size()
            4096
        """
        return 4096 if self._write_buffer_size == -1 else self._write_buffer_size

    def _write(self, config: Configuration) -> None:
        STORAGE.write(config, "filesystem")
        DIRECTORY.write(config, self._checkpoint_path)

    def __repr__(self) -> str:
        return f"FileSystemCheckpointStorage({self._checkpoint_path})"


class CustomCheckpointStorage(CheckpointStorage):
    """A storage in Java: not supported."""

    def __init__(self, j_custom_checkpoint_storage: object = None) -> None:
        raise InvalidProgramError(
            "CustomCheckpointStorage wraps a Java class, which millstream cannot run: use "
            "FileSystemCheckpointStorage(path)."
        )


def clean_path(path: str, owner: type) -> str:
    """Return a path without the slash at its end."""
    if not isinstance(path, str) or not path.strip():
        raise InvalidProgramError(
            f"{owner.__name__} needs a path, not {path!r}: give a directory, for example 'file:///checkpoints'."
        )
    cleaned = path.strip().rstrip("/")
    # The root of a file system is all slashes.
    return path.strip() if not cleaned or cleaned.endswith(":") else cleaned


def write_storage(storage: CheckpointStorage, config: Configuration) -> None:
    """Write a checkpoint storage to a job's configuration."""
    storage._write(config)


def configured_storage(config: Configuration) -> CheckpointStorage | None:
    """Return the storage that a job's settings name, None when they name none."""
    kind, path = storage_type(config), DIRECTORY.read(config)
    if kind is None and path is None:
        return None
    storage: CheckpointStorage
    if kind == "jobmanager" or path is None:
        storage = JobManagerCheckpointStorage(path)
    else:
        storage = FileSystemCheckpointStorage(path)
    storage._savepoint_path = SAVEPOINT_DIRECTORY.read(config)
    return storage
