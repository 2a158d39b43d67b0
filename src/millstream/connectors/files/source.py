"""The split enumerator of FileSource, on the driver.

Splits are numbered in the order of discovery. Subtask n modulo the parallelism reads split n; a subtask reads one split
after another. Splits are finite, and each has its own watermarks.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections import deque
from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import field, replace
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.tags import tagged
from millstream.common.time import Duration
from millstream.connectors.base import (
    Source,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
    SplitRange,
)
from millstream.connectors.intervals import split_interval
from millstream.formats.file_access import FileAccess, FileStatus, clean_path
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FileSplitRange, StreamFormat

__all__ = ["FileEnumeratorProvider", "FileSource", "FileSourceBuilder", "FileSplitAssignerProvider"]

log = logging.getLogger("millstream")

# Bytes of the digest of a path: a collision among a million files has a probability of 1 in 30 million.
_DIGEST = 8
_NUMBERS = re.compile(r"(\d+)", re.ASCII)


@tagged("file-split")
class FileSplit(NamedTuple):
    """The rest of a split."""

    path: str
    start: int
    end: int
    size: int
    density: float


@tagged("file-position")
class FilePosition(NamedTuple):
    """The position of a FileSource in a checkpoint.

    Attributes:
        next_split: the number of the next split.
        left: the unfinished splits.
        known: the concatenated digests of discovered files.
    """

    next_split: int
    left: dict[int, FileSplit]
    known: bytes


def check_paths(access: FileAccess, paths: tuple[str, ...]) -> None:
    """Raise if a path does not exist."""
    for path in paths:
        try:
            next(access.find(path), None)
        except FileNotFoundError:
            raise InvalidProgramError(
                f"FileSource: there is no file or directory {path}; the driver and all workers must see it."
            ) from None


class FileEnumerator(SplitEnumerator):
    """Assigns ranges of files.

    Args:
        paths: files, or directories to read recursively.
        interval: seconds between two listings; None for one listing at the start.
        splits_files: whether several subtasks may read a file.
    """

    def __init__(
        self,
        access: FileAccess,
        file_format: FileFormat,
        paths: tuple[str, ...],
        interval: float | None,
        splits_files: bool,
        parallelism: int,
        restored: FilePosition | None,
    ) -> None:
        self._access = access
        self._format = file_format
        self._paths = paths
        self._interval = interval
        self._splits_files = splits_files
        self._parallelism = parallelism
        self._queues: list[deque[int]] = [deque() for _ in range(parallelism)]
        self._left: dict[int, FileSplit] = {}
        self._next_split = 0
        self._known: set[bytes] = set()
        self._packed: bytes | None = None
        self._due = -math.inf
        if restored is None:
            check_paths(access, paths)
        else:
            self._restore(restored)
        if interval is None and restored is None:
            self._search()

    def _restore(self, position: FilePosition) -> None:
        self._next_split = position.next_split
        self._left = dict(position.left)
        known = position.known
        self._known = {known[i : i + _DIGEST] for i in range(0, len(known), _DIGEST)}
        for split in sorted(self._left):
            self._queues[split % self._parallelism].append(split)

    # --- discovery

    def _search(self) -> None:
        """Discover new files."""
        try:
            files = {_digest(file.path): file for path in self._paths for file in self._access.find(path)}
        except OSError as e:
            if self._interval is None:
                raise
            log.warning("FileSource: listing files failed, will retry: %s.", e)
            return
        new = [file for digest, file in files.items() if digest not in self._known]
        if self._interval is not None and (new or len(files) < len(self._known)):
            # Deleted files are dropped, so the digests are bounded by the existing files.
            self._known = set(files)
            self._packed = None
        for file in sorted(new, key=self._order):
            self._add(file)

    def _order(self, file: FileStatus) -> tuple[float, list[str | int]]:
        """Order a static set by name, part-2 before part-10, and monitored files by modification time."""
        parts: list[str | int] = [int(p) if i % 2 else p for i, p in enumerate(_NUMBERS.split(file.path))]
        return (0.0 if self._interval is None else file.modified, parts)

    def _add(self, file: FileStatus) -> None:
        if not file.size:
            return
        extent = self._format.measure(self._access, file)
        for start, end in split_interval(0, extent.units, self._parts(extent)):
            if start < end:
                self._left[self._next_split] = FileSplit(file.path, start, end, file.size, extent.density)
                self._queues[self._next_split % self._parallelism].append(self._next_split)
                self._next_split += 1

    def _parts(self, extent: Extent) -> int:
        if not self._splits_files:
            return 1
        even = -(-extent.units // self._parallelism)
        return max(extent.units // min(max(even, extent.min_units), extent.max_units), 1)

    # --- assignment

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self._interval is not None and now >= self._due:
            self._search()
            self._due = now + self._interval
        ranges: dict[int, list[SplitRange]] = {}
        for subtask, queue in enumerate(self._queues):
            if queue:
                ranges[subtask] = self._take(queue, budget)
        return SplitAssignment(ranges, limited=bool(self._left))

    def _take(self, queue: deque[int], budget: float) -> list[SplitRange]:
        """Return ranges of about `budget` records from a subtask's splits."""
        ranges: list[SplitRange] = []
        while queue and budget > 0:
            number = queue[0]
            split = self._left[number]
            end = min(split.start + max(int(budget / split.density), 1), split.end)
            if end < split.end:
                end = self._format.range_end(self._access, split.path, split.start, end, split.end)
            budget -= (end - split.start) * split.density
            ranges.append(FileSplitRange(number, split.path, split.start, end, split.size, end == split.end))
            if end == split.end:
                queue.popleft()
                del self._left[number]
            else:
                self._left[number] = split._replace(start=end)
        return ranges

    def is_finished(self) -> bool:
        return self._interval is None and not self._left

    def next_poll(self, now: float) -> float:
        return now if self._left else max(self._due, now)

    def snapshot(self) -> FilePosition:
        if self._packed is None:
            self._packed = b"".join(sorted(self._known))
        return FilePosition(self._next_split, dict(self._left), self._packed)


