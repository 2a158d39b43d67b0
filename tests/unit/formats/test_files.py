"""CSV, JSON and Parquet: files in jobs, errors with positions, writers, and deprecated names."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import math
import pickle
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.common import Configuration, Encoder, Row, Types
from millstream.common import serialization as common_serialization
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import ByteArraySchema, RowFieldExtractorSchema, SimpleStringSchema
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from millstream.datastream.formats.json import (
    JsonLinesFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from millstream.formats import arrow_rows as arrow_files
from millstream.formats import file_format as file_formats
from millstream.formats import file_format as lines
from millstream.formats.csv.dialect import CsvDialect, record_end_near
from millstream.formats.file_format import FileFormat
from millstream.table import DataTypes
from millstream.testing.local_job import LocalJob
from tests.support.format_files import read, source_of

Env = StreamExecutionEnvironment
PEOPLE = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
SCHEMA = CsvSchema.builder().add_string_column("name").add_number_column("age", Types.INT()).build()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_formats, "MIN_SPLIT_BYTES", 50)
    monkeypatch.setattr(file_formats, "MAX_SPLIT_BYTES", 200)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 37)


def tuples(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


# --- CSV


def test_csv_reader_emits_typed_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Ann,7\nBob,8\n")
    env = Env.get_execution_environment().set_parallelism(1)
    stream = env.from_source(source_of(CsvReaderFormat.for_schema(SCHEMA), tmp_path))
    assert stream.get_type() == PEOPLE
    (row, _) = read(CsvReaderFormat.for_schema(SCHEMA), tmp_path)
    assert (row.name, row["age"]) == ("Ann", 7)


def test_csv_decimal_columns_have_the_scale_of_their_type(tmp_path: Path) -> None:
    schema = (
        CsvSchema.builder()
        .add_number_column("n", DataTypes.DECIMAL(2, 0))
        .add_number_column("any", Types.BIG_DEC())
        .add_array_column("each", ";", DataTypes.DECIMAL(3, 1))
        .build()
    )
    (tmp_path / "a.csv").write_text("1.5,1.50,1;2.25\n99.5,1E+2,100\n")
    rows = read(CsvReaderFormat.for_schema(schema), tmp_path)
    # As DecimalData: rounded half up, and null on overflow.
    assert [[str(v) for v in row] for row in rows] == [
        ["2", "1.50", "[Decimal('1.0'), Decimal('2.3')]"],
        ["None", "1E+2", "[None]"],
    ]
    out = io.BytesIO()
    writer = CsvBulkWriters.for_schema(schema).open(out)
    writer.add_element(Row(n=Decimal("1.5"), any=Decimal("1.50"), each=[Decimal("2.25")]))
    writer.finish()
    assert out.getvalue() == b"2,1.50,2.3\n"


WHOLE = {Types.BYTE(): 7, Types.SHORT(): 15, Types.INT(): 31, Types.LONG(): 63}


@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize("text", ["1_000", "NaN", "Infinity", "sNaN", "\u0661"])
@pytest.mark.parametrize("kind", [Types.BIG_DEC(), Types.BIG_INT(), Types.DOUBLE(), Types.FLOAT(), Types.INT()])
def test_csv_rejects_numbers_that_java_rejects(tmp_path: Path, text: str, kind: Any, is_array: bool) -> None:
    if text in ("NaN", "Infinity") and str(kind) in ("Double", "Float"):
        pytest.skip("a number for Java")
    if text == "\u0661" and str(kind) in ("BigInteger", "Integer", "BigDecimal"):
        pytest.skip("a digit for Java")
    (tmp_path / "a.csv").write_text(f"{text}\n")
    with pytest.raises(MillstreamError, match="is not of the type"):
        read(CsvReaderFormat.for_schema(_column(kind, is_array)), tmp_path)


def _column(kind: Any, is_array: bool) -> CsvSchema:
    builder = CsvSchema.builder()
    return (builder.add_array_column("n", ";", kind) if is_array else builder.add_number_column("n", kind)).build()


# Results of Java's parseByte, parseInt, parseFloat ... for the trimmed text.
@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        *((kind, str(-(2**bits)), -(2**bits)) for kind, bits in WHOLE.items()),
        *((kind, str(2**bits - 1), 2**bits - 1) for kind, bits in WHOLE.items()),
        (Types.INT(), " +5 ", 5),
        (Types.BIG_INT(), f"-{2**70}", -(2**70)),
        (Types.DOUBLE(), " 1.5 ", 1.5),
        (Types.DOUBLE(), " 1.5d ", 1.5),
        (Types.DOUBLE(), "+Infinity", math.inf),
        (Types.DOUBLE(), "-Infinity", -math.inf),
        (Types.FLOAT(), "0.1", 0.10000000149011612),
        (Types.FLOAT(), "1e39", math.inf),
        (Types.FLOAT(), "-1e39", -math.inf),
        (DataTypes.DECIMAL(38, 2), f"{'9' * 36}.994", Decimal(f"{'9' * 36}.99")),
        (DataTypes.DECIMAL(2, 0), "1E+200", None),
        (Types.BIG_DEC(), "\u0661.5", Decimal("1.5")),
    ],
)
def test_csv_reads_numbers_at_the_bounds_of_their_types(
    tmp_path: Path, kind: Any, text: str, value: Any, is_array: bool
) -> None:
    (tmp_path / "a.csv").write_text(f"{text}\n")
    (row,) = read(CsvReaderFormat.for_schema(_column(kind, is_array)), tmp_path)
    assert row.n == ([value] if is_array else value)


@pytest.mark.parametrize("is_array", [False, True])
@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("sign", [1, -1])
def test_csv_rejects_integers_beyond_the_bounds_of_their_types(
    tmp_path: Path, kind: Any, sign: int, is_array: bool
) -> None:
    text = str(2 ** WHOLE[kind] if sign > 0 else -(2 ** WHOLE[kind]) - 1)
    (tmp_path / "a.csv").write_text(f"{text}\n")
    with pytest.raises(MillstreamError, match=f"{text}.* is not of the type"):
        read(CsvReaderFormat.for_schema(_column(kind, is_array)), tmp_path)


_fields = st.text(st.sampled_from("ab\",;\n\r\\ #'é\t|"), max_size=6)


@given(st.lists(st.tuples(_fields, st.integers(-(2**31), 2**31 - 1)), max_size=12), st.sampled_from([None, "\\", "'"]))
@settings(max_examples=200, deadline=None)
def test_csv_round_trips_rows(rows: list[tuple[str, int]], escape: str | None) -> None:
    import tempfile

    schema = SCHEMA
    if escape is not None:
        builder = CsvSchema.builder().add_columns_from(SCHEMA).set_escape_char(escape)
        schema = builder.build()
    file = io.BytesIO()
    writer = CsvBulkWriters.for_schema(schema).open(file)
    for row in rows:
        writer.add_element(row)
    writer.finish()
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "a").write_bytes(file.getvalue())
        assert tuples(read(CsvReaderFormat.for_schema(schema), Path(directory))) == rows


@given(st.text(st.sampled_from('ab",\n\r '), max_size=30))
@settings(max_examples=500, deadline=None)
def test_csv_fast_parser_equals_the_exact_one(text: str) -> None:
    dialect = CsvDialect()

    def attempt(read: Any) -> Any:
        try:
            return read(text)
        except ValueError:
            return "an error"

    assert attempt(dialect.records) == attempt(lambda t: [fields for _, fields in dialect.exactly(t)])


def test_csv_reads_fields_spanning_blocks(tmp_path: Path) -> None:
    rows = [("line\n" * n, n) for n in range(40)]
    writer = CsvBulkWriters.for_schema(SCHEMA)
    with open(tmp_path / "a.csv", "wb") as file:
        one = writer.open(file)
        for row in rows:
            one.add_element(row)
        one.finish()
    assert tuples(read(CsvReaderFormat.for_schema(SCHEMA), tmp_path, 3, 1)) == rows


# Mostly special characters, so that a few hundred examples suffice.
_quoted_text = st.text(st.sampled_from('a""",,\n\n\r '), max_size=40)


