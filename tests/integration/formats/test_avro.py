"""Avro: files in jobs, messages, records in Parquet files, and errors that name the field or the file."""

from __future__ import annotations

import datetime
import importlib.util
import io
import json
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import cloudpickle
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Row, Types
from millstream.common import serialization as common_serialization
from millstream.common.errors import InvalidProgramError, MillstreamError, TypeMismatchError
from millstream.common.io import InputFormat
from millstream.common.unsupported import NotSupportedError
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.formats.avro import (
    AvroBulkWriters,
    AvroFormat,
    AvroInputFormat,
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from millstream.datastream.formats.parquet import AvroParquetReaders, AvroParquetWriters
from millstream.formats import arrow_rows as arrow_files
from millstream.formats import file_format as file_formats
from millstream.formats.avro import files as avro_files
from millstream.formats.avro.values import coercer
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FileFormat, FilePart, FileSplitRange
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob
from tests.support.format_files import read, written
from tests.support.paths import TESTS

Env = StreamExecutionEnvironment
UTC = datetime.UTC


def record_of(*fields: dict[str, Any], name: str = "R", **more: Any) -> AvroSchema:
    return AvroSchema.parse_string(json.dumps({"type": "record", "name": name, "fields": fields, **more}))


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


POINT = record_of(field("x", "int"))
NUMBERED = record_of(field("number", "long"), field("text", ["null", "string"], default=None))
INNER = {"type": "record", "name": "Inner", "fields": [field("a", "int"), field("b", ["null", "string"])]}
# One field of every kind, with a value.
KINDS: list[tuple[dict[str, Any], Any]] = [
    (field("boolean", "boolean"), True),
    (field("int", "int"), -(2**31)),
    (field("long", "long"), 2**63 - 1),
    (field("float", "float"), 1.5),
    (field("double", "double"), 0.1),
    (field("bytes", "bytes"), b"\x00\xff"),
    (field("string", "string"), "à"),
    (field("none", ["null", "int"]), None),
    (field("some", ["int", "null"]), 7),
    (field("enum", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}), "BLUE"),
    (field("fixed", {"type": "fixed", "name": "Pair", "size": 2}), b"ab"),
    (field("array", {"type": "array", "items": ["null", "long"]}), [1, None, 3]),
    (field("map", {"type": "map", "values": {"type": "array", "items": "string"}}), {"k": ["v"], "e": []}),
    (field("nested", INNER), {"a": 1, "b": None}),
    (field("again", ["null", "Inner"]), {"a": 2, "b": "x"}),
    (field("union", ["null", "long", "string", "Inner", "Color"]), {"a": 3, "b": None}),
    (field("union_text", ["null", "long", "string"]), "text"),
    (field("date", logical("int", "date")), datetime.date(1969, 7, 20)),
    (field("time_ms", logical("int", "time-millis")), datetime.time(1, 2, 3, 456000)),
    (field("time_us", logical("long", "time-micros")), datetime.time(1, 2, 3, 456789)),
    (field("ts_ms", logical("long", "timestamp-millis")), datetime.datetime(1969, 1, 2, 3, 4, 5, 678000, UTC)),
    (field("ts_us", logical("long", "timestamp-micros")), datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, UTC)),
    (field("local_ms", logical("long", "local-timestamp-millis")), datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)),
    (field("local_us", logical("long", "local-timestamp-micros")), datetime.datetime(1900, 1, 2, 3, 4, 5, 678901)),
    (field("decimal", logical("bytes", "decimal", precision=10, scale=3)), Decimal("-1234567.891")),
    (
        field("fixed_decimal", logical("fixed", "decimal", name="Dec", size=8, precision=12, scale=2)),
        Decimal("7.00"),
    ),
    (field("long_decimal", logical("bytes", "decimal", precision=50, scale=1)), Decimal(10**48 + 1).scaleb(-1)),
    (field("uuid", logical("string", "uuid")), UUID(int=5)),
    (field("dates", ["null", logical("int", "date"), logical("long", "timestamp-millis")]), datetime.date(2024, 2, 29)),
    (
        field("times", ["null", logical("int", "date"), logical("long", "timestamp-millis")]),
        datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    ),
]
ALL = record_of(*[f for f, _ in KINDS], name="All", namespace="org.example")
VALUES = {f["name"]: value for f, value in KINDS}


