"""One policy for unreadable records, for all formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millstream.common import Types, WatermarkStrategy
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.datastream import OutputTag
from millstream.datastream.connectors.base import BadRecord, BadRecords
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.formats.avro import AvroFormat, AvroSchema
from millstream.datastream.formats.csv import CsvReaderFormat, CsvSchema
from millstream.datastream.formats.json import JsonLinesFormat
from millstream.testing import CollectSink, LocalEnvironment

BAD: OutputTag[BadRecord] = OutputTag("bad")
NUMBER = AvroSchema(json.dumps({"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}))
CSV = CsvReaderFormat.for_schema(CsvSchema.builder().add_number_column("n", Types.INT()).build())


def a_source(kind: str, directory: Path) -> FileSource:
    """Ten numbers, the fourth and the eighth invalid."""
    path = directory / f"numbers.{kind}"
    if kind == "avro":
        with open(path, "wb") as file:
            fastavro.writer(file, NUMBER.parsed, [{"n": i} for i in range(10)], sync_interval=1)
        data = bytearray(path.read_bytes())
        mark = data[-16:]
        for block in (4, 8):
            # After the mark: the number of records, the number of bytes, and the number itself.
            offset = -1
            for _ in range(block + 1):
                offset = data.index(mark, offset + 1)
            data[offset + 16 + 2] = 0xFF
        path.write_bytes(data)
        return FileSource.for_bulk_file_format(AvroFormat(NUMBER), path).build()
    lines = ["x" if i in (4, 8) else (str(i) if kind == "csv" else f'{{"n": {i}}}') for i in range(10)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return FileSource.for_record_stream_format(CSV if kind == "csv" else JsonLinesFormat(), path).build()


def numbers(values: list[Any]) -> list[int]:
    return sorted(v["n"] for v in values)


GOOD = [0, 1, 2, 3, 5, 6, 7, 9]


@pytest.mark.parametrize("kind", ["csv", "json", "avro"])
def test_bad_records_policy_fails_skips_or_side_outputs(kind: str, tmp_path: Path) -> None:
    source = a_source(kind, tmp_path)
    env = LocalEnvironment()
    env.from_source(source).print()
    where = (
        "numbers.avro is not a complete Avro file" if kind == "avro" else rf"numbers.{kind}, line 5 \(byte .*'x' cannot"
    )
    with pytest.raises(MillstreamError, match=where):
        env.execute()

    env, sink = LocalEnvironment(), CollectSink()
    env.from_source(source.on_bad_records(BadRecords.skip())).sink_to(sink)
    result = env.execute()
    assert numbers(sink.results()) == GOOD
    assert result.get_accumulator_result("Source: File Source.numRecordsInErrors") == 2

    env, sink, bad_sink = LocalEnvironment(), CollectSink(), CollectSink()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(source.on_bad_records(BadRecords.to(BAD)), strategy, "numbers")
    stream.sink_to(sink)
    stream.get_side_output(BAD).sink_to(bad_sink)
    env.execute()
    assert numbers(sink.results()) == GOOD
    bad_records = bad_sink.results()
    if kind == "avro":
        assert len(bad_records) == 2 and all("the block at byte" in bad.where for bad in bad_records)
    else:
        assert [bad.value for bad in bad_records] == ["x", "x"]
        assert [bad.where.partition(", ")[2].split()[1] for bad in bad_records] == ["5", "9"]
        assert all(bad.error for bad in bad_records)


def test_bad_records_policy_handles_lines_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1\n\xff2\n3\n")
    schema = CsvSchema.builder().add_string_column("n").build()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), path).build()
    env, sink, bad_sink = LocalEnvironment(), CollectSink(), CollectSink()
    stream = env.from_source(source.on_bad_records(BadRecords.to(BAD)))
    stream.sink_to(sink)
    stream.get_side_output(BAD).sink_to(bad_sink)
    env.execute()
    assert [row["n"] for row in sink.results()] == ["1", "3"]
    assert [(bad.value, bad.error) for bad in bad_sink.results()] == [(b"\xff2", "byte 0xff is not UTF-8")]


def test_bad_records_policy_applies_to_a_whole_hybrid_source(tmp_path: Path) -> None:
    source = a_source("json", tmp_path)
    env, sink = LocalEnvironment(), CollectSink()
    hybrid = HybridSource.builder(source).add_source(NumberSequenceSource(1, 1)).build()
    env.from_source(hybrid.on_bad_records(BadRecords.skip())).sink_to(sink)
    env.execute()
    assert len(sink.results()) == 9
    with pytest.raises(InvalidProgramError, match="set it for the HybridSource instead"):
        HybridSource.builder(source.on_bad_records(BadRecords.skip()))


def test_bad_records_side_output_requires_the_tag(tmp_path: Path) -> None:
    env = LocalEnvironment()
    with pytest.raises(InvalidProgramError, match="on_bad_records"):
        env.from_source(a_source("json", tmp_path)).get_side_output(BAD)
