"""FileSink: writes files that become visible when they are complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Self, cast
from urllib.parse import unquote, urlsplit

from millstream.common.call_site import warn_deprecated
from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import Encoder, SimpleStringEncoder
from millstream.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types
from millstream.common.unsupported import JAVA, missing_function
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.files.bucket_assigner import BucketAssigner
from millstream.connectors.files.committer import CompactingCommitter, FileCommitter
from millstream.connectors.files.compaction import Compaction, FileCompactor, FileCompactStrategy
from millstream.connectors.files.rolling_policy import OnCheckpointRollingPolicy, OutputFileConfig, RollingPolicy
from millstream.connectors.files.writer import (
    BulkFileWriter,
    BulkWriterFactory,
    FileSinkSettings,
    RowWriter,
    TextWriter,
)
from millstream.operators.functions.context import RuntimeContext
from millstream.runtime_services import wall_clock

__all__ = ["BulkFormatBuilder", "FileSink", "RowFormatBuilder", "StreamingFileSink"]

MakeWriter = Callable[[FileSinkSettings, Callable[[], int]], SinkWriter]


class FileSink(Sink):
    """Writes records into part files in buckets, exactly once.

    A file is hidden while it is written, and renamed when its checkpoint is complete. Every checkpoint closes all
    files; Flink's default rolling policy keeps them open.

    Example:
        >>> from millstream.common import Encoder
        >>> sink = (
        ...     FileSink.for_row_format("/tmp/out", Encoder.simple_string_encoder())
        ...     .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        ...     .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".txt").build())
        ...     .build()
        ... )
    """

    name = "File Sink"

    def __init__(self, settings: FileSinkSettings, make_writer: MakeWriter) -> None:
        self._settings = settings
        self._make_writer = make_writer

    get_transformer = missing_function("get_transformer", JAVA)

    def typed(self, type_info: TypeInformation | None) -> Sink:
        # As in Flink, the declared type formats rows and tuples.
        typed = type_info is not None and not isinstance(type_info, PickledBytesTypeInfo)
        if self._make_writer is not TextWriter or not typed or type_info in (Types.STRING(), Types.INT(), Types.LONG()):
            return self
        assert type_info is not None
        return FileSink(self._settings, partial(TextWriter, show=type_info.format))

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        """Write records with an encoder.

        Args:
            base_path: a directory that all machines share.
            encoder: an Encoder, or any object with `encode(value, stream)`.
        """
        return RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> BulkFormatBuilder:
        """Write whole files, one per bucket, subtask and checkpoint.

        Args:
            base_path: a directory that all machines share.
            writer_factory: a BulkWriterFactory, or any object whose `open(file)` returns something with
                `add_element(value)` and `finish()`.
        """
        return BulkFormatBuilder(base_path, writer_factory)

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return self._make_writer(self._settings, wall_clock)

    def create_committer(self, context: CommitContext) -> Committer:
        settings = self._settings
        if settings.compaction is None:
            return FileCommitter(settings.base, context)
        return CompactingCommitter(settings.base, context, settings.compaction)


class StreamingFileSink(FileSink):
    """The old name of FileSink; `add_sink` takes it as well as `sink_to`."""

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        warn_deprecated("StreamingFileSink", "use FileSink")
        return FileSink.for_row_format(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> BulkFormatBuilder:
        warn_deprecated("StreamingFileSink", "use FileSink")
        return FileSink.for_bulk_format(base_path, writer_factory)


class _FormatBuilder:
    """The settings of a FileSink in any format."""

    def __init__(self, base_path: str | os.PathLike[str], make_writer: MakeWriter, policy: RollingPolicy) -> None:
        self._base = local_path(os.fspath(base_path))
        self._make_writer = make_writer
        self._policy = policy
        self._assigner = BucketAssigner.date_time_bucket_assigner()
        self._names = OutputFileConfig.builder().build()
        self._check_interval = 60_000
        self._compaction: Compaction | None = None

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
        """Merge small files of a bucket into visible files named `compacted-...`.

        The driver merges them; the end of the job merges all pending files. Contents are concatenated, so the result is
        invalid for formats with a header or a footer, such as Parquet.
        """
        if not isinstance(strategy, FileCompactStrategy) or not isinstance(compactor, FileCompactor):
            raise InvalidProgramError(
                f"enable_compact takes a FileCompactStrategy and a FileCompactor, not {strategy!r} and {compactor!r}."
            )
        self._compaction = Compaction(strategy, compactor)
        return self

    def disable_compact(self) -> Self:
        """Write files without compaction, also the pending ones of the restored checkpoint."""
        self._compaction = None
        return self

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Set the minimum milliseconds between two checks of the age of files, at the end of an epoch."""
        if interval <= 0:
            raise InvalidProgramError(f"with_bucket_check_interval: the interval must be above 0, it is {interval}.")
        self._check_interval = interval
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Set the directory of a record; one per hour by default."""
        if not isinstance(bucket_assigner, BucketAssigner):
            raise InvalidProgramError(f"with_bucket_assigner takes a BucketAssigner, not {bucket_assigner!r}.")
        self._assigner = bucket_assigner
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Set the prefix and suffix of part files."""
        self._names = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Set when files are closed between checkpoints."""
        self._policy = rolling_policy
        return self

    def build(self) -> FileSink:
        """Return the sink."""
        settings = FileSinkSettings(
            self._base, self._assigner, self._policy, self._names, self._check_interval, self._compaction
        )
        return FileSink(settings, self._make_writer)


class RowFormatBuilder(_FormatBuilder):
    """Builds a FileSink of rows."""

    def __init__(self, base_path: str | os.PathLike[str], encoder: Encoder) -> None:
        encode = _method(encoder, "encode", "for_row_format takes an Encoder")
        make_writer: MakeWriter = partial(RowWriter, encode=encode)
        if isinstance(encoder, SimpleStringEncoder) and encoder.charset == "utf-8":
            make_writer = TextWriter
        super().__init__(base_path, make_writer, RollingPolicy.default_rolling_policy())


class BulkFormatBuilder(_FormatBuilder):
    """Builds a FileSink of a bulk format."""

    def __init__(self, base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> None:
        open_writer = _method(writer_factory, "open", "for_bulk_format takes a BulkWriterFactory")
        make_writer = partial(BulkFileWriter, open_writer=open_writer)
        super().__init__(base_path, make_writer, RollingPolicy.on_checkpoint_rolling_policy())

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Accept the only policy of bulk formats."""
        if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
            raise InvalidProgramError("A bulk format closes files at checkpoints: use on_checkpoint_rolling_policy().")
        return self