def avro_bytes(schema: AvroSchema, records: list[Any]) -> bytes:
    return written(AvroBulkWriters.for_generic_record(schema), records)


def parquet_bytes(schema: AvroSchema, records: list[Any]) -> bytes:
    return written(AvroParquetWriters.for_generic_record(schema), records)


# --- schemas and types


def test_avro_schema_is_its_json(tmp_path: Path) -> None:
    text = '{ "type": "record",\n "name": "R", "fields": [{"name": "x", "type": "int"}] }'
    (tmp_path / "r.avsc").write_text(text)
    schema = AvroSchema.parse_file(str(tmp_path / "r.avsc"))
    assert str(schema) == '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'
    assert schema == AvroSchema.parse_string(text) == pickle.loads(pickle.dumps(schema)) == AvroSchema(text)
    assert hash(schema) == hash(AvroSchema(text)) and schema != ALL and schema != text
    assert eval(repr(schema)) == schema


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("{}", "'type' is missing"),
        ('{"type": "rec"}', "there is no type"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "text"}]}', "there is no type text"),
        ("3", "is not a schema"),
    ],
)
def test_avro_schema_rejects_invalid_json(text: str, reason: str) -> None:
    with pytest.raises(InvalidProgramError, match=f"AvroSchema: .*{reason}"):
        AvroSchema.parse_string(text)


def test_avro_schema_reports_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidProgramError, match=r"none.avsc cannot be read: No such file"):
        AvroSchema.parse_file(str(tmp_path / "none.avsc"))


def test_avro_type_info_requires_record_schema() -> None:
    type_info = GenericRecordAvroTypeInfo(POINT)
    assert type_info == pickle.loads(pickle.dumps(type_info)) != GenericRecordAvroTypeInfo(ALL)
    assert type_info.has_field("x") and not type_info.has_field("y") and not type_info.has_field(0)
    convert = type_info.converter()
    assert convert is not None and convert({"x": 1}) == {"x": 1} and convert(None) is None
    with pytest.raises(TypeMismatchError, match=r"Avro: field 'x' is '1', which is not of the type int; the value was"):
        convert({"x": "1"})
    with pytest.raises(NotSupportedError, match="no get_java_type_info"):
        type_info.get_java_type_info()
    with pytest.raises(InvalidProgramError, match="takes the schema of a record, not of 'int'"):
        GenericRecordAvroTypeInfo(AvroSchema('"int"'))
    with pytest.raises(InvalidProgramError, match="takes an AvroSchema, .*, not 'text'"):
        AvroFormat("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "used",
    [
        "avro.AvroSchema.parse_string('\"int\"')",
        "avro.AvroRowSerializationSchema(avro_schema_string='\"int\"')",
        "avro.AvroRowDeserializationSchema(avro_schema_string='\"int\"')",
    ],
)
def test_avro_formats_name_package_when_fastavro_is_missing(used: str) -> None:
    """All names can be imported and Parquet and ORC work, since fastavro is an extra."""
    code = (
        "import sys\nsys.modules['fastavro'] = None\n"
        "from millstream.datastream.formats import avro, orc, parquet\n"
        "from millstream.common import Types\n"
        "parquet.ParquetBulkWriters.for_row_type(Types.ROW([Types.INT()]))\n"
        f"try:\n    {used}\nexcept Exception as e:\n    print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (
        'Avro needs the package fastavro: pip install "fastavro[snappy,zstandard]".\n',
        "",
    )


def test_avro_import_does_not_load_fastavro() -> None:
    code = "import sys, millstream.datastream, millstream.datastream.formats.avro\nprint('fastavro' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False\n", "")


# --- values


@pytest.mark.parametrize("name", VALUES)
def test_avro_round_trips_values_of_every_type(name: str, tmp_path: Path) -> None:
    def same(results: list[Any]) -> bool:
        return [record[name] for record in results] == [VALUES[name]] and type(results[0][name]) is type(VALUES[name])

    data = avro_bytes(ALL, [VALUES])
    assert same(list(fastavro.reader(io.BytesIO(data))))
    (tmp_path / "avro").mkdir()
    (tmp_path / "avro" / "a.avro").write_bytes(data)
    assert same(read(AvroFormat(ALL), tmp_path / "avro"))
    (tmp_path / "parquet").mkdir()
    (tmp_path / "parquet" / "a.parquet").write_bytes(parquet_bytes(ALL, [VALUES]))
    assert same(read(AvroParquetReaders.for_generic_record(ALL), tmp_path / "parquet"))
    assert same([coercer(ALL)(VALUES)])


