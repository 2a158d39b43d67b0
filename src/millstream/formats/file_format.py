"""Lines in a stretch of a file, read in blocks.

A line belongs to the stretch in which it begins. So a file may be cut at any byte: a stretch leaves out the end of a
line that began before it, and reads its own last line to its end, wherever that is.
"""

from __future__ import annotations

import codecs
import lzma
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import field
from typing import Any, BinaryIO, NamedTuple, cast

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.tags import tagged
from millstream.common.typeinfo import TypeInformation, Types
from millstream.formats.file_access import FileAccess, FoundFile, decompressed, is_compressed
from millstream.operators.diagnostics.bad_records import BadRecord, BadRecords

__all__ = ["BulkFormat", "StreamFormat"]

# So much is read at once; the lines in it are handed on together.
BLOCK_BYTES = 1 << 18
# The end of a stream whose length is not known.
UNKNOWN = sys.maxsize


def line_blocks(file: BinaryIO, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in [start, end), many at a time, each block with the position where it begins.

    Args:
        file: read from its beginning when `start` is 0, else it must be seekable.
        size: where the file ends, though there may be more by now; UNKNOWN for a stream.
    """
    begin = _first_line(file, start, end) if start else 0
    if begin is None:
        return
    at = begin
    parts: list[bytes] = []
    while at < size:
        chunk = file.read(min(BLOCK_BYTES, size - at))
        if not chunk:
            if size != UNKNOWN:
                raise EOFError(f"it has {at} bytes and had {size} when it was found")
            break
        before, at = at, at + len(chunk)
        if at >= end:
            # The last line is the one that goes on at the byte before the end.
            cut = chunk.find(b"\n", max(end - 1 - before, 0)) + 1
            if cut:
                parts.append(chunk[:cut])
                break
        else:
            cut = chunk.rfind(b"\n") + 1
        if cut:
            yield begin, b"".join((*parts, chunk[:cut]))
            parts, begin = [chunk[cut:]], before + cut
        else:
            parts.append(chunk)
    if rest := b"".join(parts):
        yield begin, rest


def _first_line(file: BinaryIO, start: int, end: int) -> int | None:
    """Find where the first line begins in [start, end), and go there; None when there is none."""
    at = start - 1
    file.seek(at)
    while at < end - 1:
        chunk = file.read(min(BLOCK_BYTES, end - 1 - at))
        if not chunk:
            return None
        found = chunk.find(b"\n")
        if found >= 0:
            file.seek(at + found + 1)
            return at + found + 1
        at += len(chunk)
    return None


def text_lines(block: bytes, charset: str, errors: str = "replace") -> list[str]:
    """Return the lines of a block as text, without their ends.

    Example:
        >>> text_lines(b"a\\r\\n\\nb", "utf-8")
        ['a', '', 'b']
    """
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = block.decode(charset, errors).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


class LineNumbers:
    """Finds the numbers of lines, counted from 1, each behind the one before; for error messages only."""

    def __init__(self) -> None:
        self._at, self._number = 0, 1

    def at(self, file: BinaryIO, offset: int) -> int:
        """Return the number of the line at a position of a file that stands at its beginning."""
        if offset < self._at:
            self._at, self._number = 0, 1
        if self._at:
            file.seek(self._at)
        while self._at < offset and (chunk := file.read(min(BLOCK_BYTES, offset - self._at))):
            self._number += chunk.count(b"\n")
            self._at += len(chunk)
        return self._number


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


@fast_dataclass
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


@fast_dataclass
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
