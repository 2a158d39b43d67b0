"""What a format of tables is: it makes columns of bytes, and bytes of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import BinaryIO, ClassVar

from millstream.common.errors import MillstreamError
from millstream.common.serialization import BulkWriter
from millstream.datastream.connectors.file_formats import FileFormat
from millstream.sql.changes import INSERTS, Changes
from millstream.sql.columns.batch import Batch
from millstream.sql.schema import Field
from millstream.table.connectors.options import Options


class Malformed(MillstreamError):
    """A message that is not what its format says.

    Attributes:
        place: which of the messages it is, from 0.
        reason: what is wrong, without a full stop.
    """

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason


class TableFormat(ABC):
    """A format by its name.

    Attributes:
        identifier: the name in `'format' = '...'`.
        optional: its options, without the name that stands before them.
        changes: what rows that are read can say.
        written: what rows that are written may say.
    """

    identifier: ClassVar[str]
    optional: ClassVar[frozenset[str]] = frozenset()
    changes: ClassVar[frozenset[Changes]] = INSERTS
    written: ClassVar[frozenset[Changes]] = INSERTS

    def __init__(self, options: Options, zone: str) -> None:
        self.options = options
        self.zone = zone

    def check(self, fields: Sequence[Field]) -> None:
        """Refuse columns of types that it cannot hold."""


class MessageFormat(TableFormat):
    """A format whose rows are messages, in a file each on a line of its own."""

    @abstractmethod
    def decoded(self, messages: Sequence[bytes], fields: Sequence[Field]) -> Batch:
        """Return the rows of messages; raises Malformed where one is wrong and the options do not say to skip it."""

    @abstractmethod
    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        """Return a message for each row."""


class FileTableFormat(TableFormat):
    """A format of whole files, such as Parquet."""

    @abstractmethod
    def reader(self, fields: Sequence[Field]) -> FileFormat:
        """Return what reads files; its records are batches of those columns."""

    @abstractmethod
    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        """Return what writes a file; its elements are batches."""
