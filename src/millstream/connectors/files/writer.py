"""The writers of FileSink: rows, lines of text, and bulk formats.

They write hidden part files, and stage them at the end of an epoch; the committer in `sink.py` makes them visible.
"""

from __future__ import annotations

import io
import os
import pickle
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.common.pickles import dump
from millstream.common.serialization import BulkWriter, BulkWriterFactory, SimpleStringEncoder
from millstream.connectors.base import SinkWriter
from millstream.connectors.files import part_files
from millstream.connectors.files.bucket_assigner import BucketAssigner, BucketContext
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.part_files import PartFile, StagedParts
from millstream.connectors.files.rolling_policy import OutputFileConfig, RollingPolicy
from millstream.operators.diagnostics.failures import shorten

__all__ = ["BulkWriter", "BulkWriterFactory"]

# Buffered bytes per file; the end of an epoch also writes the buffer.
BUFFER_BYTES = 1 << 18
# Lines per encoded chunk; the size of a file is checked after each chunk.
LINES = 128

# A bucket: any hashable value of the assigner; its text is the path.
Bucket: TypeAlias = Value

# No current bucket; assigners never return it.
_NO_BUCKET = object()


@dataclass(frozen=True)
class FileSinkSettings:
    """The settings of a FileSink.

    Attributes:
        base: the directory, as an absolute path.
        check_interval: minimum milliseconds between two checks of the age of files.
        compaction: how small files are merged, or None.
    """

    base: str
    assigner: BucketAssigner
    policy: RollingPolicy
    names: OutputFileConfig
    check_interval: int
    compaction: Compaction | None = None


class FileWriter(SinkWriter):
    """Assigns records to buckets, names files, and restores acknowledged files.

    Its snapshot is the hidden files with their acknowledged lengths. A restored writer reads these files and does not
    change them, because the previous writer may still run.
    """

    def __init__(self, settings: FileSinkSettings, clock: Callable[[], int]) -> None:
        self._settings = settings
        self._clock = clock
        self._assigner = settings.assigner
        self._by_element = settings.assigner.by_element
        self._context = BucketContext(clock)
        self._bucket: Bucket = _NO_BUCKET
        self._id = str(uuid.uuid4())
        self._files = 0
        self._transaction = ""
        self._in_epoch = False
        # The unfinished files at the end of the last successful epoch.
        self._retained: tuple[PartFile, ...] = ()

    def begin(self, transaction: str) -> None:
        if self._in_epoch:
            # The previous epoch failed: discard its output.
            self.restore(self._retained)
        self._transaction = transaction
        self._in_epoch = True
        self._update_bucket()

    def prepare_commit(self, flush: bool) -> StagedParts | None:
        staged = self._stage(flush)
        part_files.sync_directories((part.hidden for part in staged.files), self._settings.base)
        self._retained = self._unfinished()
        self._in_epoch = False
        return staged if staged.files or staged.obsolete else None

    def runtime_snapshot(self) -> tuple[PartFile, ...] | None:
        return self._retained or None

    def restore(self, retained: tuple[PartFile, ...] | None) -> None:
        self._retained = retained or ()
        self._in_epoch = False
        self._leave_bucket()
        self._reset(self._retained)

    @abstractmethod
    def _stage(self, flush: bool) -> StagedParts:
        """Write the records of the epoch; return the closed files."""

    @abstractmethod
    def _unfinished(self) -> tuple[PartFile, ...]:
        """Return the hidden files that are not staged."""

    @abstractmethod
    def _reset(self, retained: tuple[PartFile, ...]) -> None:
        """Discard everything except the restored files."""

    @abstractmethod
    def _select(self, bucket: Bucket) -> None:
        """Make a bucket current."""

    def _leave_bucket(self) -> None:
        """Clear the current bucket."""
        self._bucket = _NO_BUCKET

    def _update_bucket(self) -> None:
        if not self._by_element:
            self._select(self._assigner.get_bucket_id(None, self._context))

    def _directory(self, bucket: Bucket) -> str:
        name = str(bucket)
        if name.startswith("/") or ".." in name.split("/"):
            raise MillstreamError(f"FileSink: the bucket {name!r} is not a directory below {self._settings.base}.")
        return os.path.join(self._settings.base, name) if name else self._settings.base

    def _new_part(self, directory: str) -> PartFile:
        """Return a new part with a unique name."""
        names = self._settings.names
        name = f"{names.get_part_prefix()}-{self._id}-{self._files}{names.get_part_suffix()}"
        self._files += 1
        hidden = part_files.hidden_path(directory, name, self._transaction)
        return PartFile(hidden, os.path.join(directory, name), 0)


