"""StateBackend classes: an alternative to `state.backend.type`."""

from __future__ import annotations

import re
from enum import Enum
from urllib.parse import urlsplit

from millstream.checkpoint.options import DIRECTORY, INCREMENTAL, SAVEPOINT_DIRECTORY
from millstream.common.call_site import warn_deprecated
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.datastream.checkpoint_storage import clean_path
from millstream.state.backend import TYPE, Backend, backend_named, backend_of

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "HashMapStateBackend",
    "MemoryStateBackend",
    "PredefinedOptions",
    "RocksDBStateBackend",
    "StateBackend",
]


class StateBackend:
    """A store of keyed state while a job runs: the base of all backends. CheckpointStorage sets where checkpoints go.

    `state.backend.type` selects one: `hashmap` or `rocksdb`.
    """

    _type = ""

    def _write(self, config: Configuration) -> None:
        """Write this backend to a job's configuration."""
        if not self._type:
            raise InvalidProgramError(
                f"{type(self).__name__} is not a supported state backend: use HashMapStateBackend() or "
                "EmbeddedRocksDBStateBackend()."
            )
        TYPE.write(config, self._type)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class HashMapStateBackend(StateBackend):
    """State in the memory of the workers: the fastest, and the default.

    Example:
        >>> from millstream.common import Configuration
        >>> env.configure(Configuration().set_string("state.backend.type", "hashmap"))
        >>> HashMapStateBackend()
        HashMapStateBackend()
    """

    _type = "hashmap"


class PredefinedOptions(Enum):
    """Flink's sets of options for RocksDB; none of them has an effect here."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


def _local(path: str) -> str:
    """Return the path of a file URL, or the path itself; it must be absolute."""
    url = urlsplit(path)
    if url.scheme not in ("", "file"):
        raise InvalidProgramError(f"set_db_storage_paths(): {path!r} is not on the workers' own disks.")
    if not url.path.startswith("/"):
        raise InvalidProgramError(f"set_db_storage_paths(): {path!r} is a relative path: give absolute ones.")
    # As Java's File writes it.
    return re.sub("/+", "/", url.path if url.scheme else path).rstrip("/") or "/"


class EmbeddedRocksDBStateBackend(StateBackend):
    """State in files on the workers' hosts, for state larger than memory. LMDB stores it.

    Options that tune RocksDB are accepted without effect. `enable_incremental_checkpointing` has an effect: False
    writes the complete state with each checkpoint.

    Example:
        >>> backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True)
        >>> backend.is_incremental_checkpoints_enabled()
        True
    """

    _type = "rocksdb"

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            raise InvalidProgramError(
                f"enable_incremental_checkpointing is {enable_incremental_checkpointing!r}: "
                "it must be True, False or None."
            )
        self._incremental = enable_incremental_checkpointing
        self._paths: list[str] = []
        self._predefined = PredefinedOptions.DEFAULT
        self._options: str | None = None
        self._threads = 4

    def set_db_storage_paths(self, *paths: str) -> None:
        """Accepted without effect; the paths must be absolute.

        Example:
            >>> backend = EmbeddedRocksDBStateBackend()
            >>> backend.set_db_storage_paths("/disk1", "file:///disk2")
            >>> backend.get_db_storage_paths()
            ['/disk1', '/disk2']
        """
        cleaned = [_local(p) for p in paths]
        self._paths = cleaned

    def get_db_storage_paths(self) -> list[str]:
        """Return the paths that were set.

        Example:
            >>> EmbeddedRocksDBStateBackend().get_db_storage_paths()
            []
        """
        return list(self._paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints are set to be incremental.

        Example:
            >>> EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True).is_incremental_checkpoints_enabled()
            True
        """
        return bool(self._incremental)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Accepted without effect: there is no RocksDB.

        Example:
            >>> backend = EmbeddedRocksDBStateBackend()
            >>> backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
            >>> backend.get_predefined_options().name
            'FLASH_SSD_OPTIMIZED'
        """
        if not isinstance(options, PredefinedOptions):
            raise InvalidProgramError(f"set_predefined_options() takes one of PredefinedOptions, not {options!r}.")
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the configured value; it has no effect.

        Example:
            >>> EmbeddedRocksDBStateBackend().get_predefined_options().name
            'DEFAULT'
        """
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Accepted without effect: there is no RocksDB."""
        self._options = options_factory_class_name

    def get_options(self) -> str | None:
        """Return the configured value; it has no effect.

        Example:
            >>> EmbeddedRocksDBStateBackend().get_options() is None
            True
        """
        return self._options

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Accepted without effect: there is no RocksDB.

        Example:
            >>> backend = EmbeddedRocksDBStateBackend()
            >>> backend.set_number_of_transfer_threads(8)
            >>> backend.get_number_of_transfer_threads()
            8
        """
        if number_of_transfering_threads <= 0:
            raise InvalidProgramError(
                f"set_number_of_transfer_threads({number_of_transfering_threads}): give at least 1."
            )
        self._threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """Return the configured value; it has no effect.

        Example:
            >>> EmbeddedRocksDBStateBackend().get_number_of_transfer_threads()
            4
        """
        return self._threads

    def _write(self, config: Configuration) -> None:
        super()._write(config)
        if self._incremental is not None:
            INCREMENTAL.write(config, self._incremental)


