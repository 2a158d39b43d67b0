"""read_csv, read_json and read_parquet: inferred columns, partitions, patterns, and values that do not fit."""

from __future__ import annotations

import datetime as dt
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Row
from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.time import Duration
from millstream.formats.csv.table import CsvFileFormat
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FileSplitRange
from millstream.formats.inference import csv_columns
from millstream.formats.options import Options
from millstream.sql.columns.value_conversion import to_python
from millstream.table import DataTypes, EnvironmentSettings, Schema, StreamTableEnvironment, Table
from millstream.table.expressions import col
from millstream.testing import LocalEnvironment


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    return StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())


def rows(table: Table) -> list[tuple[Value, ...]]:
    return [tuple(r) for r in table.execute().collect()]


def types(table: Table) -> dict[str, str]:
    return {c.get_name(): str(c.get_data_type()) for c in table.get_resolved_schema().get_columns()}


# --- CSV


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "-2", ""], "BIGINT", [1, -2, None]),
        (["9223372036854775807"], "BIGINT", [2**63 - 1]),
        (["9223372036854775808"], "STRING", ["9223372036854775808"]),
        (["007"], "STRING", ["007"]),
        (["+49301234"], "STRING", ["+49301234"]),
        (["1", "2.5"], "DOUBLE", [1.0, 2.5]),
        (["1e3", "-.5", "2."], "DOUBLE", [1000.0, -0.5, 2.0]),
        (["0.5", "9007199254740993"], "STRING", ["0.5", "9007199254740993"]),
        (["1e999"], "STRING", ["1e999"]),
        (["true", "FALSE"], "BOOLEAN", [True, False]),
        (["true", "1"], "STRING", ["true", "1"]),
        (["2024-01-31"], "DATE", [dt.date(2024, 1, 31)]),
        (["2024-02-30"], "STRING", ["2024-02-30"]),
        (["2024-01-31 10:00:00.5"], "TIMESTAMP(3)", [dt.datetime(2024, 1, 31, 10, 0, 0, 500_000)]),
        (["2024-01-31T10:00"], "TIMESTAMP(3)", [dt.datetime(2024, 1, 31, 10)]),
        (["2024-01-31T10:00:00.123456"], "TIMESTAMP(6)", [dt.datetime(2024, 1, 31, 10, 0, 0, 123_456)]),
        (["2024-01-31T10:00:00.1234567"], "STRING", ["2024-01-31T10:00:00.1234567"]),
        (["2024-01-31", "2024-01-31 10:00:00"], "STRING", ["2024-01-31", "2024-01-31 10:00:00"]),
        (["a", ""], "STRING", ["a", None]),
        (["", ""], "STRING", [None, None]),
    ],
    ids=str,
)  # fmt: skip
def test_read_csv_infers_first_type_that_keeps_all_values(
    t_env: StreamTableEnvironment, tmp_path: Path, texts: list[str], kind: str, values: list[Value]
) -> None:
    (tmp_path / "a.csv").write_text("n,v\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
    table = t_env.read_csv(tmp_path / "a.csv")
    assert types(table) == {"n": "BIGINT", "v": kind}
    assert [v for _, v in rows(table)] == values


def test_read_csv_timestamp_with_offset_is_timestamp_ltz(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at\n2024-01-31T10:00:00Z\n2024-01-31 10:00:00+02:00\n")
    table = t_env.read_csv(tmp_path)
    assert types(table) == {"at": "TIMESTAMP_LTZ(3)"}
    assert [at - second for (at,), (second,) in [rows(table)]] == [dt.timedelta(hours=2)]


@pytest.mark.parametrize(
    ("first", "later", "kind"),
    [
        ("1", "x", "BIGINT"),
        ("1", "2.5", "BIGINT"),
        ("1", "007", "BIGINT"),
        ("1", "9223372036854775808", "BIGINT"),
        ("2.5", "9007199254740993", "DOUBLE"),
        ("2.5", "1,5", "DOUBLE"),
        ("true", "yes", "BOOLEAN"),
        ("2024-01-31", "31.01.2024", "DATE"),
        ("2024-01-31 10:00:00", "2024-01-31 10:00:00.1234", r"TIMESTAMP\(3\)"),
        ("2024-01-31 10:00:00", "2024-01-31 10:00:00Z", r"TIMESTAMP\(3\)"),
        ("2024-01-31 10:00:00Z", "2024-01-31 10:00:00", r"TIMESTAMP_LTZ\(3\)"),
    ],
)
def test_read_csv_later_value_that_does_not_fit_fails_with_its_line_and_fix(
    t_env: StreamTableEnvironment, tmp_path: Path, first: str, later: str, kind: str
) -> None:
    (tmp_path / "a.csv").write_text(f'k,v\na,{first}\nb,\nc,"{later}"\n')
    table = t_env.read_csv(tmp_path, infer_rows=1)
    with pytest.raises(
        MillstreamError,
        match=rf"a.csv, line 4 \(byte \d+\): '.*' in column 'v' is not of type {kind}: .*Pass the type with "
        r"schema=\{'v': DataTypes.STRING\(\)\}, or infer the types from more rows with infer_rows=",
    ):
        rows(table)
    assert rows(t_env.read_csv(tmp_path, infer_rows=1, schema={"v": DataTypes.STRING()}))[-1] == ("c", later)
    assert rows(t_env.read_csv(tmp_path, infer_rows=None))[0][0] == "a"


def test_read_csv_infers_from_rows_of_several_files(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\na,1\n")
    (tmp_path / "b.csv").write_text("v,k\n2.5,b\n")
    assert types(t_env.read_csv(tmp_path, infer_rows=2)) == {"k": "STRING", "v": "DOUBLE"}
    assert types(t_env.read_csv(tmp_path, infer_rows=1)) == {"k": "STRING", "v": "BIGINT"}


def test_read_csv_options_of_dialect(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# comment\nname;n;x\n'a;b';NA;\n'';2;'NA'\n", encoding="utf-8")
    table = t_env.read_csv(
        tmp_path, delimiter=";", quote="'", null_literal="NA", options={"csv.allow-comments": "true"}
    )
    assert types(table) == {"name": "STRING", "n": "BIGINT", "x": "STRING"}
    assert rows(table) == [("a;b", None, ""), ("", 2, None)]
    (tmp_path / "b.csv").write_text('a"§1\n')
    assert rows(t_env.read_csv(tmp_path / "b.csv", header=False, delimiter="§", quote=None)) == [('a"', 1)]


def test_read_csv_without_header_names_columns_by_position(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a\n2,b\n")
    assert types(t_env.read_csv(tmp_path, header=False)) == {"f0": "BIGINT", "f1": "STRING"}
    # The header would be taken for a row otherwise.
    (tmp_path / "a.csv").write_text("id,name\n1,a\n")
    table = t_env.read_csv(tmp_path, header=False, schema={"f0": "INT"})
    with pytest.raises(MillstreamError, match="line 1 .*If it is a header, pass header=True; otherwise correct the li"):
        rows(table)


def test_read_csv_unnamed_column_is_called_by_position(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",n\n0,a\n")
    assert rows(t_env.read_csv(tmp_path).select(col("n"), col("f0"))) == [("a", 0)]


def test_read_csv_with_complete_schema_is_an_ordinary_table(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,id\nx,007\n")
    row = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.INT()), DataTypes.FIELD("n", DataTypes.STRING())])
    assert rows(t_env.read_csv(tmp_path, schema=row)) == [(7, "x")]
    schema = Schema.new_builder().column("id", "STRING").column("n", "STRING").column_by_expression("m", "n || '!'")
    assert rows(t_env.read_csv(tmp_path, schema=schema.build())) == [("007", "x", "x!")]


def test_read_csv_watermark_makes_event_time(tmp_path: Path) -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    (tmp_path / "a.csv").write_text("at,n\n2024-01-01 00:00:01,1\n2024-01-01 00:00:02,2\n2024-01-01 00:01:00,4\n")
    events = t_env.read_csv(tmp_path, watermark=("at", "`at` - INTERVAL '1' SECOND"))
    assert types(events)["at"] == "TIMESTAMP(3)"
    t_env.create_temporary_view("events", events)
    windows = "TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' MINUTE)"
    query = f"SELECT SUM(n) FROM TABLE({windows}) GROUP BY window_start, window_end"
    assert rows(t_env.sql_query(query)) == [(3,), (4,)]


@pytest.mark.parametrize(
    ("files", "kwargs", "message"),
    [
        ({}, {}, r"read_csv\(\): there is no file with rows in .*; correct the path, or pass the columns with schema="),
        ({"a.csv": "\n"}, {}, r"read_csv\(\): the files in .* have no rows, from which columns can be inferred"),
        ({"a.csv": "a,a\n"}, {}, "the column 'a' twice; rename one"),
        ({"a.csv": "a\n"}, {"schema": {"b": "INT"}}, r"schema= has the column 'b', but the files in .* have only 'a'"),
        ({"a.csv": "a\n"}, {"infer_rows": 0}, r"read_csv\(\) takes infer_rows of at least 1, not 0"),
        ({"a.csv": "a\n"}, {"monitor": Duration.of_seconds(1)}, r"monitor= needs streaming mode"),
        ({"x=1/a.csv": "x\n"}, {}, "the column 'x' is in the files and in the names of the directories"),
        (
            {"x=1/a.csv": "a\n", "y=1/a.csv": "a\n"},
            {},
            r"a.csv is in a directory with the partition columns \['x'\], b",
        ),
        ({"a.csv": "a\n1\n", "b.csv": "b\n1\n"}, {}, "b.csv lacks the column 'a' and has the column 'b'"),
        ({"a.csv": 'a\n"1\n'}, {}, "a.csv, line 2 .*: a quote is not closed"),
    ],
    ids=[
        "no file",
        "no row",
        "twice",
        "unknown",
        "no rows",
        "batch",
        "conflict",
        "directories",
        "headers",
        "malformed",
    ],
)
def test_read_csv_error_says_how_to_fix_it(
    t_env: StreamTableEnvironment, tmp_path: Path, files: dict[str, str], kwargs: dict[str, Value], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(MillstreamError, match=message):
        t_env.read_csv(tmp_path, **kwargs)


def test_read_csv_missing_path_fails_when_called(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    with pytest.raises(InvalidProgramError, match="there is no file or directory .*/none"):
        t_env.read_csv(tmp_path / "none")


# --- paths


def test_read_csv_path_is_file_directory_pattern_or_url(
    t_env: StreamTableEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("2023/a.csv", 1), ("2024/a.csv", 2), ("2024/b.txt", 3), ("2024/_c.csv", 4), ("[x].csv", 5)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"n\n{value}\n")
    (tmp_path / "2024" / "d.csv.gz").write_bytes(gzip.compress(b"n\n6\n"))
    monkeypatch.chdir(tmp_path)
    expected: dict[str | os.PathLike[str], list[int]] = {
        Path("2023"): [1],
        "2023/a.csv": [1],
        f"file://{tmp_path}/2024": [2, 3, 6],
        "*/a.csv": [1, 2],
        "**/*.csv": [1, 2, 5],
        "202?": [1, 2, 3, 6],
        "2024/*.csv*": [2, 6],
        "[x].csv": [5],
        f"local://{tmp_path}/20*/?.csv": [1, 2],
    }
    for path, values in expected.items():
        assert sorted(n for (n,) in rows(t_env.read_csv(path))) == values, path
    with pytest.raises(InvalidProgramError, match="no file with rows in .*csvs"):
        t_env.read_csv("2024/*.csvs")
    with pytest.raises(InvalidProgramError, match="there is no file or directory"):
        t_env.read_csv("2025/*.csv")


def test_read_csv_reads_url_of_fsspec_with_partitions(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    for day, name in (("2024-01-01", "a"), ("2024-01-02", "b")):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "part.csv").write_text(f"name\n{name}\n")
    for path in ("", "/", "/*/part.csv", "/day=*"):
        # The names of the files begin with file:// here.
        table = t_env.read_csv(f"local://{tmp_path}{path}")
        assert types(table) == {"name": "STRING", "day": "DATE"}, path
        assert sorted(rows(table)) == [("a", dt.date(2024, 1, 1)), ("b", dt.date(2024, 1, 2))]


def test_read_csv_partition_columns_of_directories(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    for name in ("day=2024-01-01/hour=00", "day=2024-01-02/hour=12", "day=__HIVE_DEFAULT_PARTITION__/hour=a%2Fb"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.csv").write_text("n\n1\n")
    table = t_env.read_csv(tmp_path)
    assert types(table) == {"n": "BIGINT", "day": "DATE", "hour": "STRING"}
    assert sorted(rows(table), key=repr) == [
        (1, None, "a/b"), (1, dt.date(2024, 1, 1), "00"), (1, dt.date(2024, 1, 2), "12"),
    ]  # fmt: skip
    assert rows(table.filter(col("hour") == "12").select(col("n"))) == [(1,)]
    assert types(t_env.read_csv(tmp_path / "day=2024-01-01")) == {"n": "BIGINT", "hour": "STRING"}
    assert types(t_env.read_csv(tmp_path, schema={"day": "STRING"}))["day"] == "STRING"


def test_read_csv_new_partition_of_other_type_fails(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "day=2024-01-01").mkdir()
    (tmp_path / "day=2024-01-01" / "a.csv").write_text("n\n1\n")
    table = t_env.read_csv(tmp_path)
    (tmp_path / "day=today").mkdir()
    (tmp_path / "day=today" / "a.csv").write_text("n\n1\n")
    with pytest.raises(MillstreamError, match="'today' of the partition column 'day' is not of type DATE .*; rename"):
        rows(table)


# --- JSON


@pytest.mark.parametrize(
    ("documents", "kind", "values"),
    [
        ("1|2|null", "BIGINT", [1, 2, None]),
        ("1|2.5", "DOUBLE", [1.0, 2.5]),
        ("9223372036854775808", "STRING", ["9223372036854775808"]),
        ("true|false", "BOOLEAN", [True, False]),
        ('"a"|"2024-01-01"', "STRING", ["a", "2024-01-01"]),
        ('1|"1"|true', "STRING", ["1", "1", "true"]),
        ("null", "STRING", [None]),
        ("[1,2]|[]|[null]", "ARRAY<BIGINT>", [[1, 2], [], [None]]),
        ("[]", "ARRAY<STRING>", [[]]),
        ('[1,"a"]', "ARRAY<STRING>", [["1", "a"]]),
        ('{"b":1}|{"c":"x"}|{}', "ROW<`b` BIGINT, `c` STRING>", [Row(1, None), Row(None, "x"), Row(None, None)]),
        ('[{"b":1.5}]', "ARRAY<ROW<`b` DOUBLE>>", [[Row(1.5)]]),
        ('{"b":1.50}|[2.0]|3', "STRING", ['{"b":1.50}', "[2.0]", "3"]),
        ("{}", "STRING", ["{}"]),
    ],
    ids=str,
)
def test_read_json_infers_types(
    t_env: StreamTableEnvironment, tmp_path: Path, documents: str, kind: str, values: list[Value]
) -> None:
    (tmp_path / "a.json").write_text("".join(f'{{"v": {document}}}\n' for document in documents.split("|")))
    table = t_env.read_json(tmp_path)
    assert types(table) == {"v": kind}
    assert [v for (v,) in rows(table)] == values


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        ("1", "1.5", r"not of type BIGINT \(1.5 is not a whole number\)"),
        ("1", '"1"', "not of type BIGINT"),
        ("1", "true", "not of type BIGINT"),
        ("1", "9223372036854775808", "too large"),
        ("true", '"x"', r"not of type BOOLEAN \(x is neither true nor false\)"),
        ("1.5", "9007199254740993", "a DOUBLE cannot represent it"),
        ('{"b":1}', '{"b":1,"c":2}', r"not of type ROW<`b` BIGINT> \(the first rows do not have 'c' in it\)"),
        ('{"b":1}', "[1]", "is not an object"),
        ("[1]", "1", "is not an array"),
        ("[1]", "[1.5]", "is not a whole number"),
    ],
)
def test_read_json_later_value_that_does_not_fit_fails_with_its_line_and_fix(
    t_env: StreamTableEnvironment, tmp_path: Path, first: str, later: str, message: str
) -> None:
    (tmp_path / "a.json").write_text(f'{{"v":{first}}}\n\n{{"v":{later}}}\n')
    table = t_env.read_json(tmp_path, infer_rows=1)
    fix = (
        r".*Pass the type with schema=\{'v': DataTypes.STRING\(\)\}, or infer the types from more rows with infer_rows="
    )
    with pytest.raises(MillstreamError, match=rf"a.json, line 3 \(byte \d+\): .*{message}{fix}"):
        rows(table)
    kept = rows(t_env.read_json(tmp_path, infer_rows=1, schema={"v": DataTypes.STRING()}))
    assert kept[-1] == (later.strip('"'),)


def test_read_json_new_field_after_first_rows_fails(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n{"a": 2, "b": 3}\n')
    table = t_env.read_json(tmp_path, infer_rows=1)
    with pytest.raises(
        MillstreamError, match=r"line 2 .* has the field 'b', but .*Pass the columns with schema=, or inf"
    ):
        rows(table)
    assert rows(t_env.read_json(tmp_path)) == [(1, None), (2, 3)]
    assert rows(t_env.read_json(tmp_path, schema=DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())]))) == [
        (1,),
        (2,),
    ]


def test_read_json_accepts_arrays_of_objects_and_rejects_other_lines(
    t_env: StreamTableEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('[{"a": 1}, {"a": 2}]\n{"a": 3}')
    assert rows(t_env.read_json(tmp_path)) == [(1,), (2,), (3,)]
    (tmp_path / "a.json").write_text('[\n  {"a": 1}\n]\n')
    with pytest.raises(MillstreamError, match=r"a.json, line 1 .* is not a JSON object"):
        t_env.read_json(tmp_path)


# --- Parquet


def written(path: Path, columns: dict[str, pa.Array]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_read_parquet_takes_types_of_files_and_partitions(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    columns = {
        "i": pa.array([1, None], pa.int32()),
        "d": pa.array([1, 2], pa.decimal128(5, 2)),
        "at": pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1)] * 2, pa.timestamp("us")),
        "s": pa.array([{"x": 1, "y": ["a"]}, None], pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])),
        "k": pa.array(["a", "b"]).dictionary_encode(),
    }
    written(tmp_path / "n=1" / "a.parquet", columns)
    table = t_env.read_parquet(tmp_path)
    assert types(table) == {
        "i": "INT", "d": "DECIMAL(5, 2)", "at": "TIMESTAMP(6)", "s": "ROW<`x` BIGINT, `y` ARRAY<STRING>>",
        "k": "STRING", "n": "BIGINT",
    }  # fmt: skip
    assert rows(table.select(col("i"), col("s").get("x"), col("k"), col("n"))) == [(1, 1, "a", 1), (None, None, "b", 1)]


def test_read_parquet_files_with_different_columns_fail(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", {"v": pa.array([1])})
    written(tmp_path / "b.parquet", {"v": pa.array([1.5])})
    with pytest.raises(
        InvalidProgramError, match=r"the column 'v' is BIGINT in .*a.parquet, but DOUBLE in .*b.parquet"
    ):
        t_env.read_parquet(tmp_path)
    assert sorted(rows(t_env.read_parquet(tmp_path, schema={"v": "DOUBLE"}))) == [(1.0,), (1.5,)]
    table = t_env.read_parquet(tmp_path, schema={"v": "BIGINT"})
    with pytest.raises(MillstreamError, match=r"Column 'v' of .*b.parquet does not fit the type BIGINT"):
        rows(table)
    written(tmp_path / "b.parquet", {"w": pa.array([1.5])})
    with pytest.raises(
        InvalidProgramError, match=r"the column 'v' is BIGINT in .*a.parquet, but missing in .*b.parquet"
    ):
        t_env.read_parquet(tmp_path)


def test_read_parquet_type_without_sql_type_or_damaged_file_fails(
    t_env: StreamTableEnvironment, tmp_path: Path
) -> None:
    written(tmp_path / "a.parquet", {"v": pa.array([1], pa.uint64())})
    with pytest.raises(InvalidProgramError, match=r"the type uint64 of the column 'v' .*; pass one with schema=\{'v'"):
        t_env.read_parquet(tmp_path)
    assert rows(t_env.read_parquet(tmp_path, schema={"v": "BIGINT"})) == [(1,)]
    (tmp_path / "a.parquet").write_text("text")
    with pytest.raises(MillstreamError, match=r"a.parquet is not a complete Parquet file"):
        t_env.read_parquet(tmp_path)


# --- no value changes


TEXTS = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.booleans().map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.from_regex(r"\A[-+]?0*[0-9]{1,22}(\.[0-9]{0,3})?\Z"),
    st.text("ab01 .-:TZ+e", max_size=8),
)
# What a text means, independent of the parsers.
MEANINGS: dict[str, Callable[[str], Value]] = {
    "BIGINT": int,
    "DOUBLE": float,
    "BOOLEAN": lambda text: {"true": True, "false": False}[text.lower()],
    "DATE": dt.date.fromisoformat,
    "STRING": str,
}


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=8), st.integers(1, 8))
def test_inferred_csv_column_has_the_values_of_the_file_or_fails(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], sampled: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "values.csv"
    path.write_text("n,v\n" + "".join(f'0,"{text}"\n' for text in texts))
    access, options = FileAccess({}), {"header": "true", "null-literal": ""}
    files = list(access.find(str(path)))
    columns = csv_columns(CsvFileFormat(Options(options), "UTC"), access, files, sampled)
    reading = CsvFileFormat(Options({**options, "inferred-columns": '["n", "v"]'}), "UTC").file_reader(columns)
    split_range = FileSplitRange(0, str(path), 0, files[0].size, files[0].size, True)
    kind = columns[1].type
    try:
        batches = [batch for batches in reading.read(access, split_range) for batch in batches]
    except MillstreamError as e:
        assert f"is not of type {kind}" in str(e)
        assert sampled < len(texts)
        return
    values = [v for batch in batches for v in to_python(batch.columns[1], kind, "UTC")]
    meaning = MEANINGS.get(str(kind), dt.datetime.fromisoformat)
    assert repr(values) == repr([None if not text else meaning(text) for text in texts])
    if str(kind) == "BIGINT":
        assert [v if v is None else str(v) for v in values] == [text.strip() or None for text in texts]