WRONG = [
    ("boolean", 1, "'boolean' is 1, which is not of the type boolean"),
    ("int", 2**31, "'int' is 2147483648, which is not of the type int"),
    ("int", True, "'int' is True"),
    ("long", 1.5, "'long' is 1.5, which is not of the type long"),
    ("float", 1e300, "'float' is 1e\\+300, which is not of the type float"),
    ("double", "1", "'double' is '1', which is not of the type double"),
    ("bytes", "text", "'bytes' is 'text', which is not of the type bytes"),
    ("string", b"b", "'string' is b'b', which is not of the type string"),
    ("string", None, "'string' is None"),
    ("enum", "GREEN", r"'enum' is 'GREEN', which is not of the type org.example.Color \(RED, BLUE\)"),
    ("fixed", b"abc", "'fixed' is b'abc', which is not of the type org.example.Pair, 2 bytes"),
    ("array", [1, "x"], r"'array\[1\]' is 'x', which is not of the type long"),
    ("array", "text", "'array' is 'text', which is not of the type array"),
    ("map", {"k": [1]}, r"\"map\['k'\]\[0\]\" is 1, which is not of the type string"),
    ("map", {1: []}, "'map' is {1: \\[\\]}, which is not of the type map"),
    ("nested", {"a": 1, "b": 2}, "'nested.b' is 2"),
    ("nested", {"a": 1, "b": None, "c": 3}, "'nested.c' is not in the schema, which has a, b"),
    ("nested", {"b": None}, "'nested.a' is missing, and the schema has no default for it"),
    ("nested", 3, "'nested' is 3, which is not of the type org.example.Inner"),
    ("union", 1.5, "'union' is 1.5, which is not of the type null or long or string or org.example.Inner"),
    ("date", datetime.datetime(2024, 1, 1), "'date' is datetime.datetime.*not of the type date"),
    ("time_ms", 86_400_000, "'time_ms' is 86400000, which is not of the type time-millis"),
    ("ts_ms", "now", "'ts_ms' is 'now', which is not of the type timestamp-millis"),
    ("decimal", Decimal("1.2345"), r"not of the type decimal\(10, 3\)"),
    ("decimal", Decimal("12345678.000"), r"not of the type decimal\(10, 3\)"),
    ("decimal", Decimal("NaN"), "'decimal' is Decimal"),
    ("uuid", "no", "'uuid' is 'no', which is not of the type uuid"),
]


@pytest.mark.parametrize("factory", [AvroBulkWriters, AvroParquetWriters])
@pytest.mark.parametrize(("name", "value", "reason"), WRONG)
def test_avro_writer_names_field_of_invalid_value(factory: Any, name: str, value: Any, reason: str) -> None:
    writer = factory.for_generic_record(ALL).open(io.BytesIO())
    with pytest.raises(TypeMismatchError, match=f"Avro: field .*{reason}"):
        writer.add_element({**VALUES, name: value})
    with pytest.raises(TypeMismatchError, match="Avro: the value is None"):
        writer.add_element(None)


def test_avro_writer_fills_defaults_of_missing_fields() -> None:
    schema = record_of(
        field("a", ["null", "int"]),
        field("b", "bytes", default="\u00ff"),
        field("c", {"type": "array", "items": logical("int", "date")}, default=[1]),
        field("d", INNER, default={"a": 1, "b": None}),
        field("e", {"type": "map", "values": "int"}, default={"k": 1}),
        field("f", ["int", "null"], default=4),
    )
    expected = {
        "a": None,
        "b": b"\xff",
        "c": [datetime.date(1970, 1, 2)],
        "d": {"a": 1, "b": None},
        "e": {"k": 1},
        "f": 4,
    }
    assert list(fastavro.reader(io.BytesIO(avro_bytes(schema, [{}])))) == [expected]
    one, other = coercer(schema)({}), coercer(schema)({})
    one["c"].append(None)
    assert other == expected


