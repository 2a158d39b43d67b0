"""File sources and sinks in real jobs: fixed sets and monitored directories, with failures."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

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
from millstream.datastream.formats.avro import AvroBulkWriters, AvroFormat, AvroInputFormat, AvroSchema
from millstream.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from millstream.datastream.formats.orc import OrcBulkWriters
from millstream.datastream.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from millstream.table import StreamTableEnvironment
from tests.spark.test_recovery import FailingOnce, checkpointed
from tests.spark.test_sinks import lines
from tests.support.helpers import wait_until

pytestmark = pytest.mark.spark

TEXT = StreamFormat.text_line_format()
BASE = BucketAssigner.base_path_bucket_assigner()
NUMBERS = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])

MEASURED = AvroSchema.parse_string(
    """{"type": "record", "name": "Measured", "fields": [
        {"name": "number", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "of", "type": ["null", "long", "string"]}]}"""
)


def measured(n: int) -> dict[str, Any]:
    time = datetime.datetime.fromtimestamp(n, datetime.UTC)
    price = Decimal(n).scaleb(-2) if n % 3 else None
    return {"number": n, "at": time, "price": price, "tags": [f"t{n}"] * (n % 4), "of": [None, n, f"n{n}"][n % 3]}


class FailingMap(FailingOnce):
    """Forwards every record; fails at a certain record once."""

    def process_element(self, value: str, ctx: Any) -> Any:  # type: ignore[override]
        for _ in super().process_element(int(value), ctx):
            yield value


class FailingRecord(FailingOnce):
    """The same for Avro records."""

    def process_element(self, value: dict[str, Any], ctx: Any) -> Any:  # type: ignore[override]
        for _ in super().process_element(value["number"], ctx):
            yield value


def text_sink(out: Path) -> FileSink:
    encoder = Encoder.simple_string_encoder()
    names = OutputFileConfig.builder().with_part_prefix("part").build()
    builder = FileSink.for_row_format(str(out), encoder).with_bucket_assigner(BASE)
    return builder.with_output_file_config(names).build()


@pytest.mark.parametrize("failure", ["raise", "kill"])
def test_file_source_and_sink_copy_each_record_once(config: Configuration, tmp_path: Path, failure: str) -> None:
    for i in range(4):
        numbers = range(i * 10_000, (i + 1) * 10_000)
        (tmp_path / f"in-{i}").mkdir()
        (tmp_path / f"in-{i}" / "file.txt").write_text("".join(f"{n}\n" for n in numbers))
    # Small epochs, so that the failure comes between two checkpoints.
    config.set_integer("millstream.epoch.max-records", 300)
    env = checkpointed(config, tmp_path / "cp", 50)
    paths = [str(tmp_path / f"in-{i}") for i in range(4)]
    stream = env.from_source(FileSource.for_record_stream_format(TEXT, *paths).build()).uid("files")
    failing = FailingMap(tmp_path / "failed", 15_000, failure)
    stream.key_by(lambda v: int(v) % 5).process(failing).uid("fail").sink_to(text_sink(tmp_path / "out")).uid("out")
    env.execute()
    assert (tmp_path / "failed").exists()
    assert sorted(map(int, lines(tmp_path / "out"))) == list(range(40_000))


def test_file_source_reads_files_moved_into_directory(config: Configuration, tmp_path: Path) -> None:
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
            wait_until(lambda i=i: len(lines(out)) >= i * 50, description=f"half of {i} files")  # type: ignore[misc]
        wait_until(lambda: len(lines(out)) >= 1000, description="all files")
    finally:
        job.cancel().result()
    assert (tmp_path / "failed").exists()
    assert sorted(map(int, lines(out))) == list(range(1000))


def test_hybrid_source_reads_files_then_numbers_once(config: Configuration, tmp_path: Path) -> None:
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


def test_parquet_files_round_trip(config: Configuration, env: Any, tmp_path: Path) -> None:
    rows = [Row(n, f"text {n}" if n % 3 else None) for n in range(5000)]
    sink = FileSink.for_bulk_format(str(tmp_path / "a"), ParquetBulkWriters.for_row_type(NUMBERS))
    env.from_collection(rows, NUMBERS).rebalance().sink_to(sink.with_bucket_assigner(BASE).build())
    env.execute()
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(NUMBERS), str(tmp_path / "a")).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "parquet")
    assert stream.get_type() == NUMBERS
    results = list(stream.map(lambda r: (r.number, r.text)).execute_and_collect())
    assert Counter(results) == Counter(tuple(r) for r in rows)


@pytest.mark.parametrize("failure", ["raise", "kill"])
def test_avro_files_round_trip_once(config: Configuration, tmp_path: Path, failure: str) -> None:
    """Files of many blocks, split by epochs; a failure between two checkpoints; the output is Avro again."""
    records = [measured(n) for n in range(20_000)]
    (tmp_path / "in").mkdir()
    for i in range(4):
        with open(tmp_path / "in" / f"{i}.avro", "wb") as file:
            fastavro.writer(file, MEASURED.parsed, records[i * 5000 : (i + 1) * 5000], codec="deflate")
    config.set_integer("millstream.epoch.max-records", 300)
    env = checkpointed(config, tmp_path / "cp", 50)
    source = FileSource.for_bulk_file_format(AvroFormat(MEASURED), str(tmp_path / "in")).build()
    failing = FailingRecord(tmp_path / "failed", 7_000, failure)
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), AvroBulkWriters.for_generic_record(MEASURED))
    stream = env.from_source(source).uid("files").key_by(lambda r: r["number"] % 5).process(failing).uid("fail")
    stream.sink_to(sink.with_bucket_assigner(BASE).build()).uid("out")
    env.execute()
    assert (tmp_path / "failed").exists()
    results = []
    for path in (tmp_path / "out").glob("part-*"):
        with open(path, "rb") as file:
            results += list(fastavro.reader(file))
    assert sorted(results, key=lambda r: r["number"]) == records  # type: ignore[call-overload, index]


def test_avro_orc_and_avro_parquet_round_trip(env: Any, tmp_path: Path) -> None:
    records = [measured(n) for n in range(3000)]
    sinks = {
        "avro": AvroBulkWriters.for_generic_record(MEASURED),
        "parquet": AvroParquetWriters.for_generic_record(MEASURED),
    }
    stream = env.from_collection(records).rebalance()
    for name, factory in sinks.items():
        stream.sink_to(FileSink.for_bulk_format(str(tmp_path / name), factory).with_bucket_assigner(BASE).build())
    orc = FileSink.for_bulk_format(str(tmp_path / "orc"), OrcBulkWriters.for_row_type(NUMBERS))
    rows = stream.map(lambda r: Row(r["number"], r["of"] if isinstance(r["of"], str) else None), output_type=NUMBERS)
    rows.sink_to(orc.with_bucket_assigner(BASE).build())
    env.execute()

    def by_number(records: Any) -> list[Any]:
        return sorted(records, key=lambda r: r["number"])

    assert (
        by_number(env.create_input(AvroInputFormat(str(tmp_path / "avro"), MEASURED)).execute_and_collect()) == records
    )
    reader = AvroParquetReaders.for_generic_record(MEASURED)
    source = FileSource.for_record_stream_format(reader, str(tmp_path / "parquet")).build()
    assert by_number(env.from_source(source).execute_and_collect()) == records
    prices = pyarrow.parquet.read_table(tmp_path / "parquet", columns=["number", "price"]).to_pylist()
    assert by_number(prices) == [{"number": r["number"], "price": r["price"]} for r in records]
    orcs = pa.concat_tables(pyarrow.orc.read_table(path) for path in (tmp_path / "orc").iterdir())
    texts = [r["of"] if isinstance(r["of"], str) else None for r in records]
    assert by_number(orcs.to_pylist()) == [{"number": n, "text": text} for n, text in enumerate(texts)]


def test_csv_files_round_trip(env: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "+I[7,x]" in capsys.readouterr().out


def test_file_errors_name_location(env: Any, tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_number_column("number").build()
    (tmp_path / "a.csv").write_text("1\n2\nthree\n")
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    with pytest.raises(
        MillstreamError, match=r"a.csv, line 3 \(byte 4\): 'three' cannot be read: 'three' in column 'number'"
    ):
        list(env.from_source(source).execute_and_collect())
    missing = FileSource.for_record_stream_format(TEXT, str(tmp_path / "none")).build()
    with pytest.raises(MillstreamError, match="there is no file or directory"):
        list(env.from_source(missing).execute_and_collect())


def test_read_csv_table_of_files_and_of_monitored_directory(env: Any, tmp_path: Path) -> None:
    for number in range(3):
        directory = tmp_path / "in" / f"part={number}"
        directory.mkdir(parents=True)
        values = range(number * 1000, number * 1000 + 1000)
        # The columns are in another order in every second file.
        lines = [f'{n},"a,{n}"\n' if number % 2 else f'"a,{n}",{n}\n' for n in values]
        (directory / "a.csv").write_text(("n,text\n" if number % 2 else "text,n\n") + "".join(lines))
    t_env = StreamTableEnvironment.create(env)
    rows = t_env.read_csv(tmp_path / "in")
    totals = rows.group_by(rows.part).select(rows.part, rows.n.count, rows.n.max)
    last = {row[0]: tuple(row) for row in totals.execute().collect()}
    assert sorted(last.values()) == [(0, 1000, 999), (1, 1000, 1999), (2, 1000, 2999)]

    monitored = t_env.read_csv(f"{tmp_path}/in/*/?.csv", monitor=Duration.of_millis(100))
    with monitored.select(monitored.n).execute().collect() as results:
        assert sorted(next(results)[0] for _ in range(3000)) == list(range(3000))
        (tmp_path / "b.csv").write_text("n,text\n-5,later\n")
        (tmp_path / "b.csv").rename(tmp_path / "in" / "part=1" / "b.csv")
        assert next(results)[0] == -5
