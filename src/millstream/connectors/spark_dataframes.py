"""The bridge to Spark: a DataFrame as a source, and every epoch of a stream as a DataFrame."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

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
    from millstream.spark.dataframes import DataFrame, StagedQuery

# What is done with an epoch: given the rows and the number of the epoch.
EpochFunction = Callable[["DataFrame", int], object]

# How often to look for what a streaming DataFrame has brought.
_INTERVAL_MS = 100


class SparkFrameSource(Source[Row]):
    """The rows of a DataFrame, which Spark writes as Parquet files when the job starts and subtasks read.

    Args:
        frame: bounded or streaming.
        directory: where the files go, seen by all workers; without it a temporary one on this machine.
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
                f"from_spark(): {directory!r} must be a directory that this machine and all workers see, not a URL."
            )
        self._directory = os.path.abspath(directory)
        self.produced_type = row_type(frame)
        self._staged = os.path.join(self._directory, "batches" if self._is_streaming else "rows")
        builder = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(self.produced_type), self._staged)
        if self._is_streaming:
            builder.monitor_continuously(Duration.of_millis(_INTERVAL_MS))
        self._files = builder.build()

    def __getstate__(self) -> dict[str, Any]:
        # The frame belongs to the driver; workers read files.
        return {**self.__dict__, "_frame": None}

    @property
    def is_bounded(self) -> bool:
        return not self._is_streaming

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        from millstream.spark.dataframes import StagedQuery, delete_staged, stage

        assert self._frame is not None
        if restored is None:
            for part in ("rows", "batches", "query"):
                delete_staged(os.path.join(self._directory, part))
        elif not os.path.exists(self._staged):
            raise JobExecutionError(
                f"from_spark(): the rows of the DataFrame are not in {self._staged}, where the checkpoint has them: "
                "give from_spark(frame, directory) a directory that stays."
            )
        if self._is_streaming:
            query = StagedQuery(self._frame, self._directory)
            position, dealt = (None, ()) if restored is None else restored
            return _StreamingEnumerator(self._files.create_enumerator(parallelism, position), query, dealt)
        stage(self._frame, self._staged)
        return self._files.create_enumerator(parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return self._files.create_reader(subtask, parallelism)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return self._files.subtask_of(split, parallelism)


class _StreamingEnumerator(SplitEnumerator):
    """Deals out the files of a query's batches, and deletes those that are read for good."""

    def __init__(self, files: SplitEnumerator, query: StagedQuery, dealt: Collection[str]) -> None:
        self._files = files
        self._query = query
        # The batches of which something was dealt out.
        self._dealt = set(dealt)

    def poll(self, budget: int, now: float) -> SplitAssignment:
        self._query.check()
        dealt = self._files.poll(budget, now)
        self._dealt |= {os.path.dirname(share.path) for shares in dealt.split_ranges.values() for share in shares}
        return dealt

    def next_poll(self, now: float) -> float | None:
        return self._files.next_poll(now)

    def snapshot(self) -> Any:
        return self._files.snapshot(), frozenset(self._dealt)

    def committed(self, snapshot: Any) -> None:
        from millstream.spark.dataframes import delete_staged

        position, dealt = snapshot
        assert isinstance(position, FilePosition)
        read = dealt - {os.path.dirname(split.path) for split in position.left.values()}
        for batch in read & self._dealt:
            delete_staged(batch)
        self._dealt -= read

    def close(self) -> None:
        self._query.stop()


class _Writer(SinkWriter):
    """Keeps an epoch's rows, which leave as columns."""

    def __init__(self, row_type: RowTypeInfo, is_single: bool) -> None:
        self._schema = arrow_schema(row_type, "Spark")
        self._convert = to_arrow(row_type)
        self._is_single = is_single
        self._rows: list[Any] = []
        self._transaction = ""

    def begin(self, transaction: str) -> None:
        self._transaction = transaction
        # What an epoch that failed has left.
        self._rows.clear()

    def write(self, value: Any) -> None:
        self._rows.append(value)

    def prepare_commit(self, flush: bool) -> tuple[str, bytes] | None:
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
    """Hands over one epoch after the other. What comes again has the number it had."""

    def __init__(self, function: EpochFunction, config: Configuration) -> None:
        self._function = function
        self._config = config
        # The last epoch that was handed over by this driver.
        self._last = -1

    def commit(self, committables: list[tuple[int, tuple[str, bytes]]]) -> None:
        import pyarrow as pa

        from millstream.spark.dataframes import frame_of

        epochs: dict[int, list[Any]] = {}
        for _, (transaction, data) in committables:
            epochs.setdefault(_epoch_of(transaction), []).append(pa.ipc.open_stream(data).read_all())
        for epoch in sorted(e for e in epochs if e > self._last):
            self._function(frame_of(self._config, epochs[epoch]), epoch)
            self._last = epoch

    def recover(self, committables: list[tuple[int, Any]], former_job_id: str) -> None:
        super().recover(committables, former_job_id)
        # Epochs behind the checkpoint were handed to nobody; where there is none, all of them come again.
        self._last = -1


def _epoch_of(transaction: str) -> int:
    """Return the number of the epoch, which is in the transaction's name: job, operator, subtask, epoch, attempt."""
    return int(transaction.split("-")[3])


class SparkFunctionSink(Sink[Any]):
    """Hands every epoch's rows as a DataFrame to a function, on the driver."""

    name = "Spark Function"

    def __init__(
        self, function: EpochFunction, config: Configuration, type_info: TypeInformation | None = None
    ) -> None:
        self._function: EpochFunction | None = function
        self._config = config
        self._type = type_info

    def __getstate__(self) -> dict[str, Any]:
        # The function belongs to the driver; the workers' copy only writes.
        return {**self.__dict__, "_function": None}

    def typed(self, type_info: TypeInformation | None) -> SparkFunctionSink:
        if not isinstance(type_info, (RowTypeInfo, BasicTypeInfo)):
            raise InvalidProgramError(
                "to_spark(): the columns of the DataFrame are the fields of the stream's rows: declare them, for "
                "example map(f, output_type=Types.ROW_NAMED(['name', 'n'], [Types.STRING(), Types.LONG()]))."
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