def test_avro_fitter_converts_numbers_to_logical_types() -> None:
    fit = coercer(ALL)
    plain = {"date": -1, "time_us": 1, "ts_ms": -1, "local_us": 1, "decimal": b"\xff", "uuid": str(UUID(int=5))}
    converted = fit({**VALUES, **plain})
    assert converted["date"] == datetime.date(1969, 12, 31) and converted["time_us"] == datetime.time(0, 0, 0, 1)
    assert converted["ts_ms"] == datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)
    assert converted["local_us"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 1)
    assert (converted["decimal"], converted["uuid"]) == (Decimal("-0.001"), UUID(int=5))


def test_avro_writer_truncates_time_to_precision() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    given_times = {
        "time_ms": datetime.time(1, 2, 3, 456789),
        "ts_ms": datetime.datetime(2024, 1, 1, 1, 0, 0, 999, zone),
        "decimal": 5,
    }
    for data in (avro_bytes(ALL, [{**VALUES, **given_times}]), None):
        records: Iterable[Any] = (
            fastavro.reader(io.BytesIO(data)) if data else [coercer(ALL)({**VALUES, **given_times})]
        )
        (record,) = records
        assert record["time_ms"] == datetime.time(1, 2, 3, 456000)
        assert record["ts_ms"] == datetime.datetime(2023, 12, 31, 23, tzinfo=UTC)
        assert record["decimal"] == Decimal("5.000")


def test_avro_supports_recursive_records_but_parquet_and_rows_do_not() -> None:
    schema = record_of(field("value", "int"), field("next", ["null", "R"]))
    chain = {"value": 1, "next": {"value": 2, "next": None}}
    assert list(fastavro.reader(io.BytesIO(avro_bytes(schema, [chain])))) == [chain]
    with pytest.raises(TypeMismatchError, match="field 'next.next.value' is 'x'"):
        avro_bytes(schema, [{"value": 1, "next": {"value": 2, "next": {"value": "x", "next": None}}}])
    with pytest.raises(InvalidProgramError, match="Parquet: the record R contains itself"):
        AvroParquetWriters.for_generic_record(schema)
    with pytest.raises(InvalidProgramError, match="Avro: the record R contains itself"):
        AvroRowDeserializationSchema(avro_schema_string=str(schema))


def test_avro_writer_orders_row_fields_by_schema() -> None:
    rows = [Row(1, "a"), Row(number=2, text="b"), Row(text="c", number=3), Row(f0=4, f1="d")]
    records: Iterable[Any] = fastavro.reader(io.BytesIO(avro_bytes(NUMBERED, rows)))
    ordered = [tuple(r.values()) for r in records]
    assert ordered == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    with pytest.raises(TypeMismatchError, match="the value has 1 fields, but the schema has 2"):
        avro_bytes(NUMBERED, [Row(1)])


# --- files


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"number": n, "text": f"text {n}" if n % 3 else None} for n in range(count)]


def container(records: list[Any], interval: int = 60, codec: str = "null", schema: AvroSchema = NUMBERED) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema.parsed, records, codec=codec, sync_interval=interval)
    return file.getvalue()


