"""File formats, and the lines of a range of a file, read in blocks.

A line belongs to the range in which it begins. So a file may be split at any byte: the reader of a range skips the rest
of a line that began before it, and reads its own last line beyond the end of the range.
"""

from __future__ import annotations

import codecs
import lzma
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import field
from typing import BinaryIO, NamedTuple, cast

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.tags import tagged
from millstream.common.typeinfo import TypeInformation, Types
from millstream.formats.file_access import FileAccess, FileStatus, decompressed, is_compressed
from millstream.operators.diagnostics.bad_records import BadRecord, BadRecords

__all__ = ["BulkFormat", "StreamFormat"]

# Bytes per read; its lines form a block.
BLOCK_BYTES = 1 << 18
# The end of a stream of unknown length.
UNKNOWN = sys.maxsize


def line_blocks(file: BinaryIO, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in [start, end) in blocks, each with its position.

    Args:
        file: a file at its beginning; seekable unless `start` is 0.
        start: the start of the range.
        end: the end of the range.
        size: the size of the file when it was listed; later data is not read. UNKNOWN for a stream.
    """
    begin = _first_line(file, start, end) if start else 0
    if begin is None:
        return
    position = begin
    parts: list[bytes] = []
    while position < size:
        chunk = file.read(min(BLOCK_BYTES, size - position))
        if not chunk:
            if size != UNKNOWN:
                raise EOFError(f"it has {position} bytes, but had {size} when it was listed")
            break
        before, position = position, position + len(chunk)
        if position >= end:
            # The last line contains the byte before the end.
            line_end = chunk.find(b"\n", max(end - 1 - before, 0)) + 1
            if line_end:
                parts.append(chunk[:line_end])
                break
        else:
            line_end = chunk.rfind(b"\n") + 1
        if line_end:
            yield begin, b"".join((*parts, chunk[:line_end]))
            parts, begin = [chunk[line_end:]], before + line_end
        else:
            parts.append(chunk)
    if rest := b"".join(parts):
        yield begin, rest


def _first_line(file: BinaryIO, start: int, end: int) -> int | None:
    """Seek to the first line that begins in [start, end) and return its position; None if there is none."""
    position = start - 1
    file.seek(position)
    while position < end - 1:
        chunk = file.read(min(BLOCK_BYTES, end - 1 - position))
        if not chunk:
            return None
        newline = chunk.find(b"\n")
        if newline >= 0:
            file.seek(position + newline + 1)
            return position + newline + 1
        position += len(chunk)
    return None


def text_lines(block: bytes, charset: str, errors: str = "replace") -> list[str]:
    """Return the lines of a block as text, without line ends.

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
    """Finds line numbers, counted from 1, for error messages; fast for ascending positions."""

    def __init__(self) -> None:
        self._offset, self._number = 0, 1

    def number_of(self, file: BinaryIO, offset: int) -> int:
        """Return the number of the line at an offset of a file, which must be at its beginning."""
        if offset < self._offset:
            self._offset, self._number = 0, 1
        if self._offset:
            file.seek(self._offset)
        while self._offset < offset and (chunk := file.read(min(BLOCK_BYTES, offset - self._offset))):
            self._number += chunk.count(b"\n")
            self._offset += len(chunk)
        return self._number


# The assumed length of a record, because the driver does not read files. Epoch sizes adapt to the time that epochs
# take, so a wrong assumption only affects the first epochs.
BYTES_PER_RECORD = 64
# Splits are not smaller than this.
MIN_SPLIT_BYTES = 1 << 20
# All subtasks together read a long file from front to back, so that event time advances evenly.
MAX_SPLIT_BYTES = 32 << 20

FAIL = BadRecords.fail()


@tagged("file-split-range")
class FileSplitRange(NamedTuple):
    """The part of a split that a subtask reads in one epoch: [start, end), in units of the format.

    Attributes:
        split: the number of the split.
        path: the file.
        start: the first unit.
        end: the end.
        size: the size of the file in bytes when it was listed; later data is not read.
        ends: whether the split ends at `end`.
    """

    split: int
    path: str
    start: int
    end: int
    size: int
    ends: bool


@fast_dataclass
class Extent:
    """The size of a file in units of its format.

    Attributes:
        units: the number of bytes or row groups; 1 for a file that can only be read as a whole.
        density: the estimated number of records per unit.
        min_units: the minimum size of a split.
        max_units: the maximum size of a split.
    """

    units: int
    density: float
    min_units: int = 1
    max_units: int = 1


class FileFormat(ABC):
    """Reads files. It is pickled and sent to the workers."""

    produced_type: TypeInformation | None = None
    # How malformed records are handled; sources may set it.
    bad_records = FAIL

    @abstractmethod
    def measure(self, access: FileAccess, file: FileStatus) -> Extent:
        """Return the size of a file. Runs on the driver."""

    def range_end(self, access: FileAccess, path: str, start: int, target: int, end: int) -> int:
        """Return an end near `target` for a split range that begins at `start`. Runs on the driver."""
        return target

    @abstractmethod
    def read(self, access: FileAccess, split_range: FileSplitRange) -> Iterator[Collection[Value]]:
        """Yield the records of a split range in batches; repeated reads yield the same batches."""


class BulkFormat(FileFormat):
    """Reads files that contain the positions of their batches of records, such as Parquet."""


class StreamFormat(FileFormat):
    """A format that reads the stream of a file's bytes, decompressed according to the file's name.

    Example:
        >>> StreamFormat.text_line_format().produced_type
        String
    """

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        r"""Read the lines of text files, as strings without line ends (`\n`, `\r\n`, `\r`).

        Bytes that are invalid in the charset become U+FFFD, as in Flink.

        Example:
            >>> from pathlib import Path
            >>> from millstream.common import WatermarkStrategy
            >>> from millstream.connectors.files.source import FileSource
            >>> _ = Path("words.txt").write_bytes("é".encode("latin-1"))
            >>> latin = StreamFormat.text_line_format("latin-1")
            >>> source = FileSource.for_record_stream_format(latin, "words.txt").build()
            >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "words").execute_and_collect())
            ['é']
        """
        return TextLineFormat(charset_name)

    @property
    def splittable(self) -> bool:
        """Whether reading can start at the first line after any byte."""
        return False

    @property
    def has_range_ends(self) -> bool:
        """Whether `range_end` finds ends of split ranges, although one subtask reads the whole file."""
        return False

    def measure(self, access: FileAccess, file: FileStatus) -> Extent:
        if is_compressed(file.path) or not (self.splittable or self.has_range_ends):
            return Extent(1, max(file.size / BYTES_PER_RECORD, 1.0))
        if not self.splittable:
            return Extent(file.size, 1 / BYTES_PER_RECORD, file.size, file.size)
        return Extent(file.size, 1 / BYTES_PER_RECORD, MIN_SPLIT_BYTES, MAX_SPLIT_BYTES)

    def read(self, access: FileAccess, split_range: FileSplitRange) -> Iterator[Collection[Value]]:
        path, start, end, size = split_range.path, split_range.start, split_range.end, split_range.size
        with access.open(path) as file:
            stream = file
            if is_compressed(path):
                stream, start, end, size = decompressed(path, file), 0, UNKNOWN, UNKNOWN
            elif not (self.splittable or self.has_range_ends):
                start, end = 0, size
            yield from self.read_part(FilePart(access, path, stream, start, end, size, self.bad_records))

    @abstractmethod
    def read_part(self, part: FilePart) -> Iterator[Collection[Value]]:
        """Yield the records of the lines that begin in a part of a file."""


@fast_dataclass
class FilePart:
    """A range of a file's contents: the records that begin in [start, end)."""

    access: FileAccess
    path: str
    file: BinaryIO
    start: int
    end: int
    size: int
    bad: BadRecords = FAIL
    numbers: LineNumbers = field(default_factory=LineNumbers)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of whole lines, each with its position."""
        try:
            yield from line_blocks(self.file, self.start, self.end, self.size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as e:
            raise MillstreamError(
                f"FileSource: {self.path} is damaged or incomplete ({e}); move files into the directory only when they "
                "are complete."
            ) from None

    def damaged(self, offset: int, reason: str, fix: str) -> MillstreamError:
        """Return the error for a malformed record."""
        return MillstreamError(f"FileSource: {self._location(offset)}: {reason}. {fix}")

    def _location(self, offset: int) -> str:
        with self.access.open(self.path) as file:
            number = self.numbers.number_of(decompressed(self.path, file), offset)
        return f"{self.path}, line {number} (byte {offset})"

    def bad_record(self, offset: int, text: str, reason: str) -> BadRecord:
        """Return a malformed record, or raise the error if malformed records fail the job."""
        # Counting lines is expensive, and skipped records do not need the line number.
        location = self._location(offset) if self.bad.fails or self.bad.tag is not None else self.path
        line = text.rstrip("\r\n")
        try:
            line.encode()
        except UnicodeEncodeError:
            return self.bad.handle(BadRecord(location, line.encode(errors="surrogateescape"), reason))
        return self.bad.handle(BadRecord(location, line, reason))


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

    def read_part(self, part: FilePart) -> Iterator[Collection[Value]]:
        if self._bytewise:
            for _, block in part.blocks():
                yield text_lines(block, self._charset)
            return
        # If a newline is more than one byte, as in UTF-16, the file is read from its beginning.
        recoded = cast(BinaryIO, _Recoded(part.file, self._charset))
        for _, block in line_blocks(recoded, 0, UNKNOWN, UNKNOWN):
            yield text_lines(block, "utf-8")


class _Recoded:
    """Converts a stream of text to UTF-8."""

    def __init__(self, file: BinaryIO, charset: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(charset)("replace")

    def read(self, size: int) -> bytes:
        while data := self._file.read(size):
            if text := self._decoder.decode(data):
                return text.encode()
        return self._decoder.decode(b"", final=True).encode()
