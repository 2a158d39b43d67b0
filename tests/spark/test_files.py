"""Files in and out of real jobs: sets and watched directories, with failures in the middle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import wait_until
from test_recovery import FailingOnce, checkpointed
from test_sinks import lines

from millstream.common import Configuration, Duration, Encoder, Row, Types, WatermarkStrategy
from millstream.common.errors import MillstreamError
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    StreamFormat,
)
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

pytestmark = pytest.mark.spark

TEXT = StreamFormat.text_line_format()
BASE = BucketAssigner.base_path_bucket_assigner()
NUMBERS = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])


class FailingMap(FailingOnce):
    """Hands every record on; fails the first time it sees a certain one."""

    def process_element(self, value: str, ctx: Any) -> Any:
        for _ in super().process_element(int(value), ctx):
            yield value


def text_sink(out: Path) -> FileSink:
    encoder = Encoder.simple_string_encoder()
    names = OutputFileConfig.builder().with_part_prefix("part").build()
    builder = FileSink.for_row_format(str(out), encoder).with_bucket_assigner(BASE)
    return builder.with_output_file_config(names).build()


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_set_of_files_into_files_once(config: Configuration, tmp_path: Path, how: str) -> None:
    for i in range(4):
        numbers = range(i * 10_000, (i + 1) * 10_000)
        (tmp_path / f"in-{i}").mkdir()
        (tmp_path / f"in-{i}" / "file.txt").write_text("".join(f"{n}\n" for n in numbers))
    # Small epochs, so that the failure comes between two checkpoints.
    config.set_integer("millstream.epoch.max-records", 300)
    env = checkpointed(config, tmp_path / "cp", 50)
    paths = [str(tmp_path / f"in-{i}") for i in range(4)]
    stream = env.from_source(FileSource.for_record_stream_format(TEXT, *paths).build()).uid("files")
    failing = FailingMap(tmp_path / "failed", 15_000, how)
    stream.key_by(lambda v: int(v) % 5).process(failing).uid("fail").sink_to(text_sink(tmp_path / "out")).uid("out")
    env.execute()
    assert (tmp_path / "failed").exists()
    assert sorted(map(int, lines(tmp_path / "out"))) == list(range(40_000))


def test_a_directory_into_which_files_are_moved(config: Configuration, tmp_path: Path) -> None:
    directory, out = tmp_path / "in", tmp_path / "out"
    directory.mkdir()
    env = checkpointed(config, tmp_path / "cp", 100)
    builder = FileSource.for_record_stream_format(TEXT, str(directory))
    source = builder.monitor_continuously(Duration.of_millis(50)).build()
    stream = env.from_source(source).uid("files")
    failing = FailingMap(tmp_path / "failed", 600, "raise")
    stream.key_by(lambda v: int(v) % 5).process(failing).uid("fail").sink_to(text_sink(out)).uid("out")
    job = env.execute_async()
    try:
        for i in range(10):
            hidden = directory / f".{i}.tmp"
            hidden.write_text("".join(f"{n}\n" for n in range(i * 100, (i + 1) * 100)))
            hidden.rename(directory / f"{i}.txt")
            wait_until(lambda i=i: len(lines(out)) >= i * 50, what=f"half of {i} files")  # type: ignore[misc]
        wait_until(lambda: len(lines(out)) >= 1000, what="all files")
    finally:
        job.cancel().result()
    assert (tmp_path / "failed").exists()
    assert sorted(map(int, lines(out))) == list(range(1000))


def test_files_then_numbers_once(config: Configuration, tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"{i}.txt").write_text("".join(f"{n}\n" for n in range(i * 5000, (i + 1) * 5000)))
    config.set_integer("millstream.epoch.max-records", 300)
    env = checkpointed(config, tmp_path / "cp", 50)
    old = FileSource.for_record_stream_format(TEXT, str(tmp_path / "0.txt"), str(tmp_path / "1.txt")).build()
    source = HybridSource.builder(old).add_source(NumberSequenceSource(10_000, 19_999)).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "hybrid").uid("hybrid")
    # Once in the files, once in the numbers.
    first, second = FailingMap(tmp_path / "one", 3000, "raise"), FailingMap(tmp_path / "two", 13_000, "kill")
    stream = stream.key_by(lambda v: int(v) % 5).process(first).uid("first")
    stream = stream.key_by(lambda v: int(v) % 7).process(second).uid("second")
    stream.sink_to(text_sink(tmp_path / "out")).uid("out")
    env.execute()
    assert (tmp_path / "one").exists() and (tmp_path / "two").exists()
    assert sorted(map(int, lines(tmp_path / "out"))) == list(range(20_000))


def test_parquet_in_and_out(config: Configuration, env: Any, tmp_path: Path) -> None:
    rows = [Row(n, f"text {n}" if n % 3 else None) for n in range(5000)]
    sink = FileSink.for_bulk_format(str(tmp_path / "a"), ParquetBulkWriters.for_row_type(NUMBERS))
    env.from_collection(rows, NUMBERS).rebalance().sink_to(sink.with_bucket_assigner(BASE).build())
    env.execute()
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(NUMBERS), str(tmp_path / "a")).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "parquet")
    assert stream.get_type() == NUMBERS
    found = list(stream.map(lambda r: (r.number, r.text)).execute_and_collect())
    assert Counter(found) == Counter(tuple(r) for r in rows)


def test_csv_in_and_out(env: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = (CsvSchema.builder().add_number_column("number").add_string_column("text").set_use_header()).build()
    rows = [Row(n, f'say "{n}",\nplease') for n in range(3000)]
    sink = FileSink.for_bulk_format(str(tmp_path / "a"), CsvBulkWriters.for_schema(schema))
    env.from_collection(rows, NUMBERS).rebalance().sink_to(sink.with_bucket_assigner(BASE).build())
    env.execute()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path / "a")).build()
    total = env.from_source(source).map(lambda r: (r.number, r.text))
    assert Counter(total.execute_and_collect()) == Counter(tuple(r) for r in rows)
    (tmp_path / "one.csv").write_text("number,text\n7,x\n")
    one = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path / "one.csv")).build()
    env.set_parallelism(1).from_source(one).print()
    env.execute()
    # A typed row, as Flink prints it.
    assert "+I[7, x]" in capsys.readouterr().out


def test_errors_say_where(env: Any, tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_number_column("number").build()
    (tmp_path / "a.csv").write_text("1\n2\nthree\n")
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    with pytest.raises(MillstreamError, match=r"a.csv, line 3 \(byte 4\): 'three' in column 'number'"):
        list(env.from_source(source).execute_and_collect())
    missing = FileSource.for_record_stream_format(TEXT, str(tmp_path / "none")).build()
    with pytest.raises(MillstreamError, match="there is no file or directory"):
        list(env.from_source(missing).execute_and_collect())
