"""The state backend of a job, under Flink's option keys and Flink's names."""

from __future__ import annotations

from enum import Enum

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.setting import TextSetting

TYPE = TextSetting("state.backend.type", None, ("state.backend",))


class Backend(Enum):
    """The location of keyed state while a job runs."""

    # In the memory of the slot's process.
    HASHMAP = "hashmap"
    # In a file of the slot's host.
    LMDB = "lmdb"


_BY_NAME = {
    "hashmap": Backend.HASHMAP,
    "jobmanager": Backend.HASHMAP,
    "filesystem": Backend.HASHMAP,
    "lmdb": Backend.LMDB,
    "rocksdb": Backend.LMDB,
}


def backend_of(config: Configuration) -> Backend:
    """Return the configured backend of a job, by default memory.

    Example:
        >>> backend_of(Configuration()), backend_of(Configuration.from_dict({"state.backend": "RocksDB"}))
        (<Backend.HASHMAP: 'hashmap'>, <Backend.LMDB: 'lmdb'>)
    """
    name = TYPE.read(config)
    return Backend.HASHMAP if name is None else backend_named(name)


def backend_named(name: str) -> Backend:
    """Return the backend of a name in any case; Flink's rocksdb is LMDB."""
    backend = _BY_NAME.get(name.lower())
    if backend is None:
        raise InvalidProgramError(f"{TYPE.key} is {name!r}: it must be 'hashmap' or 'lmdb' (also named 'rocksdb').")
    return backend