class _OpenPart:
    """The open part of a bucket: its hidden file, if created, and its buffer."""

    __slots__ = ("created", "file", "limit", "lines", "modified", "size", "stream")

    def __init__(self, limit: int) -> None:
        self.lines: list[str] = []
        self.stream = io.BytesIO()
        # Maximum bytes in the buffer.
        self.limit = limit
        self.file: PartFile | None = None
        self.size = 0
        self.created = 0
        self.modified = 0


class RowWriter(FileWriter):
    """Writes records with an encoder.

    A file grows over epochs until the rolling policy or a checkpoint closes it.
    """

    # Records are encoded immediately.
    keeps_values = False

    def __init__(
        self,
        settings: FileSinkSettings,
        clock: Callable[[], int],
        encode: Callable[[Value, BinaryIO], object],
        header: bytes = b"",
    ) -> None:
        super().__init__(settings, clock)
        self._encode = encode
        self._header = header
        self._policy = settings.policy
        self._limit = min(BUFFER_BYTES, self._policy.part_size or BUFFER_BYTES)
        self._checked = clock()
        self._parts: dict[Bucket, _OpenPart] = {}
        self._part = _OpenPart(self._limit)
        self._closed: list[PartFile] = []
        self._restored: tuple[PartFile, ...] = ()

    def write(self, value: Value) -> None:
        if self._by_element:
            self._select(self._assigner.get_bucket_id(value, self._context))
        part = self._part
        self._encode(value, part.stream)
        if part.stream.tell() >= part.limit:
            self._flush_buffer(part)

    def _select(self, bucket: Bucket) -> None:
        if bucket == self._bucket:
            return
        part = self._parts.get(bucket)
        if part is None:
            part = self._parts[bucket] = _OpenPart(self._limit)
        self._bucket, self._part = bucket, part

    def _flush_buffer(self, part: _OpenPart) -> None:
        """Write a full buffer, and close the file if it is full too."""
        bucket = self._bucket
        self._append(bucket, part)
        if self._policy.is_full(part.size):
            self._close(bucket, part)
        self._update_bucket()

    def _append(self, bucket: Bucket, part: _OpenPart) -> None:
        data = part.stream.getvalue()
        if not data:
            return
        part.modified = self._clock()
        if part.file is None:
            part.file = self._new_part(self._directory(bucket))
            part.created = part.modified
            part_files.create(part.file.hidden)
            data = self._header + data
        part_files.append(part.file.hidden, data)
        part.size += len(data)
        part.stream.seek(0)
        part.stream.truncate()
        if self._policy.part_size is not None:
            part.limit = min(self._limit, self._policy.part_size - part.size)

    def _close(self, bucket: Bucket, part: _OpenPart) -> None:
        del self._parts[bucket]
        if self._bucket == bucket:
            self._leave_bucket()
        if part.file is not None:
            part_files.sync(part.file.hidden)
            self._closed.append(PartFile(part.file.hidden, part.file.final, part.size))

    def _stage(self, flush: bool) -> StagedParts:
        for bucket, part in self._parts.items():
            self._append(bucket, part)
        now = self._clock()
        checks_age = now - self._checked >= self._settings.check_interval
        if checks_age:
            self._checked = now
        for bucket, part in list(self._parts.items()):
            due = checks_age and self._policy.is_due(part.created, part.modified, now)
            if flush or part.file is None or due or self._policy.is_full(part.size):
                self._close(bucket, part)
        staged = StagedParts((*self._copies(), *self._closed), tuple(part.hidden for part in self._restored))
        self._closed.clear()
        self._restored = ()
        return staged

    def _copies(self) -> list[PartFile]:
        """Copy files that the previous writer had not closed."""
        copies = []
        for old in self._restored:
            new = self._new_part(os.path.dirname(old.final))
            part_files.copy_start(old.hidden, old.length, new.hidden)
            part_files.sync(new.hidden)
            copies.append(PartFile(new.hidden, new.final, old.length))
        return copies

    def _unfinished(self) -> tuple[PartFile, ...]:
        open_files = ((part.file, part.size) for part in self._parts.values() if part.file is not None)
        return tuple(PartFile(file.hidden, file.final, size) for file, size in open_files)

    def _reset(self, retained: tuple[PartFile, ...]) -> None:
        self._parts.clear()
        self._closed.clear()
        self._restored = retained


