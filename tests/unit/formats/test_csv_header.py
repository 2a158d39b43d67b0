"""CSV tables with a header: columns by name, split, compressed and empty files, writing, and advice in errors."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Mapping
from pathlib import Path

import pytest

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.connectors.files.table_writer import RowsCompactor
from millstream.formats import file_format as file_formats
from millstream.formats.csv.table import CsvFileFormat
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FileSplitRange
from millstream.formats.options import Options
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.table import DataTypes, EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment

FIELDS = [Field("id", DataTypes.BIGINT()), Field("name", DataTypes.STRING())]


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    return StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())


def declared(
    t_env: StreamTableEnvironment,
    path: Path,
    columns: str = "id BIGINT, name STRING",
    more: Mapping[str, str] | None = None,
    name: str = "t",
) -> None:
    options = {"connector": "filesystem", "path": str(path), "format": "csv", "csv.header": "true", **(more or {})}
    with_ = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({with_})")


def rows(t_env: StreamTableEnvironment, query: str = "SELECT * FROM t") -> list[tuple[Value, ...]]:
    return [tuple(r) for r in t_env.execute_sql(query).collect()]


def csv_format(options: Mapping[str, str]) -> CsvFileFormat:
    return CsvFileFormat(Options({"header": "true", **options}), "UTC")


def read_in_ranges(path: Path, ends: list[int], options: Mapping[str, str]) -> list[tuple[Value, ...]]:
    """Read a file in ranges that end at some bytes."""
    reader, access, size = csv_format(options).file_reader(FIELDS), FileAccess({}), path.stat().st_size
    read: list[tuple[Value, ...]] = []
    start = 0
    for target in [*ends, size]:
        if target <= start:
            continue
        end = reader.range_end(access, str(path), start, target, size) if target < size else size
        for batches in reader.read(access, FileSplitRange(0, str(path), start, end, size, end == size)):
            read += [row for b in batches for row in zip(*(c.to_pylist() for c in b.columns), strict=True)]
        start = end
    return read


# --- reading


def test_csv_header_matches_columns_by_name(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,id\nann,1\n")
    (tmp_path / "b.csv").write_text("id, name\n2,bob\n")
    declared(t_env, tmp_path)
    assert rows(t_env) == [(1, "ann"), (2, "bob")]


@pytest.mark.parametrize(
    "text",
    [
        'id,name\n1,ann\n2,"bob, ""jr"""\n3,c\n',
        '\n\nid,name\r\n1,ann\r\n2,"bob, ""jr"""\r\n3,c',
        '\ufeffname,"id"\nann,1\n\n"bob, ""jr""",2\nc,3\n',
    ],
    ids=["plain", "empty lines and no last newline", "byte order mark"],
)
def test_csv_header_file_split_at_every_byte_has_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    expected = [(1, "ann"), (2, 'bob, "jr"'), (3, "c")]
    for block in (1, 5, 1 << 18):
        monkeypatch.setattr(file_formats, "BLOCK_BYTES", block)
        for byte in range(1, path.stat().st_size):
            assert read_in_ranges(path, [byte], {}) == expected, (block, byte)
    monkeypatch.setattr(file_formats, "BLOCK_BYTES", 5)
    assert read_in_ranges(path, list(range(1, path.stat().st_size)), {}) == expected