def _method(holder: object, name: str, expected: str) -> Callable[..., Any]:
    method = getattr(holder, name, None)
    if not callable(method) or isinstance(holder, str):
        raise InvalidProgramError(f"FileSink.{expected} or an object with {name}(), not {holder!r}.")
    return cast("Callable[..., Any]", method)


def local_path(path: str) -> str:
    """Return the absolute path of a directory, given as a path or a file: URL."""
    if path.startswith("file:"):
        url = urlsplit(path)
        if url.netloc not in ("", "localhost"):
            raise InvalidProgramError(f"FileSink: {path!r} names the host {url.netloc!r}; write file:///path.")
        path = unquote(url.path)
    elif "://" in path:
        raise InvalidProgramError(
            f"FileSink: {path.partition('://')[0]}:// is not supported yet ({path!r}); use a local path or file://."
        )
    if not path:
        raise InvalidProgramError("FileSink: the base path is empty.")
    return os.path.abspath(path)


# PyFlink nests the builders in the classes.
for _sink in (FileSink, StreamingFileSink):
    _sink.BaseBuilder = _FormatBuilder  # type: ignore[attr-defined]
FileSink.RowFormatBuilder = RowFormatBuilder  # type: ignore[attr-defined]
FileSink.BulkFormatBuilder = BulkFormatBuilder  # type: ignore[attr-defined]
StreamingFileSink.DefaultRowFormatBuilder = RowFormatBuilder  # type: ignore[attr-defined]
StreamingFileSink.DefaultBulkFormatBuilder = BulkFormatBuilder  # type: ignore[attr-defined]