@given(st.integers(0, 60), st.integers(1, 200), st.integers(1, 400), st.integers(16, 60), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_avro_file_split_anywhere_reads_each_record_once(
    count: int, interval: int, split: int, scan: int, budget: int
) -> None:
    import tempfile

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(file_formats, "MIN_SPLIT_BYTES", split)
        patch.setattr(file_formats, "MAX_SPLIT_BYTES", split)
        patch.setattr(avro_files, "SCAN_BYTES", scan)
        Path(directory, "a.avro").write_bytes(container(numbered(count), interval))
        results = read(AvroFormat(NUMBERED), Path(directory), 2, budget)
    assert Counter(r["number"] for r in results) == Counter(range(count))


def test_avro_file_split_at_every_offset_reads_each_record_once(tmp_path: Path) -> None:
    data = container(numbered(20))
    (tmp_path / "a.avro").write_bytes(data)
    access, size, path = FileAccess({}), len(data), str(tmp_path / "a.avro")

    def numbers(start: int, end: int) -> list[int]:
        share = FileSplitRange(0, path, start, end, size, end == size)
        return [r["number"] for batch in AvroFormat(NUMBERED).read(access, share) for r in batch]

    for cut in range(1, size):
        assert numbers(0, cut) + numbers(cut, size) == list(range(20))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_avro_format_reads_every_codec(tmp_path: Path, codec: str) -> None:
    for i in range(3):
        (tmp_path / f"{i}.avro").write_bytes(container(numbered(500), 1000, codec))
    results = read(AvroFormat(NUMBERED), tmp_path, 2, random.Random(codec).choice([1, 50, 10_000]))
    assert Counter(r["number"] for r in results) == Counter(dict.fromkeys(range(500), 3))


def test_avro_format_resolves_writer_schema(tmp_path: Path) -> None:
    old = record_of(field("x", "int"), field("gone", "string"))
    (tmp_path / "a.avro").write_bytes(container([{"x": 1, "gone": "a"}, {"x": 2, "gone": "b"}], schema=old))
    new = record_of(
        field("x", "double"),
        field("items", {"type": "array", "items": "int"}, default=[]),
        field("day", logical("int", "date"), default=1),
        field("raw", "bytes", default="\u0001"),
        field("inner", INNER, default={"a": 5, "b": None}),
    )
    rest = {"items": [], "day": datetime.date(1970, 1, 2), "raw": b"\x01", "inner": {"a": 5, "b": None}}
    first, second = read(AvroFormat(new), tmp_path)
    assert (first, second) == ({"x": 1.0, **rest}, {"x": 2.0, **rest})
    # What was filled in is each record's own.
    assert first["items"] is not second["items"] and first["inner"] is not second["inner"]
    with pytest.raises(MillstreamError, match=r"a.avro was written with a schema that does not match the declared one"):
        read(AvroFormat(record_of(field("x", "string"))), tmp_path)
    with pytest.raises(MillstreamError, match=r"a.avro was written with a schema that does not match"):
        read(AvroFormat(record_of(field("x", "int"), field("new", "int"))), tmp_path)


def test_avro_format_names_damaged_file(tmp_path: Path) -> None:
    data = container(numbered(50))
    damaged = {
        "text": b"not avro",
        "short": data[: len(data) // 2],
        "end": data[:-1],
        "header": data[:20],
        "mark": data[:-16] + bytes(16),
        "empty": b"",
    }
    for name, content in damaged.items():
        directory = tmp_path / name
        directory.mkdir()
        (directory / "b.avro").write_bytes(content)
        if not content:
            assert read(AvroFormat(NUMBERED), directory) == []
            continue
        with pytest.raises(MillstreamError, match=r"b.avro is not a complete Avro file \(.+\); remove it"):
            read(AvroFormat(NUMBERED), directory)


def test_create_input_reads_avro_and_rejects_java_formats(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(container(numbered(10)))
    env, sink = Env.get_execution_environment().set_parallelism(2), CollectSink()
    stream = env.create_input(AvroInputFormat(str(tmp_path), NUMBERED))
    assert stream.get_type() == GenericRecordAvroTypeInfo(NUMBERED)
    assert isinstance(AvroInputFormat(str(tmp_path), NUMBERED), InputFormat)
    stream.sink_to(sink)
    LocalJob(env).run()
    assert sorted(sink.results(), key=lambda r: r["number"]) == numbered(10)
    with pytest.raises(
        NotSupportedError, match=r"no create_input\(\): Millstream has no Java objects.* with FileSource"
    ):
        env.create_input("org.example.Format")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_file_sink_writes_avro_and_parquet_records(tmp_path: Path, kind: str) -> None:
    factories: dict[str, Any] = {
        "avro": AvroBulkWriters.for_generic_record(NUMBERED),
        "parquet": AvroParquetWriters.for_generic_record(NUMBERED),
    }
    formats: dict[str, FileFormat] = {
        "avro": AvroFormat(NUMBERED),
        "parquet": AvroParquetReaders.for_generic_record(NUMBERED),
    }
    env = Env.get_execution_environment().set_parallelism(2)
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), factories[kind])
    stream = env.from_collection(numbered(200)).rebalance()
    # As PyFlink's programs declare it.
    stream = stream.map(lambda e: e, output_type=GenericRecordAvroTypeInfo(NUMBERED))
    stream.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    LocalJob(env, epoch_sizes=lambda: 30).run()
    assert sorted(read(formats[kind], tmp_path / "out", 3), key=lambda r: r["number"]) == numbered(200)


def test_file_sink_names_record_that_does_not_match_avro_schema(tmp_path: Path) -> None:
    env = Env.get_execution_environment().set_parallelism(1)
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), AvroBulkWriters.for_generic_record(POINT)).build()
    env.from_collection([{"x": 1}, {"x": "one"}]).sink_to(sink)
    with pytest.raises(MillstreamError, match=r"record {'x': 'one'} could not be written: .*field 'x' is 'one'"):
        LocalJob(env).run()


