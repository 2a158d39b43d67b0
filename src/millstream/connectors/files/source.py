"""FileSource: reads a static set of files, or monitors a directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import field, replace
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import record
from millstream.common.time import Duration
from millstream.connectors.base import Source, SourceReader, SplitEnumerator
from millstream.connectors.files.enumerator import FileEnumerator, check_paths, position_of
from millstream.formats.file_access import FileAccess, clean_path
from millstream.formats.file_format import BulkFormat, FileFormat, FileShare, StreamFormat

__all__ = ["FileEnumeratorProvider", "FileSource", "FileSourceBuilder", "FileSplitAssignerProvider"]


@record
class FileEnumeratorProvider:
    """Whether several subtasks may read a file. Hidden files (`.name`, `_name`) are never read."""

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
    """Accepted for compatibility with Flink: splits are always assigned round robin."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Return Flink's assigner; splits are assigned round robin."""
        return FileSplitAssignerProvider()


@record
class _Settings:
    file_format: FileFormat
    paths: tuple[str, ...]
    interval: float | None = None
    splits_files: bool = True
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


class _FileReader(SourceReader):
    def __init__(self, file_format: FileFormat, access: FileAccess) -> None:
        self._format = file_format
        self._access = access

    def read(self, share: FileShare) -> Iterator[Collection[Any]]:
        return self._format.read(self._access, share)

    def split_of(self, share: FileShare) -> int:
        return share.split

    def in_turn(self, share: FileShare) -> bool:
        return True

    def ends_split(self, share: FileShare) -> bool:
        return share.ends


class FileSource(Source):
    """Reads files, exactly once.

    Paths are local, file: URLs, or any URL that fsspec supports; all workers must have access. A file must be complete
    when it is discovered, and must not change until it has been read.

    Example:
        >>> import pathlib, tempfile
        >>> from millstream.common import WatermarkStrategy
        >>> file = pathlib.Path(tempfile.mkdtemp(), "words.txt")
        >>> _ = file.write_text("to\\nbe\\n")
        >>> source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(file)).build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_source(source, WatermarkStrategy.no_watermarks(), "words")
        >>> list(words.execute_and_collect())
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

    def reached_with(self, options: dict[str, dict[str, Any]]) -> FileSource:
        """Return the source with options of file systems, by protocol."""
        copied = copy(self)
        copied._settings = replace(self._settings, options=options)
        return copied

    def check(self) -> None:
        check_paths(FileAccess(self._settings.options), self._settings.paths)

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        s = self._settings
        position = position_of(restored)
        access = FileAccess(s.options)
        return FileEnumerator(access, s.file_format, s.paths, s.interval, s.splits_files, parallelism, position)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        tolerant = copy(self._settings.file_format)
        tolerant.bad_records = self.bad_records
        return _FileReader(tolerant, FileAccess(self._settings.options))


class FileSourceBuilder:
    """Builds a FileSource; by default it reads the existing files and ends."""

    def __init__(self, file_format: FileFormat, paths: tuple[str | os.PathLike[str], ...]) -> None:
        if not paths:
            raise InvalidProgramError("FileSource: pass at least one path.")
        self._settings = _Settings(file_format, tuple(clean_path(path) for path in paths))

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Monitor the paths for new files at this interval.

        A file is read once, even if it changes later; a deleted file may reappear under the same name. Move files in
        when they are complete.
        """
        if discovery_interval.to_millis() <= 0:
            raise InvalidProgramError("monitor_continuously() needs an interval of at least a millisecond.")
        self._settings = replace(self._settings, interval=discovery_interval.to_millis() / 1000)
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the existing files, and end."""
        self._settings = replace(self._settings, interval=None)
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Set whether several subtasks may read a file."""
        self._settings = replace(self._settings, splits_files=file_enumerator.splits_files)
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Accept Flink's setting, without effect: splits are assigned round robin."""
        return self

    def build(self) -> FileSource:
        """Return the source."""
        return FileSource(self._settings)