@given(_quoted_text, st.integers(1, 10))
@example('"aaa,""\n"', 1)
@settings(max_examples=500, deadline=None)
def test_csv_pieces_equal_the_whole_file(text: str, length: int) -> None:
    dialect = CsvDialect()
    data = text.encode()
    try:
        whole = dialect.records(text)
    except ValueError:
        return
    records, offset = [], 0
    while offset < len(data):
        to = record_end_near(io.BytesIO(data), offset, min(offset + length, len(data)), len(data), dialect)
        assert offset < to <= len(data)
        records += dialect.records(data[offset:to].decode())
        offset = to
    assert records == whole


def test_csv_large_file_is_read_over_many_epochs_by_one_subtask(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"Ann\nof York",7\nBob,8\n' * 500)
    csv = CsvReaderFormat.for_schema(SCHEMA)
    enumerator = source_of(csv, tmp_path).create_enumerator(3)
    split_ranges = []
    while not enumerator.is_finished():
        assignment = enumerator.poll(10, 0.0)
        assert list(assignment.split_ranges) == [0] and assignment.limited != enumerator.is_finished()
        split_ranges += assignment.split_ranges[0]
    assert len(split_ranges) > 10
    assert tuples(read(csv, tmp_path, 3, 10)) == [("Ann\nof York", 7), ("Bob", 8)] * 500


@pytest.mark.parametrize("parallelism", [1, 3])
def test_csv_with_single_lines_is_split(tmp_path: Path, parallelism: int) -> None:
    schema = CsvSchema.builder().add_columns_from(SCHEMA).set_use_header().set_strict_headers().build()
    rows = [(f'"name {i}', i) for i in range(100)]
    (tmp_path / "a.csv").write_text("name,age\n" + "".join(f'"""name {i}",{i}\n' for i in range(100)))
    csv = CsvReaderFormat.for_schema(schema).with_single_lines()
    assert len(source_of(csv, tmp_path).create_enumerator(3).poll(1, 0.0).split_ranges) == 3
    assert Counter(tuples(read(csv, tmp_path, parallelism, 1))) == Counter(rows)


def test_csv_open_quote_with_single_lines_affects_only_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('Ann,1\n"Bob,2\nCyd,3\n"Dan",4\n"Eve,5\n' * 20)
    csv = CsvReaderFormat.for_schema(SCHEMA).with_single_lines()
    expected = Counter({("Ann", 1): 20, ("Cyd", 3): 20, ("Dan", 4): 20})
    for budget in (1, 2, 1 << 30):
        assert Counter(tuples(read(csv.with_ignore_parse_errors(), tmp_path, 2, budget))) == expected
    with pytest.raises(MillstreamError, match=r"a.csv, line 2 \(byte 6\): .* cannot be read: a quote is not closed"):
        read(csv, tmp_path)


@pytest.mark.parametrize(
    ("text", "where", "reason"),
    [
        (
            "Ann,7\n" * 50 + "Bob,eight\nCyd,9\n",
            r"line 51 \(byte 300\)",
            "'eight' in column 'age' is not of the type Integer",
        ),
        ("é,7\n" * 50 + "Bob\n", r"line 51 \(byte 250\)", "has 1 fields where 2"),
        ("Ann,7\nBob,8,9\n", r"line 2 \(byte 6\)", "more than 2 fields; the next is '9'"),
        ('Ann,7\n"B"ob,8\n', r"line 2 \(byte 9\)", "'o' follows a closing quote"),
        ('Ann,7\n"Bob,8\n', r"line 2 \(byte 6\)", "a quote is not closed"),
        ("Ann,7\n\n", r"line 2 \(byte 6\)", "has 1 fields"),
    ],
)
def test_csv_reports_the_location_of_malformed_records(tmp_path: Path, text: str, where: str, reason: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    csv = CsvReaderFormat.for_schema(SCHEMA)
    with pytest.raises(MillstreamError, match=f"a.csv, {where}: .*{reason}.*on_bad_records"):
        read(csv, tmp_path)
    good = [row for row in tuples(read(csv.with_ignore_parse_errors(), tmp_path)) if row[0] != "Bob"]
    assert len(good) == text.count(",7\n") + text.count("Cyd,9")


def test_csv_reports_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"Ann,7\nB\xffb,8\n")
    with pytest.raises(
        MillstreamError, match=r"line 2 \(byte 6\): b'B\\xffb,8' cannot be read: byte 0xff is not UTF-8"
    ):
        read(CsvReaderFormat.for_schema(SCHEMA), tmp_path)


def test_csv_headers(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_columns_from(SCHEMA).set_use_header().set_strict_headers().build()
    (tmp_path / "a.csv").write_text("age,name\n7,Ann\n")
    with pytest.raises(MillstreamError, match="the header of .*a.csv is .*'age', 'name'"):
        read(CsvReaderFormat.for_schema(schema), tmp_path)
    commented = CsvSchema.builder().add_columns_from(SCHEMA).set_use_header().set_allow_comments().build()
    (tmp_path / "a.csv").write_text("# made by hand\n\nname,age\n# people\nAnn,7\n")
    assert tuples(read(CsvReaderFormat.for_schema(commented), tmp_path)) == [("Ann", 7)]


def test_csv_reads_compressed_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"Ann,7\n" * 100))
    assert len(read(CsvReaderFormat.for_schema(SCHEMA).with_single_lines(), tmp_path, 2, 1)) == 100