def _digest(path: str) -> bytes:
    return blake2b(path.encode(errors="surrogateescape"), digest_size=_DIGEST).digest()


@fast_dataclass
class FileEnumeratorProvider:
    """Says whether several subtasks may read a file. Hidden files (`.name`, `_name`) are never read."""

    splits_files: bool

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Read large files in parallel if their format allows it."""
        return FileEnumeratorProvider(True)

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Read each file in one subtask."""
        return FileEnumeratorProvider(False)


class FileSplitAssignerProvider:
    """Keeps the API of Flink, without effect: splits are always assigned round robin."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Return Flink's assigner; splits are assigned round robin."""
        return FileSplitAssignerProvider()


# Options of file systems, by protocol; each has its own types.
FileSystemOptions: TypeAlias = dict[str, dict[str, Value]]


@fast_dataclass
class _Settings:
    file_format: FileFormat
    paths: tuple[str, ...]
    interval: float | None = None
    splits_files: bool = True
    options: FileSystemOptions = field(default_factory=dict)


class _FileReader(SourceReader):
    def __init__(self, file_format: FileFormat, access: FileAccess) -> None:
        self._format = file_format
        self._access = access

    def read(self, split_range: FileSplitRange) -> Iterator[Collection[Value]]:
        return self._format.read(self._access, split_range)

    def split_of(self, split_range: FileSplitRange) -> int:
        return split_range.split

    def in_turn(self, split_range: FileSplitRange) -> bool:
        return True

    def ends_split(self, split_range: FileSplitRange) -> bool:
        return split_range.ends


