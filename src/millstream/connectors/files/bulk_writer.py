"""Bulk formats of FileSink: files that must be written as a whole, such as Parquet."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

from millstream.common.errors import MillstreamError
from millstream.common.pickles import dump
from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.connectors.files import part_files
from millstream.connectors.files.part_files import PartFile, StagedParts
from millstream.connectors.files.writer import FileSinkSettings, FileWriter
from millstream.operators.diagnostics.failures import shorten

__all__ = ["BulkWriter", "BulkWriterFactory"]

# So many records of a bucket are kept in memory.
BATCH = 4096


class BulkFileWriter(FileWriter):
    """Writes a file for each bucket at every checkpoint.

    A file of a bulk format is worth nothing until it is finished, so between two checkpoints records wait in a spool: a
    hidden file of pickled batches that any process can read.
    """

    def __init__(
        self, settings: FileSinkSettings, clock: Callable[[], int], open_writer: Callable[[BinaryIO], BulkWriter]
    ) -> None:
        super().__init__(settings, clock)
        self._open_writer = open_writer
        self._batches: dict[Any, list[Any]] = {}
        self._values: list[Any] = []
        # The spools of those before us, and our own with how long it is.
        self._before: tuple[PartFile, ...] = ()
        self._spool: PartFile | None = None
        self._spooled = 0

    def write(self, value: Any) -> None:
        if self._by_element:
            self._turn_to(self._assigner.get_bucket_id(value, self._context))
        values = self._values
        values.append(value)
        if len(values) >= BATCH:
            self._write_out()

    def _turn_to(self, bucket: Any) -> None:
        if bucket != self._bucket:
            self._bucket = bucket
            self._values = self._batches.setdefault(bucket, [])

    def _write_out(self) -> None:
        """Put what is in memory into the spool."""
        data = b"".join(dump((bucket, values)) for bucket, values in self._batches.items() if values)
        if data:
            if self._spool is None:
                self._spool = self._new_part(self._settings.base)
                part_files.create(self._spool.hidden)
            part_files.append(self._spool.hidden, data)
            self._spooled += len(data)
        self._forget_batches()
        self._look_at_clock()

    def _stage(self, flush: bool) -> StagedParts:
        if not flush:
            self._write_out()
            return StagedParts(())
        spools = self._unfinished()
        staged = StagedParts(self._write_files(self._all_batches(spools)), tuple(spool.hidden for spool in spools))
        self._take_up(())
        return staged

    def _all_batches(self, spools: Iterable[PartFile]) -> Iterator[tuple[Any, list[Any]]]:
        for spool in spools:
            with part_files.open_start(spool.hidden, spool.length) as file:
                while file.tell() < spool.length:
                    yield pickle.load(file)
        yield from self._batches.items()

    def _write_files(self, batches: Iterable[tuple[Any, list[Any]]]) -> tuple[PartFile, ...]:
        parts: dict[Any, PartFile] = {}
        writers: dict[Any, BulkWriter] = {}
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
            return self._before
        return (*self._before, PartFile(self._spool.hidden, self._spool.final, self._spooled))

    def _take_up(self, carried: tuple[PartFile, ...]) -> None:
        self._before = carried
        self._spool = None
        self._spooled = 0
        self._forget_batches()

    def _forget_batches(self) -> None:
        self._batches = {}
        self._values = []
        self._leave_bucket()


def _add(writer: BulkWriter, value: Any) -> None:
    try:
        writer.add_element(value)
    except Exception as e:
        raise MillstreamError(f"FileSink: record {shorten(value)} could not be written: {e!r}.") from e


def _closed(part: PartFile) -> PartFile:
    part_files.sync(part.hidden)
    return PartFile(part.hidden, part.final, os.path.getsize(part.hidden))
