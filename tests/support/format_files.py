"""Reads and writes files in a format, with formats and factories pickled as for a worker."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import cloudpickle

from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource
from millstream.formats.file_format import FileFormat, StreamFormat
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob


def source_of(file_format: FileFormat, path: Path) -> FileSource:
    if isinstance(file_format, StreamFormat):
        return FileSource.for_record_stream_format(file_format, str(path)).build()
    return FileSource.for_bulk_file_format(file_format, str(path)).build()  # type: ignore[arg-type]


def read(file_format: FileFormat, path: Path, parallelism: int = 1, budget: int = 1 << 30) -> list[Any]:
    env, sink = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism), CollectSink()
    env.from_source(source_of(pickle.loads(cloudpickle.dumps(file_format)), path)).sink_to(sink)
    LocalJob(env, epoch_sizes=lambda: budget).run()
    return list(sink.results())


def written(factory: Any, records: list[Any]) -> bytes:
    file = io.BytesIO()
    writer = pickle.loads(cloudpickle.dumps(factory)).open(file)
    for record in records:
        writer.add_element(record)
    writer.finish()
    return file.getvalue()