class CustomStateBackend(StateBackend):
    """A backend in Java: not supported."""

    def __init__(self, j_custom_state_backend: object = None) -> None:
        raise InvalidProgramError(
            "CustomStateBackend wraps a Java class, which millstream cannot run: use HashMapStateBackend() or "
            "EmbeddedRocksDBStateBackend()."
        )


class _OldHashMapStateBackend(HashMapStateBackend):
    """The base of the two deprecated in-memory backends, which also set the checkpoint storage."""

    def __init__(self, checkpoint_path: str | None, savepoint_path: str | None, snapshots: bool | None) -> None:
        self._checkpoint_path = None if checkpoint_path is None else clean_path(checkpoint_path, type(self))
        self._savepoint_path = None if savepoint_path is None else clean_path(savepoint_path, type(self))
        self._asynchronous_snapshots = snapshots is not False

    def is_using_asynchronous_snapshots(self) -> bool:
        """Return the configured value; it has no effect."""
        return self._asynchronous_snapshots

    def _write(self, config: Configuration) -> None:
        super()._write(config)
        if self._checkpoint_path is not None:
            DIRECTORY.write(config, self._checkpoint_path)
        if self._savepoint_path is not None:
            SAVEPOINT_DIRECTORY.write(config, self._savepoint_path)


class MemoryStateBackend(_OldHashMapStateBackend):
    """Deprecated: state in memory with checkpoints that are deleted with the job."""

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        warn_deprecated("MemoryStateBackend", "use HashMapStateBackend()")
        super().__init__(checkpoint_path, savepoint_path, using_asynchronous_snapshots)
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size

    def get_max_state_size(self) -> int:
        """Return the configured size; it has no effect."""
        return self._max_state_size


class FsStateBackend(_OldHashMapStateBackend):
    """Deprecated: state in memory with checkpoints in a directory."""

    def __init__(
        self,
        checkpoint_directory_uri: str,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        warn_deprecated("FsStateBackend", f"use HashMapStateBackend() and set {DIRECTORY.key}")
        path = clean_path(checkpoint_directory_uri, type(self))
        super().__init__(path, default_savepoint_directory_uri, using_asynchronous_snapshots)
        self._path = path
        self._threshold = 20 * 1024 if file_state_size_threshold is None else file_state_size_threshold
        self._write_buffer_size = 4096 if write_buffer_size is None else write_buffer_size

    def get_checkpoint_path(self) -> str:
        """Return the directory of the checkpoints."""
        return self._path

    def get_min_file_size_threshold(self) -> int:
        """Return the configured value; it has no effect."""
        return self._threshold

    def get_write_buffer_size(self) -> int:
        """Return the configured value; it has no effect."""
        return self._write_buffer_size


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """Deprecated: state on disk with checkpoints in a directory."""

    def __init__(
        self,
        checkpoint_data_uri: str | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: StateBackend | None = None,
    ) -> None:
        warn_deprecated("RocksDBStateBackend", f"use EmbeddedRocksDBStateBackend() and set {DIRECTORY.key}")
        if checkpoint_data_uri is None and checkpoint_stream_backend is None:
            raise InvalidProgramError("RocksDBStateBackend needs a checkpoint_data_uri: give a directory.")
        super().__init__(enable_incremental_checkpointing)
        self._uri = None if checkpoint_data_uri is None else clean_path(checkpoint_data_uri, type(self))
        self._stream_backend = checkpoint_stream_backend
        self._ttl_filter = True

    def get_checkpoint_backend(self) -> StateBackend:
        """Return the backend that sets the checkpoint storage."""
        if self._stream_backend is None:
            assert self._uri is not None
            self._stream_backend = FsStateBackend(self._uri)
        return self._stream_backend

    def is_ttl_compaction_filter_enabled(self) -> bool:
        """Return the configured value."""
        return self._ttl_filter

    def disable_ttl_compaction_filter(self) -> None:
        """Accepted; expired state is swept out in any case."""
        self._ttl_filter = False

    def set_number_of_transfering_threads(self, number_of_transfering_threads: int) -> None:
        """Accepted without effect."""
        self.set_number_of_transfer_threads(number_of_transfering_threads)

    def get_number_of_transfering_threads(self) -> int:
        """Return the configured value."""
        return self.get_number_of_transfer_threads()

    def _write(self, config: Configuration) -> None:
        if self._uri is not None:
            DIRECTORY.write(config, self._uri)
        elif self._stream_backend is not None:
            self._stream_backend._write(config)
        super()._write(config)


def write_backend(backend: StateBackend, config: Configuration) -> None:
    """Write a state backend to a job's configuration."""
    backend._write(config)


def configured_backend(config: Configuration, latest: StateBackend | None) -> StateBackend | None:
    """Return the backend of a job's settings; None if not configured.

    Args:
        config: the job's settings.
        latest: the backend that the program set last; returned unless the settings have changed since.
    """
    if not TYPE.is_set(config):
        return None
    backend = backend_of(config)
    if latest is not None and backend_named(latest._type) is backend:
        return latest
    if backend is Backend.HASHMAP:
        return HashMapStateBackend()
    return EmbeddedRocksDBStateBackend(INCREMENTAL.read(config) if INCREMENTAL.is_set(config) else None)