class FileSource(Source):
    r"""Reads files, exactly once.

    Paths are local, file: URLs, or any URL that fsspec supports; all workers must have access. A file must be complete
    when it is discovered, and must not change until it has been read.

    Example:
        >>> from pathlib import Path
        >>> from millstream.common import WatermarkStrategy
        >>> _ = Path("words.txt").write_text("to\nbe\n")
        >>> source = (
        ...     FileSource.for_record_stream_format(StreamFormat.text_line_format(), "words.txt")
        ...     .process_static_file_set()
        ...     .set_file_enumerator(FileEnumeratorProvider.default_non_splittable_file_enumerator())
        ...     .build()
        ... )
        >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "words").execute_and_collect())
        ['to', 'be']
    """

    name = "File Source"

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self.produced_type = settings.file_format.produced_type

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str | os.PathLike[str]) -> FileSourceBuilder:
        """Read files of lines or of another stream format.

        Files whose names end in .gz, .gzip, .bz2, .xz, .deflate or .zst are decompressed.

        Args:
            stream_format: such as `StreamFormat.text_line_format()`.
            *paths: files, or directories to read recursively.
        """
        if not isinstance(stream_format, StreamFormat):
            raise InvalidProgramError(f"for_record_stream_format() takes a StreamFormat, not {stream_format!r}.")
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str | os.PathLike[str]) -> FileSourceBuilder:
        """Read files such as Parquet.

        Args:
            bulk_format: such as `ParquetColumnarRowInputFormat`.
            *paths: files, or directories to read recursively.
        """
        if not isinstance(bulk_format, BulkFormat):
            raise InvalidProgramError(f"for_bulk_file_format() takes a BulkFormat, not {bulk_format!r}.")
        return FileSourceBuilder(bulk_format, paths)

    @property
    def is_bounded(self) -> bool:
        return self._settings.interval is None

    def with_storage_options(self, options: FileSystemOptions) -> FileSource:
        """Return the source with options of file systems, by protocol."""
        copied = copy(self)
        copied._settings = replace(self._settings, options=options)
        return copied

    def check(self) -> None:
        check_paths(FileAccess(self._settings.options), self._settings.paths)

    def create_enumerator(self, parallelism: int, restored: FilePosition | None = None) -> SplitEnumerator:
        s = self._settings
        access = FileAccess(s.options)
        return FileEnumerator(access, s.file_format, s.paths, s.interval, s.splits_files, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        tolerant = copy(self._settings.file_format)
        tolerant.bad_records = self.bad_records
        return _FileReader(tolerant, FileAccess(self._settings.options))


class FileSourceBuilder:
    """Builds a FileSource; by default it reads the existing files and ends. See FileSource for an example."""

    def __init__(self, file_format: FileFormat, paths: tuple[str | os.PathLike[str], ...]) -> None:
        if not paths:
            raise InvalidProgramError("FileSource: pass at least one path.")
        self._settings = _Settings(file_format, tuple(clean_path(path) for path in paths))

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Monitor the paths for new files at this interval; the source is then unbounded.

        A file is read once, even if it changes later; a deleted file may reappear under the same name. Move files in
        when they are complete.

        Example:
            >>> from millstream.common import Duration
            >>> builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "input")
            >>> builder.monitor_continuously(Duration.of_seconds(10)).build().is_bounded
            False
        """
        if discovery_interval.to_millis() <= 0:
            raise InvalidProgramError("monitor_continuously() takes an interval of at least one millisecond.")
        self._settings = replace(self._settings, interval=discovery_interval.to_millis() / 1000)
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the existing files, and end; the default."""
        self._settings = replace(self._settings, interval=None)
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Set whether several subtasks may read a file; by default they may if its format allows it."""
        self._settings = replace(self._settings, splits_files=file_enumerator.splits_files)
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Accept Flink's setting, without effect: splits are assigned round robin."""
        return self

    def build(self) -> FileSource:
        """Return the source."""
        return FileSource(self._settings)
