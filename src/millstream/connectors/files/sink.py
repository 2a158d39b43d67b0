"""FileSink and its builders, and its committer, which gives part files their names when their checkpoint is complete.

The writer of a subtask is in `writer.py`.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Self
from urllib.parse import unquote, urlsplit

from millstream.common.aliases import UserCode
from millstream.common.call_site import warn_deprecated
from millstream.common.errors import InvalidProgramError, LostOutputError
from millstream.common.serialization import Encoder, SimpleStringEncoder
from millstream.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types
from millstream.common.unsupported import JAVA, missing_function
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.files.bucket_assigner import BucketAssigner
from millstream.connectors.files.compaction import (
    Compaction,
    FileCompactor,
    FileCompactStrategy,
    Group,
    compact,
    finish_groups,
)
from millstream.connectors.files.part_files import PartFile, StagedParts, sync, sync_directories, transaction_of
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

log = logging.getLogger("millstream")

# Maximum names of finished files in memory.
_MAX_FINISHED = 100_000
# Maximum names of compacted parts in memory: overlapping checkpoints name a part more than once.
_MAX_COMPACTED = 10_000


class FileCommitter(Committer):
    """Renames part files when their checkpoint is complete."""

    def __init__(self, base: str, context: CommitContext) -> None:
        self._base = base
        self._context = context
        # Files finished by this process: users may move them, and a restart may name them again.
        self._finished: dict[str, None] = {}

    def commit(self, committables: list[tuple[int, StagedParts]]) -> None:
        for _, staged in committables:
            for part in staged.files:
                _finish(part)
                self._remember(part)
        sync_directories((part.final for _, staged in committables for part in staged.files), self._base)
        delete_obsolete(committables)

    def recover(self, committables: list[tuple[int, StagedParts]], former_job_id: str) -> None:
        prefixes = (self._context.prefix(former_job_id), self._context.prefix())
        hidden = _hidden_files(self._base)
        # Also if compaction is disabled now: the previous execution may have compacted.
        finish_groups(hidden, (part for _, staged in committables for part in staged.files), prefixes)
        own = former_job_id == self._context.job_id and bool(self._finished)
        self.commit([(subtask, self._without_missing(staged, own)) for subtask, staged in committables])
        retained = self._retained()
        for path in hidden:
            transaction = transaction_of(os.path.basename(path))
            if transaction is not None and transaction.startswith(prefixes) and path not in retained:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def _retained(self) -> set[str]:
        """Return the hidden files that remain in use after the commit."""
        return set()

    def _remember(self, part: PartFile) -> None:
        self._finished[part.final] = None
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]

    def _without_missing(self, staged: StagedParts, own: bool) -> StagedParts:
        """Drop files that were finished earlier and no longer exist.

        Only files of this job and process are known to be finished; for others a missing file is accepted.
        """
        existing = tuple(p for p in staged.files if os.path.exists(p.hidden) or os.path.exists(p.final))
        for part in staged.files:
            if part not in existing:
                if own and not self._is_finished(part):
                    raise lost(part)
                self._log_missing(part)
        return replace(staged, files=existing)

    def _is_finished(self, part: PartFile) -> bool:
        """Return whether the records of a part are in a visible file."""
        return part.final in self._finished

    def _log_missing(self, part: PartFile) -> None:
        log.warning("FileSink: %s no longer exists: it was finished before the restart, and moved.", part.final)


def delete_obsolete(committables: list[tuple[int, StagedParts]]) -> None:
    """Delete hidden files whose contents are in committed files."""
    for _, staged in committables:
        for path in staged.obsolete:
            with suppress(FileNotFoundError):
                os.unlink(path)


def _hidden_files(base: str) -> list[str]:
    return [os.path.join(d, name) for d, _, names in os.walk(base) for name in names if name.startswith(".")]


def _finish(part: PartFile) -> None:
    try:
        size = os.path.getsize(part.hidden)
        if size > part.length:
            # Bytes after the acknowledged length belong to a failed epoch.
            os.truncate(part.hidden, part.length)
            sync(part.hidden)
        if size >= part.length:
            os.rename(part.hidden, part.final)
            return
    except FileNotFoundError:
        # This job or its predecessor has renamed it before; the name is unique.
        with suppress(FileNotFoundError):
            if os.path.getsize(part.final) == part.length:
                return
    raise lost(part)


def lost(part: PartFile) -> LostOutputError:
    """Return the error for a missing or truncated part."""
    return LostOutputError(
        f"FileSink: {part.final} cannot be finished, because neither it nor {part.hidden} has the {part.length} bytes "
        "that were written: the file, or its directory, was deleted or moved under the running job."
    )


class CompactingCommitter(FileCommitter):
    """Retains hidden parts, named by every checkpoint, until there are enough of them for one file."""

    def __init__(self, base: str, context: CommitContext, compaction: Compaction) -> None:
        super().__init__(base, context)
        self._compaction = compaction
        # By final path, in arrival order.
        self._pending: dict[str, PartFile] = {}
        self._compacted: dict[str, None] = {}

    def commit(self, committables: list[tuple[int, StagedParts]]) -> None:
        for part in (p for _, staged in committables for p in staged.files):
            self._add(part)
        delete_obsolete(committables)
        self._compact(self._compaction.due)

    def waiting(self) -> list[tuple[int, StagedParts]]:
        return [(0, StagedParts(tuple(self._pending.values())))] if self._pending else []

    @property
    def wants_checkpoints(self) -> bool:
        return bool(self._pending) and self._compaction.strategy.num_checkpoints is not None

    def finish(self) -> None:
        self._compact(self._compaction.final_groups)

    def recover(self, committables: list[tuple[int, StagedParts]], former_job_id: str) -> None:
        self._pending.clear()
        super().recover(committables, former_job_id)

    def _retained(self) -> set[str]:
        return {part.hidden for part in self._pending.values()}

    def _is_finished(self, part: PartFile) -> bool:
        # A commit that failed later may have compacted a pending part.
        return True

    def _log_missing(self, part: PartFile) -> None:
        log.debug("FileSink: %s was compacted before the restart.", part.final)

    def _add(self, part: PartFile) -> None:
        known = self._pending.get(part.final)
        if known is not None or _is_staged(part, part.final in self._compacted):
            waited = max(part.waited, 0 if known is None else known.waited)
            self._pending[part.final] = replace(part, waited=waited + 1)

    def _compact(self, choose: Callable[[Sequence[PartFile]], list[Group]]) -> None:
        buckets: dict[str, Group] = {}
        for part in self._pending.values():
            buckets.setdefault(os.path.dirname(part.final), []).append(part)
        groups = [group for parts in buckets.values() for group in choose(parts)]
        threads = self._compaction.strategy.num_compact_threads
        if threads == 1 or len(groups) < 2:
            for group in groups:
                self._compact_group(group)
                self._discard(group)
            return
        with ThreadPoolExecutor(threads, "millstream-compact") as pool:
            for group, _ in zip(groups, pool.map(self._compact_group, groups), strict=True):
                self._discard(group)

    def _compact_group(self, group: Group) -> None:
        compact(group, f"{self._context.prefix()}{uuid.uuid4().hex}", self._compaction.compactor)

    def _discard(self, group: Group) -> None:
        for part in group:
            del self._pending[part.final]
            self._compacted[part.final] = None
        while len(self._compacted) > _MAX_COMPACTED:
            del self._compacted[next(iter(self._compacted))]


def _is_staged(part: PartFile, is_compacted: bool) -> bool:
    """Return whether a part exists as a hidden file; False if its records are in a visible file."""
    try:
        if os.path.getsize(part.hidden) >= part.length:
            return True
    except FileNotFoundError:
        if is_compacted:
            return False
        # It was finished alone, before compaction was enabled.
        with suppress(FileNotFoundError):
            if os.path.getsize(part.final) == part.length:
                return False
    raise lost(part)


MakeWriter = Callable[[FileSinkSettings, Callable[[], int]], SinkWriter]


class FileSink(Sink):
    r"""Writes records into part files in buckets, exactly once.

    A file is hidden while it is written, and renamed when its checkpoint is complete. Every checkpoint closes all
    files; Flink's default rolling policy keeps them open.

    Example:
        >>> from pathlib import Path
        >>> from millstream.common import Encoder
        >>> sink = (
        ...     FileSink.for_row_format("out", Encoder.simple_string_encoder())
        ...     .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        ...     .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".txt").build())
        ...     .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1 << 20))
        ...     .with_bucket_check_interval(10_000)
        ...     .build()
        ... )
        >>> _ = env.from_collection(["to", "be"]).sink_to(sink)
        >>> _ = env.execute()
        >>> [path.read_text() for path in Path("out").glob("*.txt")]
        ['to\nbe\n']
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
        """Write records with an encoder, one after another.

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
    """Old name of FileSink; `add_sink` takes it as well as `sink_to`."""

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
        """Merge small files of a bucket into visible files named `compacted-...`; by default they are not merged.

        The driver merges them; the end of the job merges all pending files. Contents are concatenated, so the result is
        invalid for formats with a header or a footer, such as Parquet.

        Example:
            >>> from pathlib import Path
            >>> from millstream.common import Encoder
            >>> builder = FileSink.for_row_format("out", Encoder.simple_string_encoder())
            >>> strategy = FileCompactStrategy.builder().set_size_threshold(1 << 20).build()
            >>> sink = builder.enable_compact(strategy, FileCompactor.concat_file_compactor()).build()
            >>> _ = env.from_collection(["to", "be"]).sink_to(sink)
            >>> _ = env.execute()
            >>> [path.name.startswith("compacted-") for path in Path("out").rglob("*") if path.is_file()]
            [True]
        """
        if not isinstance(strategy, FileCompactStrategy) or not isinstance(compactor, FileCompactor):
            raise InvalidProgramError(
                f"enable_compact takes a FileCompactStrategy and a FileCompactor, not {strategy!r} and {compactor!r}."
            )
        self._compaction = Compaction(strategy, compactor)
        return self

    def disable_compact(self) -> Self:
        """Write files without compaction, the default, also the pending ones of the restored checkpoint."""
        self._compaction = None
        return self

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Set the minimum milliseconds between two checks of the age of files, by default a minute.

        Ages are checked at the end of an epoch.
        """
        if interval <= 0:
            raise InvalidProgramError(f"with_bucket_check_interval: the interval must be above 0, it is {interval}.")
        self._check_interval = interval
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Set the directory of a record, by default one per hour of writing."""
        if not isinstance(bucket_assigner, BucketAssigner):
            raise InvalidProgramError(f"with_bucket_assigner takes a BucketAssigner, not {bucket_assigner!r}.")
        self._assigner = bucket_assigner
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Set the prefix and suffix of part files, by default `part` and none."""
        self._names = output_file_config
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Set when files are closed between checkpoints, by default at 128 MiB, or after a minute."""
        self._policy = rolling_policy
        return self

    def build(self) -> FileSink:
        """Return the sink."""
        settings = FileSinkSettings(
            self._base, self._assigner, self._policy, self._names, self._check_interval, self._compaction
        )
        return FileSink(settings, self._make_writer)


class RowFormatBuilder(_FormatBuilder):
    """Builds a FileSink of rows; see FileSink for an example."""

    def __init__(self, base_path: str | os.PathLike[str], encoder: Encoder) -> None:
        encode = _method(encoder, "encode", "for_row_format takes an Encoder")
        # An encoder may be any object with the method.
        header = encoder.header() if isinstance(encoder, Encoder) else b""
        make_writer: MakeWriter = partial(RowWriter, encode=encode, header=header)
        if isinstance(encoder, SimpleStringEncoder) and encoder.charset == "utf-8":
            make_writer = TextWriter
        super().__init__(base_path, make_writer, RollingPolicy.default_rolling_policy())


class BulkFormatBuilder(_FormatBuilder):
    """Builds a FileSink of a bulk format, such as Parquet.

    Example:
        >>> from pathlib import Path
        >>> from millstream.common.types import Row
        >>> from millstream.datastream.formats.parquet import ParquetBulkWriters
        >>> kind = DataTypes.ROW([DataTypes.FIELD("word", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.INT())])
        >>> sink = FileSink.for_bulk_format("out", ParquetBulkWriters.for_row_type(kind)).build()
        >>> _ = env.from_collection([Row("to", 1)]).sink_to(sink)
        >>> _ = env.execute()
        >>> len(list(Path("out").rglob("part-*")))
        1
    """

    def __init__(self, base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> None:
        open_writer = _method(writer_factory, "open", "for_bulk_format takes a BulkWriterFactory")
        make_writer = partial(BulkFileWriter, open_writer=open_writer)
        super().__init__(base_path, make_writer, RollingPolicy.on_checkpoint_rolling_policy())

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Accept the only policy of bulk formats."""
        if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
            raise InvalidProgramError("A bulk format closes files at checkpoints: use on_checkpoint_rolling_policy().")
        return self


def _method(holder: object, name: str, expected: str) -> UserCode:
    method = getattr(holder, name, None)
    if not callable(method) or isinstance(holder, str):
        raise InvalidProgramError(f"FileSink.{expected} or an object with {name}(), not {holder!r}.")
    return method


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