# --- Parquet


def test_avro_parquet_writer_matches_parquet_avro(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(ALL, [VALUES]))
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert file.metadata.metadata[b"parquet.avro.schema"].decode() == str(ALL)
    columns = file.schema_arrow
    assert columns.field("int") == pa.field("int", pa.int32(), nullable=False)
    assert columns.field("some").nullable and columns.field("enum").type == pa.string()
    assert [f.name for f in columns.field("union").type] == ["member0", "member1", "member2", "member3"]
    assert columns.field("ts_ms").type == pa.timestamp("ms", "UTC")
    row = pq.read_table(tmp_path / "a.parquet").to_pylist()[0]
    assert row["union"] == {"member0": None, "member1": None, "member2": {"a": 3, "b": None}, "member3": None}
    assert file.metadata.row_group(0).column(0).compression == "UNCOMPRESSED"


@pytest.mark.parametrize("parallelism", [1, 3])
def test_avro_parquet_reader_reads_row_groups(
    tmp_path: Path, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_files, "BATCH_ROWS", 10)
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(NUMBERED, numbered(95)))
    reader = AvroParquetReaders.for_generic_record(NUMBERED)
    assert sorted(read(reader, tmp_path, parallelism, 7), key=lambda r: r["number"]) == numbered(95)
    with open(tmp_path / "a.parquet", "rb") as file:
        part = FilePart(FileAccess({}), "a.parquet", file, 0, 0, 0)
        assert [r for batch in reader.read_part(part) for r in batch] == numbered(95)


