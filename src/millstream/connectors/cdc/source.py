"""The Source that all databases share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Protocol

from millstream.connectors.base import Source, SourceReader, SplitRange
from millstream.connectors.cdc.changes import (
    BatchDeserializationSchema,
    Change,
    DebeziumDeserializationSchema,
)
from millstream.connectors.cdc.settings import SNAPSHOT, CaptureSettings

__all__ = ["CaptureShare", "CaptureSource"]

_BATCH = 2048
_LOG, _TABLES = "log", "tables"


class CaptureShare(Protocol):
    """A chunk of a table or a range of the log, assigned to a subtask."""

    @property
    def of_table(self) -> bool:
        """Whether this is a chunk of a table."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no changes."""
        ...

    def changes(self) -> Iterator[Change]:
        """Yield the changes in order."""
        ...


class _Reader(SourceReader):
    def __init__(self, schema: DebeziumDeserializationSchema) -> None:
        self._deserialize = schema.deserialize

    def read(self, share: SplitRange) -> Iterator[Collection[Any]]:
        deserialize, changes = self._deserialize, share.changes()
        # Snapshot rows have no timestamp: they must not make changes of the log late.
        of_table = share.of_table
        while batch := list(islice(changes, _BATCH)):
            yield [(record, 0 if of_table else change.ms) for change in batch for record in deserialize(change)]

    def split_of(self, share: SplitRange) -> str:
        return _TABLES if share.of_table else _LOG

    def ends_split(self, share: SplitRange) -> bool:
        return bool(share.of_table)


class _BatchReader(_Reader):
    """Converts batches of changes into one record each."""

    def __init__(self, schema: BatchDeserializationSchema) -> None:
        self._deserialize_all = schema.deserialize_all

    def read(self, share: SplitRange) -> Iterator[Collection[Any]]:
        changes = share.changes()
        while batch := list(islice(changes, _BATCH)):
            yield [self._deserialize_all(batch)]


class CaptureSource(Source[Any]):
    """Reads tables, then their changes."""

    timestamped = True

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self.timestamped = not isinstance(settings.schema, BatchDeserializationSchema)
        self.name = f"{type(self).__name__}-{', '.join(settings.tables)}"

    @property
    def is_bounded(self) -> bool:
        return self._settings.startup.mode == SNAPSHOT

    def check(self) -> None:
        with self._settings.database.connect() as connection:
            self._prepare(connection)

    @abstractmethod
    def _prepare(self, connection: Any) -> None:
        """Fail if tables cannot be captured."""

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        schema = self._settings.schema
        return _BatchReader(schema) if isinstance(schema, BatchDeserializationSchema) else _Reader(schema)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return 0
