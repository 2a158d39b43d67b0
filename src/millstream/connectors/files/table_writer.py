"""Writes batches to files of partitions with a FileSink, exactly once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from millstream.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.connectors.files.bucket_assigner import BucketAssigner, BucketContext
from millstream.connectors.files.compaction import FileCompactor, FileCompactStrategy
from millstream.connectors.files.part_files import StagedParts
from millstream.connectors.files.partition_commit import PartitionCommits, PartitionCommitter, Staged
from millstream.connectors.files.rolling_policy import RollingPolicy
from millstream.connectors.files.sink import BulkFormatBuilder, FileSink, RowFormatBuilder
from millstream.formats.base import FileTableFormat, MessageFormat, TableFormat
from millstream.formats.column_text import plain_texts
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FileSplitRange
from millstream.formats.options import Options
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_FILE_SIZE = 128 << 20
_SAFE = " -_.()!~*'@,;&$+"


@dataclass
class _Piece:
    """Rows of one partition.

    Attributes:
        bucket: the directory.
        rows: a batch, or the bytes of its messages.
    """

    bucket: str
    rows: Batch | bytes


class _ByBucket(BucketAssigner):
    def get_bucket_id(self, element: _Piece, context: BucketContext) -> str:
        return element.bucket


class _Messages(Encoder):
    """Writes the messages of pieces, after a header."""

    def __init__(self, header: bytes) -> None:
        self._header = header

    def header(self) -> bytes:
        return self._header

    def encode(self, value: _Piece, stream: BinaryIO) -> None:
        assert isinstance(value.rows, bytes)
        stream.write(value.rows)


class _Files(BulkWriterFactory):
    """Opens files of a format."""

    def __init__(self, table_format: FileTableFormat, fields: Sequence[Field]) -> None:
        self._format = table_format
        self._fields = list(fields)

    def open(self, file: BinaryIO) -> BulkWriter:
        return _Unwrapping(self._format.writer(file, self._fields))

    def batches(self, content: bytes) -> Iterator[Batch]:
        """Yield the batches of a file."""
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(content)
            copy.flush()
            reader, access = self._format.reader(self._fields), FileAccess({})
            units = reader.measure(access, next(iter(access.find(copy.name)))).units
            for batches in reader.read(access, FileSplitRange(0, copy.name, 0, units, len(content), True)):
                yield from batches


class _Unwrapping:
    def __init__(self, inner: BulkWriter) -> None:
        self._inner = inner

    def add_element(self, value: _Piece) -> None:
        self._inner.add_element(value.rows)

    def finish(self) -> None:
        self._inner.finish()


# The state of a FileSink's writer, which differs per format.
_WriterState: TypeAlias = object


class _Writer(SinkWriter):
    """Divides batches by partition and passes them to the writer of a FileSink."""

    keeps_values = False

    def __init__(self, inner: SinkWriter, pieces: Callable[[Batch], Iterator[_Piece]]) -> None:
        self._inner = inner
        self._pieces = pieces

    def begin(self, transaction: str) -> None:
        self._inner.begin(transaction)

    def write(self, value: Batch) -> None:
        for piece in self._pieces(value):
            self._inner.write(piece)

    def prepare_commit(self, flush: bool) -> StagedParts | Staged | None:
        parts: StagedParts | None = self._inner.prepare_commit(flush)
        return parts

    def runtime_snapshot(self) -> _WriterState:
        return self._inner.runtime_snapshot()

    def restore(self, state: _WriterState) -> None:
        self._inner.restore(state)

    def close(self) -> None:
        self._inner.close()


class _PartitionWriter(_Writer):
    """Also reports the watermark to the committer."""

    def __init__(self, inner: SinkWriter, pieces: Callable[[Batch], Iterator[_Piece]], subtasks: int) -> None:
        super().__init__(inner, pieces)
        self._subtasks = subtasks
        self._watermark = MIN_WATERMARK

    def on_watermark(self, watermark: int) -> None:
        self._watermark = watermark

    def prepare_commit(self, flush: bool) -> Staged | None:
        parts = self._inner.prepare_commit(flush)
        return Staged(parts, self._watermark, self._subtasks) if parts is not None or flush else None

    def runtime_snapshot(self) -> tuple[_WriterState, int]:
        return super().runtime_snapshot(), self._watermark

    def restore(self, state: tuple[_WriterState, int]) -> None:  # type: ignore[override]
        inner, self._watermark = state
        super().restore(inner)


class _TableFileSink(Sink[Batch]):
    name = "filesystem"

    def __init__(
        self,
        inner: FileSink,
        base: str,
        table_format: TableFormat,
        fields: Sequence[Field],
        partition: Sequence[str],
        default: str,
        overwrites: bool,
        commits: PartitionCommits | None,
    ) -> None:
        self._inner = inner
        self._base = base
        self._format = table_format
        self._fields = list(fields)
        self._partition = [i for name in partition for i, f in enumerate(fields) if f.name == name]
        self._stored = [i for i in range(len(fields)) if i not in self._partition]
        self._default = default
        self._overwrites = overwrites
        self._commits = commits

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        inner = self._inner.create_writer(context)
        if self._commits is None:
            return _Writer(inner, self._pieces)
        return _PartitionWriter(inner, self._pieces, context.get_number_of_parallel_subtasks())

    def create_committer(self, context: CommitContext) -> Committer:
        committer = self._inner.create_committer(context)
        if self._overwrites:
            committer = _Overwriting(committer, self._base)
        return committer if self._commits is None else PartitionCommitter(committer, self._base, self._commits, context)

    def _pieces(self, batch: Batch) -> Iterator[_Piece]:
        stored = batch.with_columns([batch.columns[i] for i in self._stored])
        for bucket, rows in self._buckets(batch):
            part = stored if rows is None else stored.take(rows)
            yield _Piece(bucket, self._body(part))

    def _buckets(self, batch: Batch) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
        if not self._partition:
            yield "", None
            return
        names = [self._fields[i].name for i in self._partition]
        columns = [plain_texts(batch.columns[i], self._fields[i].type, "SQL") for i in self._partition]
        rows_by_bucket: dict[str, list[int]] = {}
        for row, values in enumerate(zip(*(c or [] for c in columns), strict=True)):
            texts = [self._default if v in (None, "") else quote(v, _SAFE) for v in values]
            bucket = "/".join(f"{n}={v}" for n, v in zip(names, texts, strict=True))
            rows_by_bucket.setdefault(bucket, []).append(row)
        for bucket, rows in rows_by_bucket.items():
            yield bucket, np.array(rows, np.int64)

    def _body(self, batch: Batch) -> Batch | bytes:
        if not isinstance(self._format, MessageFormat):
            return batch
        messages = self._format.encoded(batch, [self._fields[i] for i in self._stored])
        return b"".join(m + b"\n" for m in messages)


class _Overwriting(Committer):
    """Deletes the previous files of the directories that are written."""

    def __init__(self, inner: Committer, base: str) -> None:
        self._inner = inner
        self._base = base
        self._old = {os.path.join(d, f) for d, _, files in os.walk(base) for f in files if not f.startswith(".")}

    def commit(self, committables: list[tuple[int, StagedParts]]) -> None:
        directories = {os.path.dirname(part.final) for _, staged in committables for part in staged.files}
        self._remove(directories)
        self._inner.commit(committables)

    def _remove(self, directories: set[str]) -> None:
        for path in [p for p in self._old if os.path.dirname(p) in directories]:
            self._old.discard(path)
            os.unlink(path)

    def recover(self, committables: list[tuple[int, StagedParts]], former_job_id: str) -> None:
        self._inner.recover(committables, former_job_id)

    def waiting(self) -> list[tuple[int, StagedParts]]:
        return self._inner.waiting()

    def finish(self) -> None:
        # Without partitions, an empty result also replaces the table.
        self._remove({self._base})
        self._inner.finish()

    def close(self) -> None:
        self._inner.close()


class RowsCompactor(FileCompactor):
    """Merges files of rows that begin with the same header."""

    def __init__(self, header: bytes) -> None:
        self._header = header

    def compact(self, files: Iterable[Iterable[bytes]], output: BinaryIO) -> None:
        output.write(self._header)
        for pieces in files:
            first, rest = b"", iter(pieces)
            while len(first) < len(self._header) and (piece := next(rest, b"")):
                first += piece
            output.write(first.removeprefix(self._header))
            output.writelines(rest)


class _Rewriting(FileCompactor):
    """Merges columnar files: reads their batches and writes one file."""

    def __init__(self, files: _Files) -> None:
        self._files = files

    def compact(self, files: Iterable[Iterable[bytes]], output: BinaryIO) -> None:
        writer = self._files.open(output)
        for pieces in files:
            for batch in self._files.batches(b"".join(pieces)):
                writer.add_element(_Piece("", batch))
        writer.finish()


def table_file_sink(
    base: str,
    table_format: TableFormat,
    fields: Sequence[Field],
    partition: Sequence[str],
    default: str,
    options: Options,
    overwrites: bool,
    commits: PartitionCommits | None,
) -> Sink[Batch]:
    """Return a sink of batches that writes files."""
    stored = [f for f in fields if f.name not in partition]
    if not stored:
        raise ValidationException("All columns are partition columns: declare at least one other column.")
    builder: BulkFormatBuilder | RowFormatBuilder
    compactor: FileCompactor
    if isinstance(table_format, FileTableFormat):
        files = _Files(table_format, stored)
        builder, compactor = FileSink.for_bulk_format(base, files), _Rewriting(files)
    else:
        assert isinstance(table_format, MessageFormat)
        line = table_format.file_header(stored)
        header = line + b"\n" if line else b""
        builder = FileSink.for_row_format(base, _Messages(header)).with_rolling_policy(_policy(options))
        compactor = RowsCompactor(header)
    builder = builder.with_bucket_assigner(_ByBucket())
    builder = builder.with_bucket_check_interval(options.duration("sink.rolling-policy.check-interval", 60_000))
    if options.flag("auto-compaction", False):
        size = options.bytes("compaction.file-size", options.bytes("sink.rolling-policy.file-size", _FILE_SIZE))
        strategy = FileCompactStrategy.builder().set_size_threshold(size).enable_compaction_on_checkpoint(1).build()
        builder = builder.enable_compact(strategy, compactor)
    return _TableFileSink(builder.build(), base, table_format, fields, partition, default, overwrites, commits)


def _policy(options: Options) -> RollingPolicy:
    return RollingPolicy.default_rolling_policy(
        options.bytes("sink.rolling-policy.file-size", _FILE_SIZE),
        options.duration("sink.rolling-policy.rollover-interval", 30 * 60_000),
        options.duration("sink.rolling-policy.inactivity-interval", 30 * 60_000),
    )
