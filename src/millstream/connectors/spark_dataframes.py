"""The bridge to Spark: a DataFrame as a source, and each epoch of a stream as a DataFrame."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeAlias, cast

from millstream.common.aliases import Value
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.common.time import Duration
from millstream.common.typeinfo import BasicTypeInfo, RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.connectors.base import (
    CommitContext,
    Committer,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
)
from millstream.connectors.files.source import FilePosition, FileSource
from millstream.formats.arrow_rows import arrow_schema, to_arrow
from millstream.formats.parquet.files import ParquetColumnarRowInputFormat
from millstream.operators.functions.context import RuntimeContext

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.spark.dataframes import DataFrame, StagedQuery

# Receives the rows of an epoch and its number.
EpochFunction: TypeAlias = Callable[["DataFrame", int], object]

# The position of a streaming DataFrame: that of its files, and the batches with assigned files.
_StreamPosition: TypeAlias = tuple[FilePosition, frozenset[str]]
# The transaction of an epoch, and its rows as an Arrow stream.
_EpochRows: TypeAlias = tuple[str, bytes]

# The interval at which new files of a streaming DataFrame are listed.
_INTERVAL_MS = 100


class SparkFrameSource(Source[Row]):
    """The rows of a DataFrame. Spark writes them as Parquet files when the job starts, and subtasks read the files.

    Args:
        frame: a bounded or streaming DataFrame.
        directory: the directory of the files, which all workers share; by default a temporary one on this machine.
    """

    def __init__(self, frame: DataFrame, directory: str | None = None) -> None:
        from millstream.spark.dataframes import row_type

        self.name = "Spark DataFrame"
        self._frame: DataFrame | None = frame
        self._is_streaming = frame.isStreaming
        if directory is None:
            directory = tempfile.mkdtemp(prefix="millstream-frame-")
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        if "://" in directory:
            raise InvalidProgramError(
                f"from_spark(): {directory!r} must be a directory that the driver and all workers share, not a URL."
            )
        self._directory = os.path.abspath(directory)
        self.produced_type = row_type(frame)
        self._staged = os.path.join(self._directory, "batches" if self._is_streaming else "rows")
        builder = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(self.produced_type), self._staged)
        if self._is_streaming:
            builder.monitor_continuously(Duration.of_millis(_INTERVAL_MS))
        self._files = builder.build()

    def __getstate__(self) -> dict[str, object]:
        # Only the driver uses the frame; workers read files.
        return {**self.__dict__, "_frame": None}

    @property
    def is_bounded(self) -> bool:
        return not self._is_streaming

    def create_enumerator(
        self, parallelism: int, restored: FilePosition | _StreamPosition | None = None
    ) -> SplitEnumerator:
        from millstream.spark.dataframes import StagedQuery, delete_staged, stage

        assert self._frame is not None
        if restored is None:
            for part in ("rows", "batches", "query"):
                delete_staged(os.path.join(self._directory, part))
        elif not os.path.exists(self._staged):
            raise JobExecutionError(
                f"from_spark(): the checkpoint's rows of the DataFrame are no longer in {self._staged}: use a "
                "permanent directory with from_spark(frame, directory)."
            )
        if self._is_streaming:
            query = StagedQuery(self._frame, self._directory)
            position, assigned = (None, frozenset[str]()) if restored is None else cast("_StreamPosition", restored)
            return _StreamingEnumerator(self._files.create_enumerator(parallelism, position), query, assigned)
        stage(self._frame, self._staged)
        return self._files.create_enumerator(parallelism, cast("FilePosition | None", restored))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return self._files.create_reader(subtask, parallelism)

    def subtask_of(self, split: int, parallelism: int) -> int:
        return self._files.subtask_of(split, parallelism)


class _StreamingEnumerator(SplitEnumerator):
    """Assigns the files of a query's batches, and deletes batches that a checkpoint contains completely."""

    def __init__(self, files: SplitEnumerator, query: StagedQuery, assigned: Collection[str]) -> None:
        self._files = files
        self._query = query
        # The batches with assigned files.
        self._assigned = set(assigned)

    def poll(self, budget: int, now: float) -> SplitAssignment:
        self._query.check()
        assignment = self._files.poll(budget, now)
        self._assigned |= {os.path.dirname(r.path) for ranges in assignment.split_ranges.values() for r in ranges}
        return assignment

    def next_poll(self, now: float) -> float | None:
        return self._files.next_poll(now)

    def snapshot(self) -> _StreamPosition:
        return self._files.snapshot(), frozenset(self._assigned)

    def committed(self, snapshot: _StreamPosition) -> None:
        from millstream.spark.dataframes import delete_staged

        position, assigned = snapshot
        read = assigned - {os.path.dirname(split.path) for split in position.left.values()}
        for batch in read & self._assigned:
            delete_staged(batch)
        self._assigned -= read

    def close(self) -> None:
        self._query.stop()