def test_csv_schema_settings_and_errors() -> None:
    builder = CsvSchema.builder().add_columns_from(SCHEMA).add_array_column("tags", "|").add_boolean_column("ok")
    schema = builder.build()
    assert len(schema) == schema.size() == len(builder) == builder.size() == 4
    assert "tags: ListTypeInfo<String>" in str(schema)
    assert len(builder.clear_columns().build()) == 0
    for broken in (
        lambda: CsvSchema.builder().set_column_separator("||"),
        lambda: CsvSchema.builder().add_number_column("n", "INT"),  # type: ignore[arg-type]
        lambda: CsvReaderFormat.for_schema(CsvSchema.builder().build()),
        lambda: CsvRowDeserializationSchema.Builder(Types.INT()),
        lambda: CsvRowDeserializationSchema.Builder(Types.ROW([Types.MAP(Types.STRING(), Types.INT())])).build(),
        lambda: CsvRowSerializationSchema.Builder(PEOPLE).set_line_delimiter("x"),
    ):
        with pytest.raises(InvalidProgramError):
            broken()


# --- JSON


def test_json_lines_reads_typed_rows(tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [{"name": f"é{i}", "age": i, "more": [i, {"x": None}]} for i in range(60)]
    text = "".join(f"{json.dumps(d, ensure_ascii=bool(d['age'] % 2))}\r\n" for d in documents) + "\n  \n"
    (tmp_path / "a.json").write_text(text)
    by_age = sorted(read(JsonLinesFormat(), tmp_path, 3, 1), key=lambda d: d["age"])
    assert by_age == documents
    rows = tuples(read(JsonLinesFormat(PEOPLE), tmp_path, 2, 2))
    assert sorted(rows, key=lambda r: r[1]) == [(d["name"], d["age"]) for d in documents]


@pytest.mark.parametrize("typed", [False, True])
def test_json_lines_reports_the_location_of_malformed_lines(tmp_path: Path, typed: bool) -> None:
    good = '{"name": "é", "age": 1}\n'
    (tmp_path / "a.json").write_text(good * 10 + '{"name": "B\n' + good)
    row_type = PEOPLE if typed else None
    where = rf"a.json, line 11 \(byte {len(good.encode()) * 10}\): .*on_bad_records"
    with pytest.raises(MillstreamError, match=where):
        read(JsonLinesFormat(row_type), tmp_path)
    assert len(read(JsonLinesFormat(row_type, ignore_parse_errors=True), tmp_path)) == 11
    if typed:
        (tmp_path / "a.json").write_text('{"name": "x"}\n{"name": "x", "age": "y"}')
        with pytest.raises(MillstreamError, match="line 1 .*there is no field 'age'"):
            read(JsonLinesFormat(row_type, fail_on_missing_field=True), tmp_path)
        with pytest.raises(MillstreamError, match="line 2 .*'y' in field 'age' is not of the type Integer"):
            read(JsonLinesFormat(row_type), tmp_path)


NESTED = Types.ROW_NAMED(
    ["row", "map", "list", "bytes", "date", "time", "stamp", "dec", "any"],
    [
        PEOPLE,
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.LIST(PEOPLE),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.BIG_DEC(),
        Types.PICKLED_BYTE_ARRAY(),
    ],
)
NESTED_ROW = Row(
    Row("Ann", 7),
    {"a": 1, "b": None},
    [Row("Bob", None), None],
    b"\x00\xff",
    datetime.date(2020, 1, 2),
    datetime.time(1, 2, 3),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 600),
    Decimal("1.50"),
    {"x": [1, None]},
)


