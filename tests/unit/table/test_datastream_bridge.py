"""Streams as tables and tables as streams: one job, with kinds, timestamps and watermarks."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common import Instant, Row, RowKind, Types, WatermarkStrategy
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import DataStream, ProcessFunction
from millstream.sql.errors import TableException, ValidationException
from millstream.table import ChangelogMode, DataTypes, Schema, StreamTableEnvironment
from millstream.table.expressions import col
from millstream.testing import LocalEnvironment, ValuesTable

NAMED = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0]) * 1000


@pytest.fixture
def env() -> LocalEnvironment:
    return LocalEnvironment()


@pytest.fixture
def t_env(env: LocalEnvironment) -> StreamTableEnvironment:
    return StreamTableEnvironment.create(env)


def stamped(stream: DataStream[Any]) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    return stream.assign_timestamps_and_watermarks(strategy)


def values(stream: DataStream[Any]) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in stream.execute_and_collect()]


def test_from_data_stream_derives_columns_from_the_type(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    table = t_env.from_data_stream(env.from_collection([(1, "a"), (2, "b")], NAMED))
    assert table.get_resolved_schema().get_column_names() == ["id", "name"]
    assert [tuple(r) for r in table.execute().collect()] == [(1, "a"), (2, "b")]
    numbers = t_env.from_data_stream(env.from_collection([5, 6], Types.LONG()))
    assert [str(t) for t in numbers.get_resolved_schema().get_column_data_types()] == ["BIGINT"]
    assert [tuple(r) for r in numbers.execute().collect()] == [(5,), (6,)]


def test_from_data_stream_names_fields_by_position_or_name(
    env: LocalEnvironment, t_env: StreamTableEnvironment
) -> None:
    stream = env.from_collection([(1, "a")], Types.ROW([Types.INT(), Types.STRING()]))
    by_place = t_env.from_data_stream(stream, col("x"), col("y"))
    assert by_place.get_resolved_schema().get_column_names() == ["x", "y"]
    by_name = t_env.from_data_stream(stream, col("f1"), col("f0").alias("n"))
    assert [tuple(r) for r in by_name.execute().collect()] == [("a", 1)]


def test_from_data_stream_schema_with_rowtime_and_computed_columns(
    env: LocalEnvironment, t_env: StreamTableEnvironment
) -> None:
    schema = (
        Schema.new_builder()
        .column_by_expression("double", "id * 2")
        .column("name", DataTypes.STRING())
        .column_by_metadata("rowtime", "TIMESTAMP_LTZ(3)")
        .watermark("rowtime", "SOURCE_WATERMARK()")
        .build()
    )
    table = t_env.from_data_stream(stamped(env.from_collection([(1, "a"), (2, "b")], NAMED)), schema)
    assert "`rowtime` TIMESTAMP_LTZ(3) *ROWTIME*" in str(table.get_resolved_schema())
    assert [tuple(r)[:2] for r in table.execute().collect()] == [(2, "a"), (4, "b")]


def test_from_data_stream_watermarks_close_windows(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    stream = stamped(env.from_collection([(1, "a"), (2, "b"), (11, "a")], NAMED))
    t_env.create_temporary_view("s", stream, col("id"), col("name"), col("ts").rowtime)
    result = t_env.sql_query(
        "SELECT window_start, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end"
    )
    assert [r[1] for r in result.execute().collect()] == [2, 1]


def test_from_data_stream_rowtime_rejects_records_without_timestamps(
    env: LocalEnvironment, t_env: StreamTableEnvironment
) -> None:
    table = t_env.from_data_stream(env.from_collection([(1, "a")], NAMED), col("id"), col("n"), col("ts").rowtime)
    with pytest.raises(MillstreamError, match="assign_timestamps_and_watermarks"):
        list(table.execute().collect())


def test_to_data_stream_emits_rows(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    table = t_env.from_elements([(1, "a"), (2, "b")], ["id", "name"])
    stream = t_env.to_data_stream(table).map(lambda r: Row(r.id + 1, r["name"] + "!"), NAMED)
    assert values(stream) == [(2, "a!"), (3, "b!")]
    assert values(t_env.to_data_stream(table)) == [(1, "a"), (2, "b")]


def test_to_data_stream_emits_timestamp_ltz_as_instants(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    table = t_env.sql_query(
        "SELECT CAST(TO_TIMESTAMP_LTZ(1500, 3) AS TIMESTAMP_LTZ(9)), ARRAY[TO_TIMESTAMP_LTZ(-1, 3)], CAST(NULL AS "
        "TIMESTAMP_LTZ(6))"
    )
    moments = (Instant(1, 500_000_000), [Instant(-1, 999_000_000)], None)
    assert values(t_env.to_data_stream(table)) == [moments]


def test_to_changelog_stream_emits_row_kinds(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    t_env.create_temporary_view("v", env.from_collection([(1, "a"), (1, "b")], NAMED))
    counts = t_env.sql_query("SELECT id, COUNT(*) AS c FROM v GROUP BY id")
    changes = list(t_env.to_changelog_stream(counts).execute_and_collect())
    assert [(r.get_row_kind().name, r.c) for r in changes] == [
        ("INSERT", 1), ("UPDATE_BEFORE", 1), ("UPDATE_AFTER", 2),
    ]  # fmt: skip
    upserts = t_env.to_changelog_stream(
        counts,
        Schema.new_builder().column("id", "INT").column("c", "BIGINT").primary_key("id").build(),
        ChangelogMode.upsert(),
    )
    assert [r.get_row_kind().name for r in upserts.execute_and_collect()] == ["INSERT", "UPDATE_AFTER"]
    with pytest.raises(TableException, match="doesn't support consuming update changes"):
        t_env.to_data_stream(counts)


def test_from_changelog_stream_reads_row_kinds(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    changes = [Row(1, "a"), Row(1, "b")]
    changes[1].set_row_kind(RowKind.UPDATE_AFTER)
    table = t_env.from_changelog_stream(env.from_collection(changes, NAMED))
    assert [r.get_row_kind().name for r in table.execute().collect()] == ["INSERT", "UPDATE_AFTER"]
    with pytest.raises(ValidationException, match="needs a primary key"):
        t_env.from_changelog_stream(env.from_collection(changes, NAMED), None, ChangelogMode.upsert())


def test_from_changelog_stream_upserts_by_primary_key(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    """An upsert replaces the row of its key, which is retracted downstream."""
    changes = [Row(1, "a"), Row(2, "b"), Row(1, "c"), Row(2, "b")]
    changes[2].set_row_kind(RowKind.UPDATE_AFTER)
    changes[3].set_row_kind(RowKind.DELETE)
    keyed = Schema.new_builder().column("id", "INT NOT NULL").column("name", "STRING").primary_key("id").build()
    table = t_env.from_changelog_stream(env.from_collection(changes, NAMED), keyed, ChangelogMode.upsert())
    t_env.create_temporary_view("v", table)
    emitted = [(r.get_row_kind().name, *r) for r in table.execute().collect()]
    assert emitted == [
        ("INSERT", 1, "a"), ("INSERT", 2, "b"), ("UPDATE_BEFORE", 1, "a"), ("UPDATE_AFTER", 1, "c"), ("DELETE", 2, "b"),
    ]  # fmt: skip
    last = list(t_env.execute_sql("SELECT COUNT(*), MAX(name), MIN(name) FROM v").collect())[-1]
    assert tuple(last) == (1, "c", "c")


def test_from_changelog_stream_of_inserts_is_append_only(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    table = t_env.from_changelog_stream(env.from_collection([Row(1, "a")], NAMED), None, ChangelogMode.insert_only())
    assert values(t_env.to_data_stream(table)) == [(1, "a")]


def test_to_data_stream_rowtime_becomes_the_record_timestamp(
    env: LocalEnvironment, t_env: StreamTableEnvironment
) -> None:
    class Stamps(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield ctx.timestamp()

    table = t_env.from_data_stream(
        stamped(env.from_collection([(3, "a")], NAMED)), col("id"), col("n"), col("t").rowtime
    )
    assert list(t_env.to_data_stream(table).process(Stamps()).execute_and_collect()) == [3000]


def test_statement_set_attached_as_datastream_runs_with_the_program(
    env: LocalEnvironment, t_env: StreamTableEnvironment
) -> None:
    sink = ValuesTable()
    t_env.execute_sql(f"CREATE TABLE snk (id INT, name STRING) WITH {sink.options}")
    t_env.create_temporary_view("v", env.from_collection([(1, "a")], NAMED))
    statements = t_env.create_statement_set().add_insert_sql("INSERT INTO snk SELECT id, name FROM v")
    statements.attach_as_datastream()
    assert sink.results() == []
    env.execute()
    assert [tuple(r) for r in sink.results()] == [(1, "a")]


def test_from_data_stream_queries_share_one_job(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    """Equal operators have distinct ids."""
    t_env.create_temporary_view("v", env.from_collection([(1, "a"), (2, "b")], NAMED))
    queries = ["SELECT id FROM v WHERE id > 1", "SELECT id FROM v", "SELECT id FROM v"]
    first, *others = [t_env.to_data_stream(t_env.sql_query(q)).map(lambda r: r[0]) for q in queries]
    assert sorted(first.union(*others).execute_and_collect()) == [1, 1, 2, 2, 2]


def test_from_data_stream_statement_sets_share_one_job(env: LocalEnvironment, t_env: StreamTableEnvironment) -> None:
    sink = ValuesTable()
    t_env.execute_sql(f"CREATE TABLE snk (id INT, name STRING) WITH {sink.options}")
    t_env.create_temporary_view("v", env.from_collection([(1, "a")], NAMED))
    for _ in range(2):
        t_env.create_statement_set().add_insert_sql("INSERT INTO snk SELECT * FROM v").attach_as_datastream()
    env.execute()
    assert [tuple(r) for r in sink.results()] == [(1, "a"), (1, "a")]
    # A program's uids must still be unique.
    for _ in range(2):
        t_env.to_data_stream(t_env.sql_query("SELECT id FROM v")).uid("mine").print()
    with pytest.raises(InvalidProgramError, match="have the same uid 'mine'"):
        env.execute()


OLD = pytest.mark.filterwarnings("ignore:to_.*_stream:DeprecationWarning")
LONG_TEXT = [Types.LONG(), Types.STRING()]
TYPES = [
    (Types.ROW(LONG_TEXT), Row(f0=1, f1="a")),
    (Types.ROW_NAMED(["x", "y"], LONG_TEXT), Row(x=1, y="a")),
    (Types.TUPLE(LONG_TEXT), (1, "a")),
]


@OLD
@pytest.mark.parametrize(("kind", "record"), TYPES)
def test_append_and_retract_stream_emit_the_given_type(t_env: StreamTableEnvironment, kind: Any, record: Any) -> None:
    table = t_env.from_elements([(1, "a")], ["id", "name"])
    # A downstream function sees the same values as the program.
    seen = t_env.to_append_stream(table, kind).map(repr, Types.STRING())
    assert list(seen.execute_and_collect()) == [repr(record)]
    assert list(t_env.to_append_stream(table, kind).execute_and_collect()) == [record]
    assert list(t_env.to_retract_stream(table, kind).execute_and_collect()) == [(True, record)]
    assert t_env.to_retract_stream(table, kind).get_type() == Types.TUPLE([Types.BOOLEAN(), kind])


@OLD
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Types.ROW([Types.LONG()]), "Different number of columns."),
        (Types.ROW([Types.INT(), Types.STRING()]), "Incompatible types for sink column 'f0' at position 1."),
        (Types.TUPLE([Types.LONG(), Types.LONG()]), "Incompatible types for sink column 'f1' at position 2."),
        (Types.LONG(), "Different number of columns."),
    ],
)
def test_append_and_retract_stream_reject_a_type_with_other_columns(
    t_env: StreamTableEnvironment, kind: Any, cause: str
) -> None:
    table = t_env.from_elements([(1, "a")], ["id", "name"])
    for method in (t_env.to_append_stream, t_env.to_retract_stream):
        with pytest.raises(ValidationException, match=cause):
            method(table, kind)


def test_from_data_stream_rejects_a_stream_of_another_environment(t_env: StreamTableEnvironment) -> None:
    with pytest.raises(MillstreamError, match="belongs to another environment"):
        t_env.from_data_stream(LocalEnvironment().from_collection([1], Types.INT()))


def test_to_changelog_stream_schema_matches_columns_by_position(
    env: LocalEnvironment, t_env: StreamTableEnvironment
) -> None:
    table = t_env.from_elements([(1, 2)], ["a", "b"])
    big = DataTypes.BIGINT()
    swapped = t_env.to_changelog_stream(table, Schema.new_builder().column("b", big).column("a", big).build())
    assert list(swapped.execute_and_collect()) == [Row(b=1, a=2)]
    with pytest.raises(ValidationException, match="Cause: Different number of columns."):
        t_env.to_changelog_stream(table, Schema.new_builder().column("a", big).build())
    narrow = Schema.new_builder().column("a", DataTypes.INT()).column("b", big).build()
    with pytest.raises(ValidationException, match="Incompatible types for sink column 'a' at position 1."):
        t_env.to_changelog_stream(table, narrow)


def test_to_changelog_stream_omits_the_rowtime_metadata_column(
    env: LocalEnvironment, t_env: StreamTableEnvironment
) -> None:
    time = DataTypes.TIMESTAMP_LTZ(3)
    schema = Schema.new_builder().column_by_metadata("rowtime", time).watermark("rowtime", "SOURCE_WATERMARK()")
    table = t_env.from_data_stream(stamped(env.from_collection([(1, "a"), (2, "b")], NAMED)), schema.build())
    out = Schema.new_builder().column_by_metadata("rowtime", time).column("text", DataTypes.STRING()).build()

    class Stamps(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, ctx.timestamp()

    stream = t_env.to_changelog_stream(table.select(col("rowtime"), col("name")), out)
    assert list(stream.process(Stamps()).execute_and_collect()) == [(Row(text="a"), 1000), (Row(text="b"), 2000)]