def test_avro_parquet_reader_reads_files_of_other_writers(tmp_path: Path) -> None:
    schema = record_of(
        field("day", logical("int", "date")),
        field("at", logical("long", "timestamp-micros")),
        field("tags", {"type": "array", "items": "string"}),
        field("counts", {"type": "map", "values": "long"}),
        field("inner", INNER),
        field("here", "int", default=3),
        field("perhaps", ["null", "string"]),
    )
    day, time = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3)
    table = pa.table(
        {
            "other": pa.array([1]),
            "at": pa.array([time], pa.timestamp("ns")),
            "day": pa.array([day]),
            "tags": pa.array([["a"]], pa.large_list(pa.large_string())),
            "counts": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            "inner": pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    expected = {
        "day": day,
        "at": time.replace(tzinfo=UTC),
        "tags": ["a"],
        "counts": {"k": 1},
        "inner": {"a": 1, "b": None},
        "here": 3,
        "perhaps": None,
    }
    assert read(AvroParquetReaders.for_generic_record(schema), tmp_path) == [expected]
    only_defaults = record_of(field("here", "int", default=3))
    assert read(AvroParquetReaders.for_generic_record(only_defaults), tmp_path) == [{"here": 3}]
    with pytest.raises(
        MillstreamError, match=r"a record of .*a.parquet does not match the schema: field 'x' is missing"
    ):
        read(AvroParquetReaders.for_generic_record(POINT), tmp_path)
    pq.write_table(pa.table({"inner": pa.array([{"a": None, "b": "x"}])}), tmp_path / "b.parquet")
    with pytest.raises(
        MillstreamError, match=r"a record of .*b.parquet does not match the schema: field 'inner.a' is N"
    ):
        read(AvroParquetReaders.for_generic_record(record_of(field("inner", INNER))), tmp_path / "b.parquet")
    (tmp_path / "b.parquet").unlink()
    wrong = record_of(field("tags", "int"))
    with pytest.raises(MillstreamError, match=r"column 'tags' of .*a.parquet does not fit the type int"):
        read(AvroParquetReaders.for_generic_record(wrong), tmp_path)


def test_avro_parquet_reader_names_damaged_file(tmp_path: Path) -> None:
    data = parquet_bytes(NUMBERED, numbered(1000))
    for name, content in {"text": b"not parquet", "short": data[:-9], "pages": bytes(2000) + data[2000:]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "b.parquet").write_bytes(content)
        with pytest.raises(MillstreamError, match=r"b.parquet is not a complete Parquet file"):
            read(AvroParquetReaders.for_generic_record(NUMBERED), tmp_path / name)


# --- what Flink wrote, as recorded by tests/pyflink/formats/record_avro.py

FLINKS = TESTS / "pyflink" / "formats"


@pytest.mark.parametrize("name", ["flink.avro", "flink.parquet"])
def test_avro_formats_read_files_written_by_flink(name: str) -> None:
    spec = importlib.util.spec_from_file_location("avro_cases", FLINKS / "avro_cases.py")
    assert spec is not None and spec.loader is not None
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    schema = AvroSchema(json.dumps(cases.SCHEMA))
    formats = {"flink.avro": AvroFormat(schema), "flink.parquet": AvroParquetReaders.for_generic_record(schema)}
    assert read(formats[name], FLINKS / name) == cases.RECORDS


# --- messages


def test_avro_row_schemas_round_trip_messages() -> None:
    write = pickle.loads(cloudpickle.dumps(AvroRowSerializationSchema(avro_schema_string=str(ALL))))
    read_row = pickle.loads(cloudpickle.dumps(AvroRowDeserializationSchema(avro_schema_string=str(ALL))))
    row = Row.of(tuple(VALUES), list(VALUES.values()))
    message = write.serialize(row)
    assert fastavro.schemaless_reader(io.BytesIO(message), ALL.parsed, None) == VALUES
    received = read_row.deserialize(message)
    assert received.nested == Row(a=1, b=None) and received.again == Row(a=2, b="x")
    assert received.array == [1, None, 3] and received.map == {"k": ["v"], "e": []}
    # A row's types have no time zone, and there is none for UUIDs.
    assert received.ts_us == datetime.datetime(2024, 1, 2, 3, 4, 5, 678901) and received.uuid == str(UUID(int=5))
    assert (received.decimal, received.fixed, received.enum) == (Decimal("-1234567.891"), b"ab", "BLUE")
    convert = read_row.get_produced_type().converter()
    assert convert(received) == received
    assert read_row.deserialize(write.serialize(received)) == received


def test_avro_row_schema_produces_types_of_flink() -> None:
    produced = AvroRowDeserializationSchema(avro_schema_string=str(ALL)).get_produced_type()
    assert produced is not None
    types = dict(zip(produced.get_field_names(), produced.get_field_types(), strict=True))  # type: ignore[attr-defined]
    inner = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    assert (types["nested"], types["again"]) == (inner, inner)
    assert types["array"] == Types.OBJECT_ARRAY(Types.LONG())
    assert types["map"] == Types.MAP(Types.STRING(), Types.OBJECT_ARRAY(Types.STRING()))
    assert (types["enum"], types["uuid"], types["some"]) == (Types.STRING(), Types.STRING(), Types.INT())
    assert types["union"] == Types.PICKLED_BYTE_ARRAY()
    assert types["bytes"] == types["fixed"] == Types.PRIMITIVE_ARRAY(Types.BYTE())
    assert types["decimal"] == types["fixed_decimal"] == Types.BIG_DEC()
    assert (types["date"], types["time_ms"], types["ts_us"]) == (
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
    )


def test_avro_row_schemas_report_invalid_messages() -> None:
    text = str(NUMBERED)
    with pytest.raises(MillstreamError, match=r"The Avro message b'' cannot be read \(.+\); read it with the schema"):
        AvroRowDeserializationSchema(avro_schema_string=text).deserialize(b"")
    with pytest.raises(MillstreamError, match=r"The Avro message b'\\x02\\x08' cannot be read"):
        AvroRowDeserializationSchema(avro_schema_string=text).deserialize(b"\x02\x08")
    with pytest.raises(TypeMismatchError, match=r"the row <Row\('x', 'y'\)> cannot be written: field 'number' is 'x'"):
        AvroRowSerializationSchema(avro_schema_string=text).serialize(Row("x", "y"))
    for schema in (AvroRowSerializationSchema, AvroRowDeserializationSchema):
        with pytest.raises(InvalidProgramError, match="'org.Person' cannot be used, Millstream has no Java objects"):
            schema("org.Person")
        with pytest.raises(TypeError, match="set the schema as avro_schema_string"):
            schema()
        with pytest.raises(InvalidProgramError, match="takes the schema of a record, not of 'int'"):
            schema(avro_schema_string='"int"')
        with pytest.warns(DeprecationWarning, match=r"import it from millstream.datastream.formats.avro"):
            assert getattr(common_serialization, schema.__name__) is schema