def test_json_row_schema_round_trips_nested_rows() -> None:
    writer = JsonRowSerializationSchema.builder().with_type_info(NESTED).build()
    reader = JsonRowDeserializationSchema.builder().type_info(NESTED).build()
    convert = NESTED.converter()
    assert convert is not None
    message = pickle.loads(cloudpickle.dumps(writer)).serialize(NESTED_ROW)
    decoded = pickle.loads(cloudpickle.dumps(reader)).deserialize(message)
    assert decoded == convert(NESTED_ROW) and decoded.row.name == "Ann" and decoded.list[0].name == "Bob"
    empty = Row(*[None] * 9)
    copy = reader.deserialize(writer.serialize(empty))
    assert copy is not None and list(copy) == list(empty)


def test_json_row_schema_builds_from_json_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "in": {"type": "object", "properties": {"ok": {"type": ["boolean", "null"]}}},
        },
    }
    reader = JsonRowDeserializationSchema.builder().json_schema(json.dumps(schema)).build()
    decoded = reader.deserialize(b'{"id": 7, "at": "2020-01-02T03:04:05Z", "tags": ["a"], "in": {"ok": true}}')
    assert decoded is not None
    assert tuple(decoded) == (
        Decimal(7),
        datetime.datetime(2020, 1, 2, 3, 4, 5),
        ["a"],
        Row(ok=True),
    )
    for broken in ("x", "{}", '{"type": "null"}'):
        with pytest.raises(InvalidProgramError, match="json_schema"):
            JsonRowDeserializationSchema.builder().json_schema(broken)
    with pytest.raises(InvalidProgramError, match="type_info"):
        JsonRowDeserializationSchema.builder().build()


