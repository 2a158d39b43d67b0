"""How files become records: the contract between a FileSource and its formats, and lines of text."""

from __future__ import annotations

import codecs
import lzma
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import field
from typing import Any, BinaryIO, NamedTuple, cast

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import record
from millstream.common.tags import tagged
from millstream.common.typeinfo import TypeInformation, Types
from millstream.formats.file_access import FileAccess, FoundFile, decompressed, is_compressed
from millstream.formats.line_reader import UNKNOWN, LineNumbers, line_blocks, text_lines
from millstream.operators.diagnostics.bad_records import BadRecord, BadRecords

__all__ = ["BulkFormat", "StreamFormat"]

# How long a record of a stream format is taken to be: the driver does not look into files. An epoch's size follows the
# time it takes, so that a wrong guess only costs a few epochs.
BYTES_PER_RECORD = 64
# A file is read in parallel when it has several times as much.
LEAST_SPLIT_BYTES = 1 << 20
# Long files are read front to back by all subtasks together, so that event time goes on evenly.
MOST_SPLIT_BYTES = 32 << 20

FAIL = BadRecords.fail()


@tagged("file-split-range")
class FileShare(NamedTuple):
    """What a subtask reads of one split in one epoch: from `start` to `end`, in units of the format.

    Attributes:
        size: how long the file was in bytes when it was found; what comes behind is not read.
        ends: whether the split ends there.
    """

    split: int
    path: str
    start: int
    end: int
    size: int
    ends: bool


@record
class Extent:
    """How much there is to read in a file.

    Attributes:
        units: bytes, row groups, or 1 for a file that can only be read as a whole.
        density: about how many records a unit has.
        least: the least number of units that make a split.
        most: the most.
    """

    units: int
    density: float
    least: int = 1
    most: int = 1


class FileFormat(ABC):
    """Reads files. It is pickled on its way to the workers."""

    produced_type: TypeInformation | None = None
    # What becomes of records that cannot be read: set where a source says so.
    bad_records = FAIL

    @abstractmethod
    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        """Say how much there is to read in a file. Asked on the driver."""

    def cut(self, access: FileAccess, path: str, start: int, wanted: int, end: int) -> int:
        """Return where a share that begins at `start` may end: about where it is wanted. Asked on the driver."""
        return wanted

    @abstractmethod
    def read(self, access: FileAccess, share: FileShare) -> Iterator[Collection[Any]]:
        """Yield the records of a share in batches; they depend on the share and the file alone."""


class BulkFormat(FileFormat):
    """A format whose files know where their batches of records are, such as Parquet."""


class StreamFormat(FileFormat):
    """A format that is read from the stream of a file's bytes, decompressed where the name says so.

    Example:
        >>> StreamFormat.text_line_format().produced_type
        String
    """

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Read the lines of text files, as strings without their ends (`\\n`, `\\r\\n`, `\\r`).

        Bytes that are not text in the charset become U+FFFD, as in Flink.
        """
        return TextLineFormat(charset_name)

    @property
    def splittable(self) -> bool:
        """Whether a file can be read from the first line that begins behind any byte."""
        return False

    @property
    def cuttable(self) -> bool:
        """Whether `cut` finds where a file can be cut, though it is read by one subtask from its beginning on."""
        return False

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        if is_compressed(file.path) or not (self.splittable or self.cuttable):
            return Extent(1, max(file.size / BYTES_PER_RECORD, 1.0))
        if not self.splittable:
            return Extent(file.size, 1 / BYTES_PER_RECORD, file.size, file.size)
        return Extent(file.size, 1 / BYTES_PER_RECORD, LEAST_SPLIT_BYTES, MOST_SPLIT_BYTES)

    def read(self, access: FileAccess, share: FileShare) -> Iterator[Collection[Any]]:
        bad = self.bad_records
        with access.open(share.path) as file:
            if is_compressed(share.path):
                part = FilePart(access, share.path, decompressed(share.path, file), 0, UNKNOWN, UNKNOWN, bad)
            elif not (self.splittable or self.cuttable):
                part = FilePart(access, share.path, file, 0, share.size, share.size, bad)
            else:
                part = FilePart(access, share.path, file, share.start, share.end, share.size, bad)
            yield from self.read_part(part)

    @abstractmethod
    def read_part(self, part: FilePart) -> Iterator[Collection[Any]]:
        """Yield the records of the lines that begin in a part of a file."""


@record
class FilePart:
    """A stretch of a file's contents: what begins at `start` or behind, and before `end`."""

    access: FileAccess
    path: str
    file: BinaryIO
    start: int
    end: int
    size: int
    bad: BadRecords = FAIL
    numbers: LineNumbers = field(default_factory=LineNumbers)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield whole lines, many at a time, with the position of the first."""
        try:
            yield from line_blocks(self.file, self.start, self.end, self.size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as e:
            raise MillstreamError(
                f"FileSource: {self.path} is damaged or incomplete ({e}); move files into the directory when they are "
                "complete."
            ) from None

    def damaged(self, offset: int, reason: str, fix: str) -> MillstreamError:
        """Return the error for a record that cannot be read."""
        return MillstreamError(f"FileSource: {self._place(offset)}: {reason}. {fix}")

    def _place(self, offset: int) -> str:
        with self.access.open(self.path) as file:
            number = self.numbers.at(decompressed(self.path, file), offset)
        return f"{self.path}, line {number} (byte {offset})"

    def bad_record(self, offset: int, text: str, reason: str) -> BadRecord:
        """Return what stands for a record that cannot be read; where the job is to fail, raise what is wrong."""
        # Looking for the line costs something, and of what is skipped nobody asks.
        where = self._place(offset) if self.bad.fails or self.bad.tag is not None else self.path
        line = text.rstrip("\r\n")
        try:
            line.encode()
        except UnicodeEncodeError:
            return self.bad.meet(BadRecord(where, line.encode(errors="surrogateescape"), reason))
        return self.bad.meet(BadRecord(where, line, reason))


class TextLineFormat(StreamFormat):
    """Lines of text."""

    produced_type = Types.STRING()

    def __init__(self, charset_name: str = "UTF-8") -> None:
        try:
            self._charset = codecs.lookup(charset_name).name
            self._bytewise = "\n".encode(self._charset) == b"\n"
        except LookupError:
            raise InvalidProgramError(f"text_line_format: there is no charset {charset_name!r} for text.") from None

    @property
    def splittable(self) -> bool:
        return self._bytewise

    def read_part(self, part: FilePart) -> Iterator[Collection[Any]]:
        if self._bytewise:
            for _, block in part.blocks():
                yield text_lines(block, self._charset)
            return
        # Where a newline is not one byte, as in UTF-16, the file is read from its beginning.
        recoded = cast(BinaryIO, _Recoded(part.file, self._charset))
        for _, block in line_blocks(recoded, 0, UNKNOWN, UNKNOWN):
            yield text_lines(block, "utf-8")


class _Recoded:
    """A stream of text in UTF-8, whatever it was in."""

    def __init__(self, file: BinaryIO, charset: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(charset)("replace")

    def read(self, size: int) -> bytes:
        while data := self._file.read(size):
            if text := self._decoder.decode(data):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode()
