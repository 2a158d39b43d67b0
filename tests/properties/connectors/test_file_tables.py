"""Filesystem tables: partition commits, pruned files, and format options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from millstream.common.errors import MillstreamError
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.connectors.files.part_files import PartFile, StagedParts
from millstream.connectors.files.partition_commit import Partition, PartitionCommitter, Staged, partition_commits
from millstream.formats import file_format as file_formats
from millstream.formats.options import Options
from millstream.operators.sink import CommitContext, Committer
from millstream.sql.errors import ValidationException
from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment, ValuesTable


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    return StreamTableEnvironment.create(LocalEnvironment())


def batch() -> StreamTableEnvironment:
    return StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())


def declared(
    t_env: StreamTableEnvironment,
    name: str,
    columns: str,
    path: Path,
    file_format: str,
    more: Mapping[str, str] | None = None,
) -> None:
    options = {"connector": "filesystem", "path": str(path), "format": file_format, **(more or {})}
    with_ = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    t_env.execute_sql(f"CREATE TABLE {name} {columns} WITH ({with_})")


def rows(t_env: StreamTableEnvironment, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r) for r in t_env.execute_sql(query).collect()), key=repr)


def files(path: Path) -> list[str]:
    """Return the files below a directory, parts without their numbers."""
    paths = (p.relative_to(path) for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    return sorted(str(p.parent / ("part" if p.name.startswith("part-") else p.name)) for p in paths)


# --- complete partitions


class _Files(Committer):
    """Knows which files were committed."""

    def __init__(self) -> None:
        self.committed: list[str] = []

    def commit(self, committables: list[tuple[int, Any]]) -> None:
        self.committed += [p.final for _, staged in committables for p in staged.files]


class Commits:
    """A committer whose clock a test sets, and the partitions it reports as complete."""

    def __init__(self, base: Path, options: dict[str, str]) -> None:
        self.now = 0
        self.base = base
        kind = {"sink.partition-commit.policy.kind": "success-file"}
        commits = partition_commits(Options({**options, **kind}), ["day", "hour"], False)
        assert commits is not None
        self.committer = PartitionCommitter(
            _Files(), str(base), commits, CommitContext("job", "sink"), lambda: self.now
        )

    def commit(self, subtask: int, partition: str | None, watermark: int, subtasks: int = 2) -> None:
        parts = None
        if partition is not None:
            (self.base / partition).mkdir(parents=True, exist_ok=True)
            parts = StagedParts((PartFile("", str(self.base / partition / "part-0"), 1),))
        self.committer.commit([(subtask, Staged(parts, watermark, subtasks))])

    @property
    def complete(self) -> list[str]:
        return sorted(str(p.parent.relative_to(self.base)) for p in self.base.rglob("_SUCCESS"))


NOON = "day=2024-01-01/hour=12"
AT_NOON = 1704110400000


def test_partition_commit_by_partition_time_waits_for_all_watermarks(tmp_path: Path) -> None:
    commits = Commits(
        tmp_path,
        {
            "sink.partition-commit.trigger": "partition-time",
            "sink.partition-commit.delay": "1 h",
            "partition.time-extractor.timestamp-pattern": "$day $hour:00:00",
        },
    )
    commits.commit(0, NOON, AT_NOON)
    commits.commit(0, None, AT_NOON + 3600_001)
    assert commits.complete == []
    commits.commit(1, None, AT_NOON + 3600_000)
    assert commits.complete == []
    commits.commit(1, None, AT_NOON + 3600_001)
    assert commits.complete == [NOON]


def test_partition_commit_by_process_time_waits_for_delay(tmp_path: Path) -> None:
    commits = Commits(tmp_path, {"sink.partition-commit.delay": "10 s"})
    commits.commit(0, NOON, MIN_WATERMARK)
    commits.now = 5000
    commits.commit(0, NOON, MIN_WATERMARK)
    # Checkpoints continue without input.
    assert commits.committer.wants_checkpoints
    commits.now = 10_000
    commits.commit(0, None, MIN_WATERMARK)
    assert commits.complete == []
    commits.now = 10_001
    commits.commit(0, None, MIN_WATERMARK)
    assert commits.complete == [NOON]
    assert not commits.committer.wants_checkpoints


def test_partition_commit_pending_partitions_are_in_checkpoints_and_savepoints(tmp_path: Path) -> None:
    commits = Commits(tmp_path, {"sink.partition-commit.delay": "10 s"})
    commits.commit(0, NOON, MIN_WATERMARK)
    ((subtask, named),) = commits.committer.waiting()
    again = Commits(tmp_path, {"sink.partition-commit.delay": "10 s"})
    again.committer.recover([(subtask, named)], "job")
    again.now = 10_001
    # A savepoint names no partition.
    commits.committer.finish()
    third = Commits(tmp_path, {"sink.partition-commit.delay": "10 s"})
    third.now = 10_001
    third.committer.recover([], "job")
    for one in (again, third):
        (tmp_path / NOON / "_SUCCESS").unlink(missing_ok=True)
        one.commit(0, None, MIN_WATERMARK)
        assert one.complete == [NOON]
    # The end of the input completes all partitions.
    commits.commit(0, None, MAX_WATERMARK)
    commits.commit(1, None, MAX_WATERMARK)
    assert commits.committer.waiting() == []


def test_partition_commit_by_partition_time_in_job(tmp_path: Path) -> None:
    """A watermark passes the first day while the job runs; the end of the input passes the rest."""
    env = LocalEnvironment()
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("table.local-time-zone", "UTC")
    source = ValuesTable([(1, "2024-01-01 10:00:00"), (2, "2024-01-02 10:00:00")])
    t_env.execute_sql(
        f"CREATE TABLE src (a INT, s STRING, t AS TO_TIMESTAMP(s), WATERMARK FOR t AS t) WITH {source.options}"
    )
    options = {
        "sink.partition-commit.trigger": "partition-time",
        "sink.partition-commit.policy.kind": "success-file",
        "sink.partition-commit.success-file.name": "_DONE",
    }
    declared(t_env, "dst", "(a INT, `day` STRING) PARTITIONED BY (`day`)", tmp_path, "json", options)
    t_env.execute_sql("INSERT INTO dst SELECT a, DATE_FORMAT(t, 'yyyy-MM-dd') FROM src").wait()
    assert files(tmp_path) == [f"day=2024-01-0{i}/{name}" for i in (1, 2) for name in ("_DONE", "part")]
    # Hidden files are not read.
    assert rows(t_env, "SELECT a FROM dst") == [(1,), (2,)]


class RecordingPolicy:
    """A user-defined policy."""

    partitions: ClassVar[list[Partition]] = []

    def commit(self, partition: Partition) -> None:
        self.partitions.append(partition)


def test_partition_commit_in_batch_runs_at_end_of_job(tmp_path: Path) -> None:
    t_env = batch()
    options = {
        "sink.partition-commit.policy.kind": "success-file,custom",
        "sink.partition-commit.policy.class": f"{__name__}.RecordingPolicy",
    }
    declared(t_env, "dst", "(a INT, p STRING, q STRING) PARTITIONED BY (p, q)", tmp_path, "parquet", options)
    t_env.execute_sql("INSERT INTO dst VALUES (1, 'x', 'a/b')").wait()
    assert files(tmp_path) == ["p=x/q=a%2Fb/_SUCCESS", "p=x/q=a%2Fb/part"]
    assert RecordingPolicy.partitions[-1] == Partition(str(tmp_path / "p=x" / "q=a%2Fb"), {"p": "x", "q": "a/b"})


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"policy.kind": "metastore"}, "You can only configure 'metastore' partition commit policy for a hive table"),
        ({"policy.kind": "sometimes"}, "Unsupported policy: sometimes. Supported are success-file and custom"),
        ({"policy.kind": "custom", "policy.class": "no.such.Class"}, "must be a Python class with commit"),
        ({"trigger": "by-chance"}, "'by-chance' is none of process-time, partition-time"),
        ({"delay": "a while"}, "is not a duration"),
        ({"watermark-time-zone": "Mars"}, "there is no time zone 'Mars'"),
    ],
)
def test_partition_commit_rejects_invalid_options(
    t_env: StreamTableEnvironment, tmp_path: Path, options: dict[str, str], error_text: str
) -> None:
    more = {f"sink.partition-commit.{k}": v for k, v in options.items()}
    declared(t_env, "dst", "(a INT, p STRING) PARTITIONED BY (p)", tmp_path, "json", more)
    with pytest.raises(ValidationException, match=error_text):
        t_env.execute_sql("INSERT INTO dst VALUES (1, 'x')")


def test_partition_commit_rejects_partition_without_time(tmp_path: Path) -> None:
    commits = Commits(tmp_path, {"sink.partition-commit.trigger": "partition-time"})
    with pytest.raises(ValidationException, match=r"has no time: 'today' does not have the form .*timestamp-pattern"):
        commits.commit(0, "day=today/hour=1", AT_NOON)


# --- skipped files


def test_filesystem_source_prunes_partitions(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        (tmp_path / f"day={day}").mkdir()
        # Reading a file that is not JSON would be an error.
        (tmp_path / f"day={day}" / "part-0").write_text('{"a": 1}\n' if day == 2 else "broken\n")
    declared(t_env, "src", "(a INT, `day` INT) PARTITIONED BY (`day`)", tmp_path, "json")
    assert rows(t_env, "SELECT * FROM src WHERE `day` = 1 + 1 AND a > 0") == [(1, 2)]
    assert rows(t_env, "SELECT * FROM src WHERE `day` IS NULL") == []
    with pytest.raises(MillstreamError, match="broken is not a JSON object"):
        rows(t_env, "SELECT * FROM src WHERE `day` < 3")


def test_filesystem_source_reads_files_matching_path_pattern(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    (tmp_path / "b.txt").write_text("broken\n")
    declared(t_env, "src", "(a INT)", tmp_path, "json", {"source.path.regex-pattern": r".*\.json"})
    assert rows(t_env, "SELECT * FROM src") == [(1,)]


def test_parquet_source_skips_row_groups_by_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    writer = pq.ParquetWriter(tmp_path / "file.parquet", pa.schema([("a", pa.int32()), ("s", pa.string())]))
    for start in (0, 10, 20):
        writer.write_table(pa.table({"a": pa.array(range(start, start + 10), pa.int32()), "s": [f"s{start}"] * 10}))
    writer.close()
    t_env = batch()
    declared(t_env, "src", "(a INT, s STRING)", tmp_path, "parquet")
    read: list[list[int]] = []
    original = pq.ParquetFile.iter_batches

    def counted(self: Any, *args: Any, row_groups: list[int], **more: Any) -> Any:
        read.append(row_groups)
        return original(self, *args, row_groups=row_groups, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    for query, groups, values in (
        ("a > 19", [2], range(20, 30)),
        ("a >= 19", [1, 2], range(19, 30)),
        ("10 > a AND a <= 3", [0], range(4)),
        ("a = 12", [1], [12]),
        ("s = 's20' AND a < 25", [2], range(20, 25)),
        ("a <> 5 AND a < 7", [0], [0, 1, 2, 3, 4, 6]),
    ):
        read.clear()
        assert rows(t_env, f"SELECT a FROM src WHERE {query}") == sorted(((a,) for a in values), key=repr)
        assert [g for some in read for g in some] == groups, query


def test_filesystem_source_monitors_new_files(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    columns = "(a INT, name STRING METADATA FROM 'file.name' VIRTUAL)"
    declared(t_env, "src", columns, tmp_path, "json", {"source.monitor-interval": "20 ms"})
    with t_env.execute_sql("SELECT a, name FROM src").collect() as results:
        assert tuple(next(results)) == (1, "a.json")
        (tmp_path / ".b").write_text('{"a": 2}\n')
        (tmp_path / ".b").rename(tmp_path / "b.json")
        assert tuple(next(results)) == (2, "b.json")


# --- formats


def test_csv_table_reads_line_ends_in_quotes(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text('1,"two\nlines"\n\n2,one\n3,"three ""short""\r\n\nlines"')
    declared(t_env, "src", "(a INT, s STRING)", tmp_path, "csv")
    expected = [(1, "two\nlines"), (2, "one"), (3, 'three "short"\r\n\nlines')]
    assert rows(t_env, "SELECT * FROM src") == expected


def test_csv_table_splits_large_file_between_quoted_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIN_SPLIT_BYTES", "MAX_SPLIT_BYTES"):
        monkeypatch.setattr(file_formats, name, 10_000)
    text = "".join(f'{i},"line {i}\n{"x" * (i % 50)}"\n' for i in range(20_000))
    (tmp_path / "file.csv").write_text(text)
    env = LocalEnvironment()
    env.set_parallelism(2)
    t_env = StreamTableEnvironment.create(env)
    declared(t_env, "src", "(a INT, s STRING)", tmp_path, "csv")
    changes = list(t_env.execute_sql("SELECT COUNT(*), SUM(a), SUM(CHAR_LENGTH(s)) FROM src").collect())
    assert tuple(changes[-1]) == (20_000, sum(range(20_000)), sum(6 + len(str(i)) + i % 50 for i in range(20_000)))


_WRONG = {
    "csv": ['1,a\nx,b\n3,"c\n', "1,a\n2,b,c\n"],
    "json": ['{"a": 1, "s": "a"}\n\n{"a": "x"}\n', '{"a": 1}\n[2]\n'],
    "debezium-json": ['{"after": {"a": 1}, "op": "c"}\n{"before": null, "after": {"a": 2}, "op": "u"}\n', "x\n"],
}


@pytest.mark.parametrize(("file_format", "text"), [(f, t) for f, texts in _WRONG.items() for t in texts])
def test_text_tables_fail_on_or_skip_malformed_rows(
    t_env: StreamTableEnvironment, tmp_path: Path, file_format: str, text: str
) -> None:
    (tmp_path / "file").write_text(text)
    declared(t_env, "src", "(a INT, s STRING)", tmp_path, file_format)
    line = 1 + text[: text.find("x" if "x" in text else "2")].count("\n")
    with pytest.raises(MillstreamError, match=rf"file, line {line} .*'{file_format}.ignore-parse-errors' = 'true'"):
        rows(t_env, "SELECT * FROM src")
    (tmp_path / "file").rename(tmp_path / "other")
    lenient = {f"{file_format}.ignore-parse-errors": "true"}
    declared(t_env, "lenient", "(a INT, s STRING)", tmp_path, file_format, lenient)
    results = rows(t_env, "SELECT a FROM lenient WHERE a IS NOT NULL")
    assert results == ([(1,)] if "1" in text else [])


def test_text_tables_write_decimals_in_configured_notation(tmp_path: Path) -> None:
    many = "1234567890123456789012345678.5"
    ways: list[tuple[str, dict[str, str], str]] = [
        ("csv", {}, f"1E-7\n{many}\n"),
        ("csv", {"csv.write-bigdecimal-in-scientific-notation": "false"}, f"0.0000001\n{many}\n"),
        ("json", {}, f'{{"d":1E-7}}\n{{"d":{many}}}\n'),
        ("json", {"json.encode.decimal-as-plain-number": "true"}, f'{{"d":0.0000001000}}\n{{"d":{many}000000000}}\n'),
    ]
    for i, (file_format, more, text) in enumerate(ways):
        t_env, path = batch(), tmp_path / str(i)
        declared(t_env, "dst", "(d DECIMAL(38, 10))", path, file_format, more)
        t_env.execute_sql(f"INSERT INTO dst VALUES (0.0000001), (CAST('{many}' AS DECIMAL(38, 10)))").wait()
        assert "".join(p.read_text() for p in path.glob("part-*")) == text


def test_parquet_sink_applies_writer_options(tmp_path: Path) -> None:
    source = ValuesTable([(i, "x") for i in range(4000)], batch_rows=100)
    t_env = batch()
    t_env.execute_sql(f"CREATE TABLE src (a INT, s STRING) WITH {source.options}")
    small = {"parquet.compression": "gzip", "parquet.block.size": "8kb", "parquet.enable.dictionary": "false"}
    ways: list[tuple[str, dict[str, str], str]] = [("d1", {}, "SNAPPY"), ("d2", small, "GZIP")]
    for name, options, codec in ways:
        declared(t_env, name, "(a INT, s STRING)", tmp_path / name, "parquet", options)
        t_env.execute_sql(f"INSERT INTO {name} SELECT * FROM src").wait()
        (path,) = (tmp_path / name).glob("part-*")
        about = pq.ParquetFile(path).metadata
        column = about.row_group(0).column(1)
        assert about.num_row_groups > 3 if options else about.num_row_groups == 1
        assert (column.compression, "RLE_DICTIONARY" in column.encodings) == (codec, not options)
        assert rows(t_env, f"SELECT COUNT(*), SUM(a) FROM {name}") == [(4000, sum(range(4000)))]


def test_parquet_table_writes_legacy_timestamps(tmp_path: Path) -> None:
    t_env = batch()
    declared(t_env, "dst", "(t TIMESTAMP(3))", tmp_path, "parquet", {"parquet.write.int64.timestamp": "false"})
    t_env.execute_sql("INSERT INTO dst VALUES (TIMESTAMP '2024-01-02 03:04:05.6')").wait()
    (path,) = tmp_path.glob("part-*")
    assert pq.ParquetFile(path).schema.column(0).physical_type == "INT96"
    assert rows(t_env, "SELECT CAST(t AS STRING) FROM dst") == [("2024-01-02 03:04:05.600",)]


@pytest.mark.parametrize("codec", ["NONE", "ZLIB", "SNAPPY"])
def test_orc_sink_applies_compression(tmp_path: Path, codec: str) -> None:
    from pyarrow.orc import ORCFile

    t_env = batch()
    declared(t_env, "dst", "(a INT)", tmp_path, "orc", {"orc.compress": codec})
    t_env.execute_sql("INSERT INTO dst VALUES (1)").wait()
    (path,) = tmp_path.glob("part-*")
    assert ORCFile(path).compression == codec.replace("NONE", "UNCOMPRESSED")
    assert rows(t_env, "SELECT * FROM dst") == [(1,)]


@pytest.mark.parametrize("is_batch", [False, True])
def test_orc_source_reads_selected_stripes_and_columns(tmp_path: Path, is_batch: bool) -> None:
    import pyarrow as pa
    from pyarrow.orc import ORCFile, ORCWriter

    numbers = pa.array(range(300_000))
    with ORCWriter(tmp_path / "a.orc", stripe_size=1 << 16, compression="UNCOMPRESSED") as writer:
        for start in range(0, len(numbers), 20_000):
            some = numbers.slice(start, 20_000)
            writer.write(pa.table({"n": some, "other": some.cast(pa.string())}))
    assert ORCFile(tmp_path / "a.orc").nstripes > 3
    env = LocalEnvironment()
    env.set_parallelism(3)
    mode = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(env, mode)
    # A declared column that the file lacks is null; an undeclared one is not read.
    declared(t_env, "src", "(missing INT, n BIGINT)", tmp_path, "orc")
    query = "SELECT COUNT(*), SUM(n), COUNT(missing) FROM src"
    (*_, last) = t_env.execute_sql(query).collect()
    assert tuple(last) == (300_000, sum(range(300_000)), 0)


def test_orc_source_rejects_damaged_file_or_other_types(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.orc").write_bytes(b"ORC but no file")
    declared(t_env, "bad", "(a INT)", tmp_path / "bad", "orc")
    with pytest.raises(MillstreamError, match=r"a.orc is not a complete ORC file .*; remove it from the directory"):
        rows(t_env, "SELECT * FROM bad")
    declared(t_env, "good", "(a STRING)", tmp_path / "good", "orc")
    t_env.execute_sql("INSERT INTO good VALUES ('x')").wait()
    declared(t_env, "other", "(a INT)", tmp_path / "good", "orc")
    with pytest.raises(MillstreamError, match=r"Column 'a' of .* does not fit the type INT"):
        rows(t_env, "SELECT * FROM other")


def test_avro_sink_applies_codec_and_legacy_timestamps(tmp_path: Path) -> None:
    import fastavro

    t_env = batch()
    options = {"avro.codec": "deflate", "avro.timestamp_mapping.legacy": "true"}
    declared(t_env, "dst", "(t TIMESTAMP(3))", tmp_path, "avro", options)
    t_env.execute_sql("INSERT INTO dst VALUES (TIMESTAMP '2024-01-02 03:04:05.6')").wait()
    (path,) = tmp_path.glob("part-*")
    with path.open("rb") as file:
        about = fastavro.reader(file)
        assert about.codec == "deflate"
        schema: Any = about.writer_schema
        assert schema["fields"][0]["type"][1]["logicalType"] == "timestamp-millis"
    assert rows(t_env, "SELECT CAST(t AS STRING) FROM dst") == [("2024-01-02 03:04:05.600",)]


@pytest.mark.parametrize(
    ("file_format", "columns", "options", "error_text"),
    [
        ("parquet", "a INT", {"parquet.compression": "lzo"}, "'lzo' is none of UNCOMPRESSED, SNAPPY"),
        ("parquet", "a INT", {"parquet.utc-timezone": "false"}, "unchanged; remove the option"),
        ("parquet", "a INT", {"parquet.bloom.filter.enabled": "true"}, "Unsupported options:\n\nparquet.bloom.filter"),
        ("orc", "a INT", {"orc.create.index": "false"}, "Unsupported options:\n\norc.create.index"),
        ("orc", "a INT", {"orc.compress": "lzo"}, "'lzo' is none of NONE, ZLIB"),
        ("avro", "t TIMESTAMP(6)", {"avro.timestamp_mapping.legacy": "true"}, r"only TIMESTAMP\(0\) to TIMESTAMP\(3\)"),
        ("avro", "a INT", {"avro.codec": "zip"}, "'zip' is none of null, deflate"),
        ("json", "a INT", {"json.map-null-key.mode": "SOMETIMES"}, "Supported values are .LITERAL, FAIL, DROP."),
        ("debezium-json", "a INT", {"debezium-json.schema-include": "true"}, "serialization doesn't support"),
        ("raw", "a INT", {"raw.endianness": "middle"}, "Unsupported endianness name: middle"),
        ("csv", "a INT", {"csv.field-delimiter": "ab"}, "single character"),
    ],
)
def test_filesystem_sink_rejects_inapplicable_options(
    t_env: StreamTableEnvironment,
    tmp_path: Path,
    file_format: str,
    columns: str,
    options: dict[str, str],
    error_text: str,
) -> None:
    declared(t_env, "dst", f"({columns})", tmp_path, file_format, options)
    value = "1" if columns == "a INT" else "TIMESTAMP '2024-01-02 03:04:05.6'"
    with pytest.raises(ValidationException, match=error_text):
        t_env.execute_sql(f"INSERT INTO dst VALUES ({value})")


@pytest.mark.parametrize("file_format", ["json", "parquet", "orc", "avro", "csv"])
def test_filesystem_sink_auto_compaction_merges_small_files(tmp_path: Path, file_format: str) -> None:
    env = LocalEnvironment(restarts=1)
    env.set_parallelism(3)
    t_env = StreamTableEnvironment.create(env)
    source = ValuesTable([(i, f"s{i}") for i in range(6)], subtasks=3)
    t_env.execute_sql(f"CREATE TABLE src (a INT, s STRING) WITH {source.options}")
    declared(t_env, "dst", "(a INT, s STRING)", tmp_path, file_format, {"auto-compaction": "true"})
    t_env.execute_sql("INSERT INTO dst SELECT * FROM src").wait()
    assert rows(t_env, "SELECT * FROM dst") == [(i, f"s{i}") for i in range(6)]
    assert [p.name.startswith("compacted-part") for p in tmp_path.iterdir() if p.is_file()] == [True]


def test_filesystem_sink_shuffle_by_partition_writes_one_file_per_partition(tmp_path: Path) -> None:
    for shuffled in ("false", "true"):
        env = LocalEnvironment()
        env.set_parallelism(3)
        t_env = StreamTableEnvironment.create(env)
        source = ValuesTable([(i, i % 2) for i in range(30)], subtasks=3)
        t_env.execute_sql(f"CREATE TABLE src (a INT, p INT) WITH {source.options}")
        path = tmp_path / shuffled
        more = {"sink.shuffle-by-partition.enable": shuffled}
        declared(t_env, "dst", "(a INT, p INT) PARTITIONED BY (p)", path, "json", more)
        t_env.execute_sql("INSERT INTO dst SELECT * FROM src").wait()
        assert len(list(path.glob("p=*/part-*"))) == (2 if shuffled == "true" else 6)
        assert sum(len(p.read_text().splitlines()) for p in path.glob("p=*/part-*")) == 30