# --- Parquet


def write_parquet(path: Path, row_type: Any, rows: list[Any], config: Configuration | None = None) -> None:
    with open(path, "wb") as file:
        factory = pickle.loads(cloudpickle.dumps(ParquetBulkWriters.for_row_type(row_type, config)))
        writer = factory.open(file)
        for row in rows:
            writer.add_element(row)
        writer.finish()


PARQUET = Types.ROW_NAMED(NESTED.get_field_names()[:8], NESTED.get_field_types()[:8])


def test_parquet_round_trips_nested_rows(tmp_path: Path) -> None:
    row = Row(*list(NESTED_ROW)[:8])
    write_parquet(tmp_path / "a.parquet", PARQUET, [row, Row(*[None] * 8)])
    (decoded, empty) = read(ParquetColumnarRowInputFormat(PARQUET), tmp_path)
    convert = PARQUET.converter()
    assert convert is not None and decoded == convert(row) and list(empty) == [None] * 8
    assert decoded.list[0].name == "Bob"


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_parquet_row_groups_are_read_in_parallel(
    tmp_path: Path, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_files, "BATCH_ROWS", 10)
    rows = [(f"n{i}", i) for i in range(95)]
    for i in range(3):
        write_parquet(tmp_path / f"{i}.parquet", PEOPLE, rows, Configuration.from_dict({"parquet.compression": "GZIP"}))
    source = source_of(ParquetColumnarRowInputFormat(PEOPLE, batch_size=3), tmp_path)
    enumerator = source.create_enumerator(parallelism)
    assert all(
        split_range.end - split_range.start == 1
        for split_ranges in enumerator.poll(1, 0.0).split_ranges.values()
        for split_range in split_ranges
    )
    rng = random.Random(parallelism)
    records = read(
        ParquetColumnarRowInputFormat(PEOPLE, batch_size=3), tmp_path, parallelism, rng.choice([1, 15, 1000])
    )
    assert Counter(tuples(records)) == Counter(dict.fromkeys(rows, 3))