class _Writer(SinkWriter):
    """Buffers an epoch's rows, and encodes them as Arrow columns."""

    def __init__(self, row_type: RowTypeInfo, is_single: bool) -> None:
        self._schema = arrow_schema(row_type, "Spark")
        self._convert = to_arrow(row_type)
        self._is_single = is_single
        self._rows: list[Value] = []
        self._transaction = ""

    def begin(self, transaction: str) -> None:
        self._transaction = transaction
        # Discards the rows of a failed epoch.
        self._rows.clear()

    def write(self, value: Value) -> None:
        self._rows.append(value)

    def prepare_commit(self, flush: bool) -> _EpochRows | None:
        import pyarrow as pa

        if not self._rows:
            return None
        assert self._convert is not None
        rows = [self._convert((row,) if self._is_single else row) for row in self._rows]
        self._rows.clear()
        table = pa.Table.from_pylist(rows, self._schema)
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self._schema) as stream:
            stream.write_table(table)
        return self._transaction, out.getvalue().to_pybytes()


class _Committer(Committer):
    """Passes epochs to the function in order. A repeated epoch has the same number."""

    def __init__(self, function: EpochFunction, config: Configuration) -> None:
        self._function = function
        self._config = config
        # The last epoch that this driver passed to the function.
        self._last = -1

    def commit(self, committables: list[tuple[int, _EpochRows]]) -> None:
        import pyarrow as pa

        from millstream.spark.dataframes import frame_of

        epochs: dict[int, list[pa.Table]] = {}
        for _, (transaction, data) in committables:
            epochs.setdefault(_epoch_of(transaction), []).append(pa.ipc.open_stream(data).read_all())
        for epoch in sorted(e for e in epochs if e > self._last):
            self._function(frame_of(self._config, epochs[epoch]), epoch)
            self._last = epoch

    def recover(self, committables: list[tuple[int, _EpochRows]], former_job_id: str) -> None:
        super().recover(committables, former_job_id)
        # Epochs after the checkpoint are repeated; without a checkpoint, all are.
        self._last = -1


def _epoch_of(transaction: str) -> int:
    """Return the epoch of a transaction, from its name: job, operator, subtask, epoch, attempt."""
    return int(transaction.split("-")[3])


class SparkFunctionSink(Sink[Value]):
    """Passes each epoch's rows as a DataFrame to a function on the driver."""

    name = "Spark Function"

    def __init__(
        self, function: EpochFunction, config: Configuration, type_info: TypeInformation | None = None
    ) -> None:
        self._function: EpochFunction | None = function
        self._config = config
        self._type = type_info

    def __getstate__(self) -> dict[str, object]:
        # Only the driver calls the function; workers only write.
        return {**self.__dict__, "_function": None}

    def typed(self, type_info: TypeInformation | None) -> SparkFunctionSink:
        if not isinstance(type_info, (RowTypeInfo, BasicTypeInfo)):
            raise InvalidProgramError(
                "to_spark(): the DataFrame needs the types of the stream's fields: declare them, for example with "
                "map(f, output_type=Types.ROW_NAMED(['name', 'n'], [Types.STRING(), Types.LONG()]))."
            )
        assert self._function is not None
        return SparkFunctionSink(self._function, self._config, type_info)

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        if isinstance(self._type, RowTypeInfo):
            return _Writer(self._type, is_single=False)
        assert self._type is not None
        return _Writer(RowTypeInfo([self._type], ["value"]), is_single=True)

    def create_committer(self, context: CommitContext) -> Committer:
        assert self._function is not None
        return _Committer(self._function, self._config)