class TextWriter(RowWriter):
    """Writes lines of UTF-8 text; encoding many lines at once saves a third of the work."""

    def __init__(
        self, settings: FileSinkSettings, clock: Callable[[], int], show: Callable[[Value], str] | None = None
    ) -> None:
        """Create a writer.

        Args:
            settings: the settings of the sink.
            clock: the wall clock.
            show: formats a value by its declared type; Python's str by default.
        """
        super().__init__(settings, clock, SimpleStringEncoder().encode)
        self._show = show

    def write(self, value: Value) -> None:
        if self._by_element:
            self._select(self._assigner.get_bucket_id(value, self._context))
        lines = self._part.lines
        lines.append(f"{value}\n" if self._show is None else f"{self._show(value)}\n")
        if len(lines) >= LINES:
            part = self._part
            self._encode_lines(part)
            if part.stream.tell() >= part.limit:
                self._flush_buffer(part)

    def _append(self, bucket: Bucket, part: _OpenPart) -> None:
        self._encode_lines(part)
        super()._append(bucket, part)

    def _encode_lines(self, part: _OpenPart) -> None:
        part.stream.write("".join(part.lines).encode())
        part.lines.clear()


# Maximum records per bucket in memory.
BATCH = 4096


class BulkFileWriter(FileWriter):
    """Writes a file for each bucket at every checkpoint.

    An unfinished file of a bulk format is unreadable, so records between two checkpoints are stored in a spool: a
    hidden file of pickled batches that any process can read.
    """

    def __init__(
        self, settings: FileSinkSettings, clock: Callable[[], int], open_writer: Callable[[BinaryIO], BulkWriter]
    ) -> None:
        super().__init__(settings, clock)
        self._open_writer = open_writer
        self._batches: dict[Bucket, list[Value]] = {}
        self._values: list[Value] = []
        # The spools of previous writers, and the own spool with its length.
        self._restored: tuple[PartFile, ...] = ()
        self._spool: PartFile | None = None
        self._spooled = 0

    def write(self, value: Value) -> None:
        if self._by_element:
            self._select(self._assigner.get_bucket_id(value, self._context))
        values = self._values
        values.append(value)
        if len(values) >= BATCH:
            self._flush_buffer()

    def _select(self, bucket: Bucket) -> None:
        if bucket != self._bucket:
            self._bucket = bucket
            self._values = self._batches.setdefault(bucket, [])

    def _flush_buffer(self) -> None:
        """Append the records in memory to the spool."""
        data = b"".join(dump((bucket, values)) for bucket, values in self._batches.items() if values)
        if data:
            if self._spool is None:
                self._spool = self._new_part(self._settings.base)
                part_files.create(self._spool.hidden)
            part_files.append(self._spool.hidden, data)
            self._spooled += len(data)
        self._clear_batches()
        self._update_bucket()

    def _stage(self, flush: bool) -> StagedParts:
        if not flush:
            self._flush_buffer()
            return StagedParts(())
        spools = self._unfinished()
        staged = StagedParts(self._write_files(self._all_batches(spools)), tuple(spool.hidden for spool in spools))
        self._reset(())
        return staged

    def _all_batches(self, spools: Iterable[PartFile]) -> Iterator[tuple[Bucket, list[Value]]]:
        for spool in spools:
            with part_files.open_start(spool.hidden, spool.length) as file:
                while file.tell() < spool.length:
                    yield pickle.load(file)
        yield from self._batches.items()

    def _write_files(self, batches: Iterable[tuple[Bucket, list[Value]]]) -> tuple[PartFile, ...]:
        parts: dict[Bucket, PartFile] = {}
        writers: dict[Bucket, BulkWriter] = {}
        with ExitStack() as files:
            for bucket, values in batches:
                if values and bucket not in parts:
                    part = parts[bucket] = self._new_part(self._directory(bucket))
                    part_files.create(part.hidden)
                    writers[bucket] = self._open_writer(files.enter_context(open(part.hidden, "r+b")))
                for value in values:
                    _add(writers[bucket], value)
            for writer in writers.values():
                writer.finish()
        return tuple(_closed(part) for part in parts.values())

    def _unfinished(self) -> tuple[PartFile, ...]:
        if self._spool is None:
            return self._restored
        return (*self._restored, PartFile(self._spool.hidden, self._spool.final, self._spooled))

    def _reset(self, retained: tuple[PartFile, ...]) -> None:
        self._restored = retained
        self._spool = None
        self._spooled = 0
        self._clear_batches()

    def _clear_batches(self) -> None:
        self._batches = {}
        self._values = []
        self._leave_bucket()


def _add(writer: BulkWriter, value: Value) -> None:
    try:
        writer.add_element(value)
    except Exception as e:
        raise MillstreamError(f"FileSink: record {shorten(value)} could not be written: {e!r}.") from e


def _closed(part: PartFile) -> PartFile:
    part_files.sync(part.hidden)
    return PartFile(part.hidden, part.final, os.path.getsize(part.hidden))