@pytest.mark.parametrize("comments", ["false", "true"])
def test_csv_header_parallel_ranges_have_same_rows(tmp_path: Path, comments: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(("# a comment\n" if comments == "true" else "") + "name;id\nann;1\nbob;2\n")
    options = {"disable-quote-character": "true", "field-delimiter": ";", "allow-comments": comments}
    assert csv_format(options).file_reader(FIELDS).splittable  # type: ignore[attr-defined]
    size = path.stat().st_size
    for first in range(1, size):
        for second in range(first + 1, size):
            assert read_in_ranges(path, [first, second], options) == [(1, "ann"), (2, "bob")], (first, second)


def test_csv_header_names_and_fields_contain_newlines(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"i\nd",name\n1,"a\nb"\n')
    declared(t_env, tmp_path, "`i\nd` BIGINT, name STRING")
    assert rows(t_env) == [(1, "a\nb")]


def test_csv_header_in_compressed_empty_and_header_only_files(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("id,name\n")
    (tmp_path / "c.csv").write_text("id,name")
    (tmp_path / "d.csv").write_text("\n\n")
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"name,id\nann,1\n"))
    (tmp_path / "f.csv.bz2").write_bytes(bz2.compress(b""))
    declared(t_env, tmp_path)
    assert rows(t_env) == [(1, "ann")]


def test_csv_header_damaged_compressed_file_fails(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"id,name\n" * 100)[:20])
    declared(t_env, tmp_path)
    with pytest.raises(MillstreamError, match=r"e.csv.gz is damaged or incomplete"):
        rows(t_env)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id\n1\n", "the header of .*a.csv lacks the column 'name'; correct the header"),
        ("id,name,age,size\n", "a.csv has the columns 'age', 'size', which the table does not have; correct"),
        ("id,Name\n", "lacks the column 'name' and has the column 'Name', which the table does not have"),
        ("id,name,\n", "has the column 'f2', which the table does not have"),
        ("id,name,id\n", "has the column 'id' twice; rename one"),
        ('id,"name\n', "a quote is not closed in the header"),
        ('"id"x,name\n', "the header is malformed"),
        ("id,name\n1\n", "a.csv, line 2 .*: it has 1 fields, but the header has 2"),
        ("id,name\n1,a,b\n", "a.csv, line 2 .*: it has 3 fields, but the header has 2"),
        ("id,name\n1,a\nx,b\n", "a.csv, line 3 .*: 'x' in column 'id' is not of type BIGINT.*. Correct the line, or"),
    ],
    ids=["missing", "surplus", "case", "unnamed", "twice", "unclosed", "malformed", "short", "long", "wrong value"],
)
def test_csv_header_error_names_difference(
    t_env: StreamTableEnvironment, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    declared(t_env, tmp_path)
    with pytest.raises(MillstreamError, match=message) as caught:
        rows(t_env)
    assert "csv.header" not in str(caught.value)


def test_csv_header_lenient_reads_missing_columns_as_null(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,id\n7,1\n8\n9,x\n1,2,3\n")
    declared(t_env, tmp_path, more={"csv.ignore-parse-errors": "true"})
    assert rows(t_env) == [(1, None), (None, None), (None, None)]


def test_csv_header_without_partition_columns(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "day=2024-01-01").mkdir()
    (tmp_path / "day=2024-01-01" / "a.csv").write_text("name,id\nann,1\n")
    options = f"'connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv', 'csv.header' = 'true'"
    t_env.execute_sql(f"CREATE TABLE t (id INT, `day` DATE, name STRING) PARTITIONED BY (`day`) WITH ({options})")
    assert rows(t_env, "SELECT name, CAST(`day` AS STRING), id FROM t") == [("ann", "2024-01-01", 1)]


# --- advice


def test_csv_error_in_first_line_advises_header_option(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,ann\n")
    declared(t_env, tmp_path, more={"csv.header": "false"})
    with pytest.raises(
        MillstreamError, match=r"line 1 .*'id' in column 'id'.*If it is a header, set 'csv.header' = 't"
    ):
        rows(t_env)


def test_csv_error_in_later_line_does_not_advise_header_option(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeff1,ann\nx,bob\n")
    declared(t_env, tmp_path, more={"csv.header": "false"})
    with pytest.raises(MillstreamError, match=r"line 2 .*'x' in column 'id'") as caught:
        rows(t_env)
    assert "csv.header" not in str(caught.value)


def test_csv_header_option_is_for_files_only() -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    t_env.execute_sql(
        "CREATE TABLE k (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', "
        "'format' = 'csv', 'csv.header' = 'true')"
    )
    with pytest.raises(ValidationException, match=r"(?s)Unsupported options.*csv.header"):
        t_env.execute_sql("SELECT * FROM k")


# --- writing


def test_csv_header_is_written_once_per_file(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    declared(t_env, tmp_path, "id BIGINT, `full name` STRING")
    t_env.execute_sql("INSERT INTO t VALUES (1, 'ann'), (2, 'bob'), (3, 'c, d')").wait()
    (path,) = (p for p in tmp_path.iterdir() if not p.name.startswith("."))
    assert path.read_text() == 'id,"full name"\n1,ann\n2,bob\n3,"c, d"\n'
    assert rows(t_env) == [(1, "ann"), (2, "bob"), (3, "c, d")]


def test_csv_header_is_written_in_every_partition_and_compacted_file(tmp_path: Path) -> None:
    environment = LocalEnvironment()
    environment.enable_checkpointing(10)
    t_env = StreamTableEnvironment.create(environment)
    options = (
        f"'connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv', 'csv.header' = 'true', "
        "'auto-compaction' = 'true', 'sink.rolling-policy.file-size' = '20 b', 'compaction.file-size' = '1 mb'"
    )
    t_env.execute_sql(f"CREATE TABLE t (id BIGINT, k BIGINT) PARTITIONED BY (k) WITH ({options})")
    t_env.execute_sql("CREATE TABLE n (i BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3000', "
                      "'fields.i.kind' = 'sequence', 'fields.i.start' = '0', 'fields.i.end' = '2999')")  # fmt: skip
    t_env.execute_sql("INSERT INTO t SELECT i, MOD(i, 2) FROM n").wait()
    files = [p for p in tmp_path.rglob("*") if p.is_file() and not p.name.startswith((".", "_"))]
    assert {p.parent.name for p in files} == {"k=0", "k=1"}
    lines = [p.read_text().splitlines() for p in files]
    assert all(one[0] == "id" and "id" not in one[1:] for one in lines)
    assert sorted(int(v) for one in lines for v in one[1:]) == list(range(3000))


def test_csv_compaction_keeps_one_header(tmp_path: Path) -> None:
    out = io.BytesIO()
    RowsCompactor(b"id\n").compact([[b"i", b"d\n1\n"], [b"id\n2\n"], [b"3\n"]], out)
    assert out.getvalue() == b"id\n1\n2\n3\n"
