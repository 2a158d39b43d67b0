"""What a format of tables is: it makes columns of bytes, and bytes of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import record
from millstream.common.serialization import BulkWriter
from millstream.formats.file_format import FileFormat, FilePart, StreamFormat
from millstream.formats.options import Options
from millstream.formats.predicates import Comparison
from millstream.sql.columns.batch import Batch
from millstream.sql.connectors import TableStatistics
from millstream.sql.schema import INSERTS, Changes, Field
from millstream.sql.types import DataType

# What can be done about a row that is wrong.
FIX = (
    "Correct the line, or set '{0}.ignore-parse-errors' = 'true': then what cannot be read of a row is null, and a "
    "line that is no row is left out."
)


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
        optional: its options, without the name that stands before them; others are refused.
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

    def check_written(self) -> None:
        """Refuse options with which it cannot be written."""


@record
class Decoded:
    """What was in messages.

    Attributes:
        batch: the rows.
        places: of each row which message it was in, from 0; None where each message had one.
        objects: of each row what else its message said, where the format has metadata.
    """

    batch: Batch
    places: Sequence[int] | None = None
    objects: Sequence[Any] = ()


class MessageFormat(TableFormat):
    """A format whose rows are messages, in a file each on a line of its own.

    Attributes:
        options_begin: what stands before its options in a declaration.
    """

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self.options_begin = f"{self.identifier}."

    @abstractmethod
    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        """Return the rows of messages; raises Malformed where one is wrong and the options do not say to skip it.

        A message of None is one that Kafka has nothing for.
        """

    def decoded(self, messages: Sequence[bytes], fields: Sequence[Field]) -> Batch:
        """Return the rows alone."""
        return self.read_all(messages, fields).batch

    def metadata(self) -> Mapping[str, DataType]:
        """Return what messages say beside their rows, by key."""
        return {}

    def metadata_values(self, key: str, decoded: Decoded) -> list[Any]:
        """Return what the message of each row says of a key."""
        raise NotImplementedError(key)

    @abstractmethod
    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        """Return a message for each row."""

    def file_reader(self, fields: Sequence[Field]) -> FileFormat:
        """Return what reads files of messages; its records are batches of those columns."""
        return _Lines(self, fields)


class _Lines(StreamFormat):
    """Lines of messages, a batch for each block of a file."""

    def __init__(self, message_format: MessageFormat, fields: Sequence[Field]) -> None:
        self._format = message_format
        self._fields = list(fields)

    @property
    def splittable(self) -> bool:
        return True

    def read_part(self, part: FilePart) -> Iterator[Collection[Any]]:
        for offset, block in part.blocks():
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            try:
                yield [self._format.decoded(lines, self._fields)]
            except Malformed as e:
                at = offset + sum(len(line) + 1 for line in lines[: e.place])
                raise part.damaged(at, e.reason, FIX.format(self._format.identifier)) from None


class FileTableFormat(TableFormat):
    """A format of whole files, such as Parquet."""

    @abstractmethod
    def reader(self, fields: Sequence[Field], filters: Sequence[Comparison] = ()) -> FileFormat:
        """Return what reads files; its records are batches of those columns, without rows that fail a test or with."""

    @abstractmethod
    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        """Return what writes a file; its elements are batches."""

    def statistics(self, paths: Sequence[str], columns: Sequence[str]) -> TableStatistics | None:
        """Return statistics of local files and of some of their columns; None where the format keeps none."""
        return None