def test_parquet_selects_columns_by_name(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", PEOPLE, [("Ann", 7)])
    wider = Types.ROW_NAMED(["AGE", "missing"], [Types.LONG(), Types.STRING()])
    assert tuples(read(ParquetColumnarRowInputFormat(wider), tmp_path)) == [(None, None)]
    assert tuples(read(ParquetColumnarRowInputFormat(wider, is_case_sensitive=False), tmp_path)) == [(7, None)]
    with pytest.raises(MillstreamError, match="column 'name' of .*a.parquet does not fit the type Integer"):
        read(ParquetColumnarRowInputFormat(Types.ROW_NAMED(["name"], [Types.INT()])), tmp_path)
    write_parquet(tmp_path / "empty.parquet", PEOPLE, [])
    assert len(read(ParquetColumnarRowInputFormat(PEOPLE), tmp_path)) == 1
    (tmp_path / "b.parquet").write_text("not parquet")
    with pytest.raises(MillstreamError, match="b.parquet is not a complete Parquet file"):
        read(ParquetColumnarRowInputFormat(PEOPLE), tmp_path)


def test_parquet_rejects_unsupported_types() -> None:
    with pytest.raises(InvalidProgramError, match=r"takes a row type such as .* or DataTypes.ROW\("):
        ParquetColumnarRowInputFormat("ROW<a INT>")  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="Parquet does not support"):
        ParquetBulkWriters.for_row_type(Types.ROW([Types.PICKLED_BYTE_ARRAY()]))


# --- messages and sinks


def test_simple_schemas_serialize_and_deserialize() -> None:
    assert SimpleStringSchema("latin-1").serialize("é") == b"\xe9"
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(b"x")) == b"x"
    with pytest.raises(InvalidProgramError, match="non-negative"):
        RowFieldExtractorSchema(-1)
    with pytest.raises(MillstreamError, match="must be bytes"):
        RowFieldExtractorSchema(0).serialize(Row("x"))


def test_deprecated_schema_import_path_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"import it from millstream.datastream.formats.json"):
        assert common_serialization.JsonRowSerializationSchema is JsonRowSerializationSchema  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = common_serialization.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "csv rows"])
def test_file_sink_writes_every_format(tmp_path: Path, kind: str) -> None:
    json_rows = JsonRowSerializationSchema.builder().with_type_info(PEOPLE).build()
    base = str(tmp_path / "out")
    builders: dict[str, Any] = {
        "csv": lambda: FileSink.for_bulk_format(base, CsvBulkWriters.for_schema(SCHEMA)),
        "csv rows": lambda: FileSink.for_row_format(
            base, Encoder.of_schema(CsvRowSerializationSchema.Builder(PEOPLE).build())
        ),
        "json": lambda: FileSink.for_row_format(base, Encoder.of_schema(json_rows)),
        "parquet": lambda: FileSink.for_bulk_format(base, ParquetBulkWriters.for_row_type(PEOPLE)),
    }
    formats: dict[str, FileFormat] = {
        "csv": CsvReaderFormat.for_schema(SCHEMA),
        "csv rows": CsvReaderFormat.for_schema(SCHEMA),
        "json": JsonLinesFormat(PEOPLE),
        "parquet": ParquetColumnarRowInputFormat(PEOPLE),
    }
    people = [(f"name {i}", i) for i in range(200)]
    env = Env.get_execution_environment().set_parallelism(2)
    sink = builders[kind]().with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    env.from_collection(people, PEOPLE).rebalance().sink_to(sink)
    LocalJob(env, epoch_sizes=lambda: 30).run()
    assert sorted(tuples(read(formats[kind], tmp_path / "out", 3)), key=lambda r: r[1]) == people
