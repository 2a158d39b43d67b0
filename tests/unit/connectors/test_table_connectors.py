"""Table connectors: lookup by name, Flink's error messages, and handling of rows."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Row, RowKind
from millstream.common.errors import MillstreamError
from millstream.connectors.values import BatchesSource, split_batch
from millstream.sql.connector_contract import Connector, TableContext, TableSource
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Expression
from millstream.table import ChangelogMode, DataTypes, EnvironmentSettings, StreamTableEnvironment
from millstream.table.connectors import register_connector
from millstream.table.expressions import col
from millstream.table.udf import udf
from millstream.testing import LocalEnvironment, ValuesTable


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    return in_mode(EnvironmentSettings.in_streaming_mode())


def in_mode(settings: EnvironmentSettings, parallelism: int = 1) -> StreamTableEnvironment:
    env = LocalEnvironment()
    env.set_parallelism(parallelism)
    t_env = StreamTableEnvironment.create(env, settings)
    t_env.get_config().set("table.local-time-zone", "UTC")
    return t_env


def collected(t_env: StreamTableEnvironment, query: str) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in t_env.execute_sql(query).collect()]


# --- lookup of connectors


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ("", "Table options do not contain an option key 'connector' for discovering a connector"),
        ("WITH ('connector' = 'nope')", "There is no connector 'nope'.*(?s:.*)blackhole\ndatagen"),
        (
            "WITH ('connector' = 'datagen', 'foo' = 'x')",
            "Unsupported options found for 'datagen'.\n\nUnsupported options:\n\nfoo\n\nSupported options:",
        ),
        ("WITH ('connector' = 'datagen', 'rows-per-second' = 'x')", "Invalid value for option 'rows-per-second'"),
        ("WITH ('connector' = 'filesystem')", "required options are missing.\n\nMissing required options are:\n\npath"),
        ("WITH ('connector' = 'filesystem', 'path' = '/x', 'format' = 'nope')", "There is no format 'nope'"),
        (
            "WITH ('connector' = 'print')",
            "Connector 'print' can only be used as a sink. It cannot be used as a source.",
        ),
    ],
)
def test_table_options_errors_match_flink(t_env: StreamTableEnvironment, options: str, error_text: str) -> None:
    t_env.execute_sql(f"CREATE TABLE bad (a INT) {options}")
    with pytest.raises(ValidationException) as error:
        t_env.execute_sql("SELECT * FROM bad")
    message = (
        "Unable to create a source for reading table 'default_catalog.default_database.bad'.\n\nTable options are:"
    )
    assert message in str(error.value)
    with pytest.raises(ValidationException, match=error_text):
        t_env.execute_sql("SELECT * FROM bad")


def test_table_options_errors_hide_secrets(t_env: StreamTableEnvironment) -> None:
    options = "'connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d?password=abc', 'password' = 'abc', 'no' = 'such'"
    t_env.execute_sql(f"CREATE TABLE t (id INT) WITH ({options}, 'table-name' = 't')")
    with pytest.raises(ValidationException) as error:
        t_env.execute_sql("SELECT * FROM t")
    assert "'password'='******'" in str(error.value) and "password=******'" in str(error.value)
    assert "abc" not in str(error.value)


def test_append_only_sink_rejects_an_updating_query(t_env: StreamTableEnvironment) -> None:
    sink = ValuesTable(changelog_mode=ChangelogMode.insert_only())
    t_env.execute_sql(f"CREATE TABLE snk (a INT, c BIGINT) WITH {sink.options}")
    error_text = (
        "Table sink 'default_catalog.default_database.snk' doesn't support consuming update changes which is produced"
    )
    with pytest.raises(TableException, match=f"{error_text} by node GroupAggregate"):
        t_env.execute_sql("INSERT INTO snk SELECT x, COUNT(*) FROM (VALUES (1), (1)) AS t(x) GROUP BY x")


def test_custom_table_connector(t_env: StreamTableEnvironment) -> None:
    from millstream.sql.columns.batch import Batch
    from millstream.sql.columns.value_conversion import to_column

    class Squares(TableSource):
        def __init__(self, count: int) -> None:
            self._count = count

        def source(
            self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
        ) -> BatchesSource:
            numbers = {"n": list(range(self._count)), "square": [i * i for i in range(self._count)]}
            arrays = [to_column(numbers[c], DataTypes.BIGINT()) for c in columns]
            return BatchesSource(split_batch(Batch(arrays, None, self._count)))

    @register_connector
    class SquaresConnector(Connector):
        identifier = "squares"
        required = frozenset(["count"])

        def table_source(self, context: TableContext) -> TableSource:
            return Squares(int(context.table.options["count"]))

    t_env.execute_sql("CREATE TABLE sq (n BIGINT, square BIGINT) WITH ('connector' = 'squares', 'count' = '4')")
    assert collected(t_env, "SELECT square FROM sq WHERE n > 1") == [(4,), (9,)]


# --- print, blackhole, datagen, values


def test_print_sink_formats_rows_as_java_does(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = (
        "i INT, s STRING, b BOOLEAN, d DOUBLE, de DECIMAL(4, 2), dt DATE, tm TIME, ts TIMESTAMP(3), "
        "tz TIMESTAMP_LTZ(3), by1 BYTES, a ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, y STRING>"
    )
    t_env.execute_sql(f"CREATE TABLE p ({declared}) WITH ('connector' = 'print', 'print-identifier' = 'me')")
    timestamp = datetime.datetime(2024, 1, 2, 3, 4)
    half = decimal.Decimal("1.5")
    row = (
        1,
        "a",
        True,
        1e8,
        half,
        timestamp.date(),
        timestamp.time(),
        timestamp,
        timestamp,
        b"A\xff",
        [1, None],
        {"k": 2},
        Row(5, None),
    )
    source = ValuesTable([row, (None,) * 13])
    t_env.execute_sql(f"CREATE TABLE src ({declared}) WITH {source.options}")
    t_env.execute_sql("INSERT INTO p SELECT * FROM src").wait()
    assert capsys.readouterr().out == (
        "me> +I[1, a, true, 1.0E8, 1.50, 2024-01-02, 03:04, 2024-01-02T03:04, 2024-01-02T03:04:00Z, [65, -1], "
        "[1, null], {k=2}, +I[5, null]]\n"
        f"me> +I[{', '.join(['null'] * 13)}]\n"
    )


def test_print_sink_prefixes_lines_with_the_subtask(capsys: pytest.CaptureFixture[str]) -> None:
    t_env = in_mode(EnvironmentSettings.in_streaming_mode(), parallelism=2)
    t_env.execute_sql("CREATE TABLE p (k INT, c BIGINT) WITH ('connector' = 'print')")
    t_env.execute_sql("INSERT INTO p SELECT x, COUNT(*) FROM (VALUES (1), (2), (1)) AS t(x) GROUP BY x").wait()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.partition("> ")[2] for line in lines) == ["+I[1, 1]", "+I[2, 1]", "+U[1, 2]", "-U[1, 1]"]
    assert {line.partition("> ")[0] for line in lines} <= {"1", "2"}


def _sums_above_zero(mode: str, key: str, sink_mode: ChangelogMode) -> list[tuple[str, int, int]]:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    t_env.get_config().set("table.exec.sink.upsert-materialize", mode)
    source, sink = ValuesTable([(1, 1), (1, 1), (2, 5), (1, -2), (2, -4)]), ValuesTable((), sink_mode)
    t_env.execute_sql(f"CREATE TABLE src (a INT, b INT) WITH {source.options}")
    t_env.execute_sql(f"CREATE TABLE snk (a INT, n INT, PRIMARY KEY ({key}) NOT ENFORCED) WITH {sink.options}")
    t_env.execute_sql("INSERT INTO snk SELECT a, SUM(b) FROM src GROUP BY a HAVING SUM(b) > 0").wait()
    return [(r.get_row_kind().name, *r) for r in sink.results()]


@pytest.mark.parametrize("mode", ["AUTO", "NONE"])
def test_upsert_sink_receives_deletes_for_update_before(mode: str) -> None:
    """A row that leaves the filter emits UPDATE_BEFORE without UPDATE_AFTER."""
    assert _sums_above_zero(mode, "a", ChangelogMode.upsert()) == [
        ("INSERT", 1, 1), ("DELETE", 1, 1), ("UPDATE_AFTER", 1, 2), ("INSERT", 2, 5), ("DELETE", 1, 2),
        ("DELETE", 2, 5), ("UPDATE_AFTER", 2, 1),
    ]  # fmt: skip


def test_upsert_sink_without_materializer_receives_rows_unchanged() -> None:
    changes = _sums_above_zero("NONE", "n", ChangelogMode.upsert())
    assert changes == _sums_above_zero("NONE", "a", ChangelogMode.upsert())
    assert ("UPDATE_AFTER", 1, 2) not in _sums_above_zero("AUTO", "n", ChangelogMode.upsert())


@pytest.mark.parametrize("parallelism", [1, 3])
def test_datagen_generates_sequences_and_random_values(parallelism: int) -> None:
    t_env = in_mode(EnvironmentSettings.in_streaming_mode(), parallelism)
    t_env.execute_sql("""
        CREATE TABLE g (a BIGINT, s STRING, n INT, x DOUBLE, b BOOLEAN, v VARCHAR(3), nu INT, ts TIMESTAMP(3),
          arr ARRAY<INT>, r ROW<p INT>, de DECIMAL(6, 2), se STRING)
        WITH ('connector' = 'datagen', 'rows-per-second' = '1000000', 'fields.a.kind' = 'sequence',
          'fields.a.start' = '5', 'fields.a.end' = '40004', 'fields.s.length' = '7', 'fields.n.min' = '3',
          'fields.n.max' = '5', 'fields.x.min' = '0.5', 'fields.x.max' = '0.75', 'fields.nu.null-rate' = '0.5',
          'fields.arr.element.min' = '1', 'fields.arr.element.max' = '2', 'fields.se.kind' = 'sequence',
          'fields.se.start' = '1', 'fields.se.end' = '50000')
    """)
    rows = collected(t_env, "SELECT * FROM g")
    assert sorted(r[0] for r in rows) == list(range(5, 40005))
    assert sorted(int(r[11]) for r in rows) == list(range(1, 40001))
    assert {len(r[1]) for r in rows} == {7}
    assert {r[2] for r in rows} == {3, 4, 5}
    assert all(0.5 <= r[3] <= 0.75 for r in rows)
    assert {len(r[5]) for r in rows} == {3}
    assert 18_000 < sum(r[6] is None for r in rows) < 22_000
    assert {v for r in rows for v in r[8]} == {1, 2}


def test_datagen_is_unbounded_without_a_sequence_or_row_limit(t_env: StreamTableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE g (a INT) WITH ('connector' = 'datagen')")
    with t_env.execute_sql("SELECT a FROM g").collect() as rows:
        assert len([next(rows) for _ in range(3)]) == 3
    assert len(collected(t_env, "SELECT a FROM g /*+ OPTIONS('number-of-rows' = '17') */")) == 17


def test_datagen_rejects_a_sequence_without_an_end(t_env: StreamTableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE g (a INT) WITH ('connector' = 'datagen', 'fields.a.kind' = 'sequence')")
    with pytest.raises(ValidationException, match="required property 'fields.a.start' for sequence generator"):
        t_env.execute_sql("SELECT a FROM g")


def test_values_connector_preserves_row_kinds(t_env: StreamTableEnvironment) -> None:
    changes = [Row(1, "a"), Row(1, "a"), Row(1, "b"), Row(1, "b")]
    for change, kind in zip(changes[1:], (RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE), strict=True):
        change.set_row_kind(kind)
    source, sink = ValuesTable(changes), ValuesTable()
    t_env.execute_sql(f"CREATE TABLE src (id INT, v STRING) WITH {source.options}")
    t_env.execute_sql(f"CREATE TABLE snk (id INT, v STRING) WITH {sink.options}")
    t_env.execute_sql("INSERT INTO snk SELECT id, v FROM src").wait()
    assert [r.get_row_kind().name for r in sink.results()] == ["INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"]
    assert sink.final() == []


# --- files

COLUMNS = (
    "a INT, s STRING, d DOUBLE, de DECIMAL(10, 2), b BOOLEAN, dt DATE, ts TIMESTAMP(3), tz TIMESTAMP_LTZ(3), "
    "arr ARRAY<INT>, r ROW<x INT, y STRING>, p STRING, q INT"
)


def some_rows() -> list[tuple[Any, ...]]:
    timestamp = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)
    zoned = timestamp.replace(tzinfo=datetime.UTC)
    first = (
        1,
        'say "hi", you',
        1.5,
        decimal.Decimal("2.25"),
        True,
        timestamp.date(),
        timestamp,
        zoned,
        [1, 2],
        Row(1, "q"),
        "x",
        1,
    )
    second = (2, "ü", None, None, False, None, None, None, [3], Row(2, "z"), "y/z", 2)
    return [first, second]


@pytest.mark.parametrize("file_format", ["json", "csv", "parquet", "orc", "avro"])
def test_filesystem_table_round_trips_every_format(
    t_env: StreamTableEnvironment, tmp_path: Path, file_format: str
) -> None:
    if file_format == "avro":
        pytest.importorskip("fastavro")
    source = ValuesTable(some_rows())
    t_env.execute_sql(f"CREATE TABLE src ({COLUMNS}) WITH {source.options}")
    t_env.execute_sql(
        f"CREATE TABLE files ({COLUMNS}) PARTITIONED BY (p, q) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = '{file_format}')"
    )
    t_env.execute_sql("INSERT INTO files SELECT * FROM src").wait()
    assert sorted(str(p.parent.relative_to(tmp_path)) for p in tmp_path.rglob("part-*")) == ["p=x/q=1", "p=y%2Fz/q=2"]
    rows = sorted(collected(t_env, "SELECT * FROM files"))
    assert rows == [tuple(r) for r in some_rows()]
    assert collected(t_env, "SELECT a FROM files WHERE q = 2") == [(2,)]


def test_filesystem_table_writes_json_and_csv_as_flink_does(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    source = ValuesTable(some_rows()[:1])
    t_env.execute_sql(f"CREATE TABLE src ({COLUMNS}) WITH {source.options}")
    for name in ("json", "csv"):
        t_env.execute_sql(
            f"CREATE TABLE t_{name} ({COLUMNS}) WITH ('connector' = 'filesystem', "
            f"'path' = 'file://{tmp_path}/{name}', 'format' = '{name}')"
        )
        t_env.execute_sql(f"INSERT INTO t_{name} SELECT * FROM src").wait()
    (json_file,) = (tmp_path / "json").iterdir()
    assert json_file.read_text() == (
        '{"a":1,"s":"say \\"hi\\", you","d":1.5,"de":2.25,"b":true,"dt":"2024-01-02","ts":"2024-01-02 03:04:05.678",'
        '"tz":"2024-01-02 03:04:05.678Z","arr":[1,2],"r":{"x":1,"y":"q"},"p":"x","q":1}\n'
    )
    (csv_file,) = (tmp_path / "csv").iterdir()
    assert csv_file.read_text() == (
        '1,"say ""hi"", you",1.5,2.25,true,2024-01-02,"2024-01-02 03:04:05.678","2024-01-02 03:04:05.678Z",'
        "1;2,1;q,x,1\n"
    )


def test_filesystem_table_metadata_columns(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("1\n2\n")
    t_env.execute_sql(
        "CREATE TABLE f (a INT, name STRING METADATA FROM 'file.name' VIRTUAL, size BIGINT METADATA FROM 'file.size' "
        f"VIRTUAL) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv')"
    )
    assert collected(t_env, "SELECT a, name, size FROM f") == [(1, "one.csv", 4), (2, "one.csv", 4)]


def test_json_table_fails_on_or_skips_malformed_rows(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"a": 1}\n{"a": \n{"a": "x"}\n{"b": 1}\n')
    declared = "CREATE TABLE {} (a INT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'json'{})"
    t_env.execute_sql(declared.format("strict", tmp_path, ""))
    t_env.execute_sql(declared.format("lenient", tmp_path, ", 'json.ignore-parse-errors' = 'true'"))
    with pytest.raises(MillstreamError, match=r"one.json, line 2 .* is not a JSON object .*json.ignore-parse-errors"):
        collected(t_env, "SELECT a FROM strict")
    assert collected(t_env, "SELECT a FROM lenient") == [(1,), (None,), (None,)]


def test_debezium_json_table_emits_changes(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    messages = [
        {"before": None, "after": {"id": 1, "v": "a"}, "op": "c"},
        {"before": {"id": 1, "v": "a"}, "after": {"id": 1, "v": "b"}, "op": "u"},
        {"before": {"id": 1, "v": "b"}, "after": None, "op": "d"},
    ]
    (tmp_path / "log").write_text("".join(json.dumps(m) + "\n" for m in messages))
    t_env.execute_sql(
        f"CREATE TABLE c (id INT, v STRING) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', "
        "'format' = 'debezium-json')"
    )
    changes = list(t_env.execute_sql("SELECT id, v FROM c").collect())
    assert [(r.get_row_kind().name, r[1]) for r in changes] == [
        ("INSERT", "a"), ("UPDATE_BEFORE", "a"), ("UPDATE_AFTER", "b"), ("DELETE", "b"),
    ]  # fmt: skip


def test_cdc_events_duplicate_option_deduplicates_by_primary_key(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    """Test `table.exec.source.cdc-events-duplicate` against the results of apache-flink 2.3."""
    one, seven, eight, two = ({"id": i, "p": p} for i, p in ((1, 5), (1, 7), (1, 8), (2, 1)))
    reported = [
        (None, one),
        (None, one),
        (one, seven),
        (None, two),
        (one, seven),
        (two, None),
        (two, None),
        (seven, eight),
    ]
    ops = {(False, True): "c", (True, True): "u", (True, False): "d"}
    lines = [json.dumps({"before": b, "after": a, "op": ops[b is not None, a is not None]}) for b, a in reported]
    (tmp_path / "changes.json").write_text("\n".join(lines) + "\n")
    about = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'debezium-json')"
    t_env.execute_sql(f"CREATE TABLE t (id INT, p INT, PRIMARY KEY (id) NOT ENFORCED) {about}")
    t_env.execute_sql(f"CREATE TABLE without_key (id INT, p INT) {about}")
    t_env.get_config().set("table.exec.source.cdc-events-duplicate", "true")
    changes = [(str(r.get_row_kind()), *r) for r in t_env.execute_sql("SELECT * FROM t").collect()]
    first = [("+I", 1, 5), ("-U", 1, 5), ("+U", 1, 7), ("+I", 2, 1), ("-D", 2, 1)]
    assert changes == [*first, ("-U", 1, 7), ("+U", 1, 8)]
    settings = {"enabled": "true", "allow-latency": "1 s", "size": "2"}
    for key, value in settings.items():
        t_env.get_config().set(f"table.exec.mini-batch.{key}", value)
    assert changes == [(str(r.get_row_kind()), *r) for r in t_env.execute_sql("SELECT * FROM t").collect()]
    assert list(t_env.execute_sql("SELECT SUM(p) FROM t").collect())[-1][0] == 8
    with pytest.raises(
        TableException, match="table 'default_catalog.default_database.without_key' doesn't have a prim"
    ):
        t_env.execute_sql("SELECT * FROM without_key")


def test_raw_format_requires_a_single_column(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one line\nanother\n")
    declared = "CREATE TABLE {} ({}) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'raw')"
    t_env.execute_sql(declared.format("lines", "line STRING", tmp_path))
    assert collected(t_env, "SELECT line FROM lines") == [("one line",), ("another",)]
    t_env.execute_sql(declared.format("wide", "a STRING, b STRING", tmp_path))
    with pytest.raises(MillstreamError, match="only supports single physical column"):
        collected(t_env, "SELECT a, b FROM wide")


def test_insert_overwrite_replaces_partitions(tmp_path: Path) -> None:
    t_env = in_mode(EnvironmentSettings.in_batch_mode())
    t_env.execute_sql(
        f"CREATE TABLE f (a INT, p STRING) PARTITIONED BY (p) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', "
        "'format' = 'csv')"
    )
    t_env.execute_sql("INSERT INTO f VALUES (1, 'x'), (2, 'y')").wait()
    t_env.execute_sql("INSERT OVERWRITE f VALUES (3, 'x')").wait()
    assert sorted(collected(t_env, "SELECT a, p FROM f")) == [(2, "y"), (3, "x")]


def test_insert_overwrite_requires_batch_mode(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    t_env.execute_sql(
        f"CREATE TABLE f (a INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv')"
    )
    with pytest.raises(ValidationException, match="Streaming mode not support overwrite"):
        t_env.execute_sql("INSERT OVERWRITE f VALUES (3)")


def test_filesystem_sink_is_exactly_once_across_failures(tmp_path: Path) -> None:
    failed = tmp_path / "failed"

    @udf(result_type=DataTypes.BIGINT())
    def fragile(n: int) -> int:
        if n == 7 and not failed.exists():
            failed.touch()
            raise OSError("once")
        return n

    t_env = StreamTableEnvironment.create(LocalEnvironment(restarts=1))
    t_env.execute_sql(f"CREATE TABLE src (n BIGINT) WITH {ValuesTable([(i,) for i in range(10)]).options}")
    for name in ("json", "csv", "parquet", "orc"):
        failed.unlink(missing_ok=True)
        t_env.execute_sql(
            f"CREATE TABLE f_{name} (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/{name}', "
            f"'format' = '{name}')"
        )
        t_env.from_path("src").select(fragile(col("n")).alias("n")).execute_insert(f"f_{name}").wait()
        assert failed.exists()
        assert sorted(collected(t_env, f"SELECT n FROM f_{name}")) == [(i,) for i in range(10)]


def test_source_watermark_requires_connector_support() -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    declared = "CREATE TABLE {} (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()) WITH {}"
    # Like Flink, the declaration is accepted.
    t_env.execute_sql(declared.format("generated", "('connector' = 'datagen')"))
    with pytest.raises(ValidationException, match=r"SOURCE_WATERMARK\(\) takes the watermarks of a DataStream"):
        t_env.execute_sql("SELECT * FROM generated")
    values = ValuesTable([(datetime.datetime(2024, 1, 1, 0, 0, s),) for s in (1, 12, 3)], watermarks_on_event=True)
    t_env.execute_sql(declared.format("stamped", values.options))
    rows = t_env.execute_sql("SELECT ts, CURRENT_WATERMARK(ts) FROM stamped").collect()
    times = [(row[0].second, row[1] and row[1].second) for row in rows]
    assert times == [(1, None), (12, 1), (3, 12)]
