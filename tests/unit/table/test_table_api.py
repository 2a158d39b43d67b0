"""The Table API under PyFlink's names: expressions, results, user functions, settings, names."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration, Row, RowKind
from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.unsupported import NotSupportedError
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language.errors import SqlParserException
from millstream.table import (
    DataTypes,
    EnvironmentSettings,
    ExplainDetail,
    FormatDescriptor,
    ResultKind,
    Schema,
    StreamTableEnvironment,
    Table,
    TableDescriptor,
    TableFunction,
)
from millstream.table.catalog import (
    CatalogColumnStatistics,
    CatalogPartition,
    CatalogPartitionSpec,
    CatalogTableStatistics,
    ObjectPath,
)
from millstream.table.expressions import (
    UNBOUNDED_RANGE,
    array,
    call,
    call_sql,
    coalesce,
    col,
    concat_ws,
    descriptor,
    if_then_else,
    lit,
    map_,
    range_,
    row,
    row_interval,
    with_columns,
    without_columns,
)
from millstream.table.table_base import node_of
from millstream.table.udf import ScalarFunction, udaf, udf, udtf
from millstream.table.window import Over, Session, Slide, Tumble
from millstream.testing import LocalEnvironment, ValuesTable


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    env = StreamTableEnvironment.create(LocalEnvironment())
    env.get_config().set("table.local-time-zone", "UTC")
    return env


@pytest.fixture
def people(t_env: StreamTableEnvironment) -> Table:
    return t_env.from_elements([(1, "Ann", 2.5), (2, "Bob", None)], ["id", "name", "x"])


def rows(table: Table) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in table.execute().collect()]


# --- results


def _subquery_environment(values: list[Any], batch: bool = False) -> StreamTableEnvironment:
    """Return an environment with a table of two rows, and a table of the given rows for a subquery."""
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    env = StreamTableEnvironment.create(LocalEnvironment(), settings)
    for name, rows in (("two", [(7,), (8,)]), ("fetched", values)):
        env.execute_sql(f"CREATE TABLE {name} ({name[0]} INT) WITH {ValuesTable(rows).options}")
    return env


@pytest.mark.parametrize("batch", [False, True])
def test_scalar_subquery_is_a_value(batch: bool) -> None:
    query = "SELECT t, (SELECT f FROM fetched) FROM two"
    for values, expected in (([(1,)], [(7, 1), (8, 1)]), ([], [(7, None), (8, None)])):
        changes = list(_subquery_environment(values, batch).execute_sql(query).collect())
        left = [tuple(r) for r in changes if r.get_row_kind() is RowKind.INSERT]
        for removed in (tuple(r) for r in changes if r.get_row_kind() is RowKind.DELETE):
            left.remove(removed)
        assert sorted(left) == expected
    with pytest.raises(MillstreamError, match=r"SingleValueAggFunction received more than one element: .* Select one"):
        list(_subquery_environment([(1,), (2,)], batch).execute_sql(query).collect())


def test_scalar_subquery_row_may_change() -> None:
    rows = [Row(1), Row(1), Row(2), Row(2), Row(3)]
    kinds = (RowKind.INSERT, RowKind.DELETE, RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER)
    for value_row, kind in zip(rows, kinds, strict=True):
        value_row.set_row_kind(kind)
    t_env = _subquery_environment(rows)
    sink = ValuesTable()
    t_env.execute_sql(f"CREATE TABLE snk (a INT, b INT) WITH {sink.options}")
    t_env.execute_sql("INSERT INTO snk SELECT t, (SELECT f FROM fetched) FROM two").wait()
    assert sink.final() == [(7, 3), (8, 3)]


def test_result_print_matches_flink(t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    t_env.execute_sql(
        "SELECT x, COUNT(*) AS c FROM (VALUES (1, 'a'), (2, 'b'), (1, 'c')) AS T(x, y) GROUP BY x"
    ).print()
    assert capsys.readouterr().out == (
        "+----+-------------+----------------------+\n"
        "| op |           x |                    c |\n"
        "+----+-------------+----------------------+\n"
        "| +I |           1 |                    1 |\n"
        "| +I |           2 |                    1 |\n"
        "| -U |           1 |                    1 |\n"
        "| +U |           1 |                    2 |\n"
        "+----+-------------+----------------------+\n"
        "4 rows in set\n"
    )


def test_result_print_in_batch_mode_shows_final_rows_without_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    t_env.execute_sql("SELECT COUNT(*) AS c FROM (VALUES (1), (2)) AS T(x)").print()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == ["|                    c |", "+----------------------+", "|                    2 |"]
    assert lines[-1] == "1 row in set"


def test_result_print_truncates_long_and_aligns_wide_values(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    t_env.execute_sql("SELECT 'a long text that is more than thirty characters long' AS a, '漢字かな' AS b").print()
    line = capsys.readouterr().out.splitlines()[3]
    assert line == f"| +I | a long text that is more th... | {' ' * 22}漢字かな |"


def test_result_print_of_no_rows_is_an_empty_set(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    t_env.execute_sql("SELECT x FROM (VALUES (1)) AS T(x) WHERE x > 5").print()
    assert capsys.readouterr().out == "Empty set\n"


def test_result_of_ddl_is_ok_and_of_insert_is_minus_one(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    result = t_env.execute_sql("CREATE TABLE snk (a INT) WITH ('connector' = 'blackhole')")
    result.print()
    assert result.get_result_kind() == ResultKind.SUCCESS
    written = t_env.execute_sql("INSERT INTO snk SELECT 1")
    assert written.get_result_kind() == ResultKind.SUCCESS_WITH_CONTENT
    assert written.get_job_client() is not None
    written.print()
    assert capsys.readouterr().out == "OK\n-1\n"
    assert [tuple(r) for r in written.collect()] == [(-1,)]


def test_result_collect_returns_row_kinds_and_python_values(t_env: StreamTableEnvironment) -> None:
    rows = list(t_env.execute_sql("SELECT x, COUNT(*) FROM (VALUES (1), (1)) AS T(x) GROUP BY x").collect())
    assert [(tuple(r), r.get_row_kind()) for r in rows] == [
        ((1, 1), RowKind.INSERT),
        ((1, 1), RowKind.UPDATE_BEFORE),
        ((1, 2), RowKind.UPDATE_AFTER),
    ]
    assert repr(rows[0]) == "<Row(1, 1)>"


def test_result_close_cancels_the_job(t_env: StreamTableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE g (a BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000')")
    result = t_env.execute_sql("SELECT a FROM g")
    with result.collect() as rows:
        assert next(rows) is not None
    client = result.get_job_client()
    assert client is not None
    assert client.get_job_status().result().name == "CANCELED"


def test_result_collect_works_once(t_env: StreamTableEnvironment) -> None:
    result = t_env.execute_sql("SELECT 1")
    assert len(list(result.collect())) == 1
    with pytest.raises(TableException, match="read only once"):
        result.collect()


def test_to_pandas_and_to_arrow_return_final_rows(t_env: StreamTableEnvironment) -> None:
    counts = t_env.sql_query("SELECT x, COUNT(*) AS c FROM (VALUES (1), (2), (1)) AS T(x) GROUP BY x")
    assert sorted(counts.to_arrow().to_pylist(), key=lambda r: r["x"]) == [{"x": 1, "c": 2}, {"x": 2, "c": 1}]
    pandas = pytest.importorskip("pandas")
    frame = t_env.from_pandas(pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})).select(col("b"), col("a") * 2)
    assert frame.to_pandas().values.tolist() == [["x", 2], ["y", 4]]


# --- tables


def test_from_elements_infers_or_takes_a_schema(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    t_env.from_elements([(1, "a", 1.5, True, None), (2, None, 2.5, False, "x")]).print_schema()
    assert capsys.readouterr().out == (
        "(\n  `_1` BIGINT,\n  `_2` STRING,\n  `_3` DOUBLE,\n  `_4` BOOLEAN,\n  `_5` STRING\n)\n"
    )
    typed = t_env.from_elements([(1, decimal.Decimal("2.5"))], DataTypes.ROW([
        DataTypes.FIELD("a", DataTypes.TINYINT()), DataTypes.FIELD("d", DataTypes.DECIMAL(5, 2)),
    ]))  # fmt: skip
    assert rows(typed) == [(1, decimal.Decimal("2.50"))]
    assert rows(t_env.from_elements([1, 2], DataTypes.INT())) == [(1,), (2,)]
    assert rows(t_env.from_elements([row(1, "a"), row(2, "b")], ["i", "s"])) == [(1, "a"), (2, "b")]


def test_from_elements_rejects_values_that_do_not_fit_the_schema(t_env: StreamTableEnvironment) -> None:
    kind = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())])
    with pytest.raises(TypeMismatchError, match="'x' of type str .* is not one of type INT"):
        t_env.from_elements([("x",)], kind)
    with pytest.raises(ValueError, match="has 2 values, and the schema 1 columns"):
        t_env.from_elements([(1, 2)], kind)


def test_select_names_columns_as_flink_does(people: Table) -> None:
    def names(table: Table) -> list[str]:
        return table.get_resolved_schema().get_column_names()

    assert names(people.select(col("id") + 1, col("name").upper_case, col("id").cast(DataTypes.DOUBLE()), lit(1))) == [
        "_c0", "_c1", "id-DOUBLE", "_c3",
    ]  # fmt: skip
    assert names(people.group_by(col("name")).select(col("id").sum, col("name"), col("id").count + 1)) == [
        "EXPR$0", "name", "_c2",
    ]  # fmt: skip
    assert names(people.alias("a", "b")) == ["a", "b", "x"]
    assert names(people.add_columns(col("id") + 1, (col("id") * 2).alias("d"))) == ["id", "name", "x", "_c3", "d"]
    assert names(people.add_or_replace_columns((col("id") * 2).alias("x"))) == ["id", "name", "x"]
    assert names(people.rename_columns(col("id").alias("key"))) == ["key", "name", "x"]
    assert names(people.drop_columns(col("name"))) == ["id", "x"]
    assert names(people.select(with_columns(range_("id", "name")))) == ["id", "name"]
    pairs = people.select(row(col("id"), col("name")).alias("r"))
    assert names(pairs.select(col("r").get(0), col("r").flatten)) == ["r$_0", "r$f0", "r$f1"]
    assert names(people.select(without_columns(col("id")))) == ["name", "x"]


def test_expressions_evaluate_like_sql(t_env: StreamTableEnvironment, people: Table) -> None:
    table = people.where(col("id") == 1)
    for expression, value in [
        (col("id") + 1, 2),
        (2 - col("id"), 1),
        (-col("id"), -1),
        (col("name") + "!", "Ann!"),
        (col("name").substring(2, 2), "nn"),
        (col("name").like("A%"), True),
        ((col("id") > 0) & (col("id") < 2), True),
        (~(col("id") == 1), False),
        (if_then_else(col("id") > 1, "big", "small"), "small"),
        (col("id").in_(1, 5), True),
        (col("id").between(2, 3), False),
        (coalesce(lit(None, DataTypes.INT()), 7), 7),
        (concat_ws("-", "a", "b"), "a-b"),
        (array(1, 2, 3)[2], 2),
        (map_("a", 1).at("a"), 1),
        (call("UPPER", col("name")), "ANN"),
        (call_sql("id * 10"), 10),
        (lit("2024-01-31").to_date + lit(1).days, datetime.date(2024, 2, 1)),
        (lit(decimal.Decimal("1.5")) * 2, decimal.Decimal("3.0")),
        (lit(2.5), 2.5),
        (col("name").char_length, 3),
    ]:
        assert rows(table.select(expression)) == [(value,)], str(expression)


def test_expression_text_matches_flink() -> None:
    assert [
        str(e)
        for e in (col("a") + 1, col("b").upper_case, lit("x"), col("a") == 2, col("a").alias("z"), lit(10).minutes)
    ] == ["plus(a, 1)", "upper(b)", "'x'", "equals(a, 2)", "as(a, 'z')", "600000"]


def test_table_joins_ordering_and_set_operations(t_env: StreamTableEnvironment, people: Table) -> None:
    other = t_env.from_elements([(1, "x"), (3, "y")], ["rid", "what"])
    assert rows(people.join(other, col("id") == col("rid")).select(col("name"), col("what"))) == [("Ann", "x")]
    left = people.left_outer_join(other, col("id") == col("rid")).select(col("id"), col("what"))
    assert sorted(left.to_arrow().to_pylist(), key=repr) == [{"id": 1, "what": "x"}, {"id": 2, "what": None}]
    both = people.select(col("id")).union_all(other.select(col("rid")))
    assert sorted(rows(both)) == [(1,), (1,), (2,), (3,)]
    assert sorted(rows(people.select(col("id")).intersect(other.select(col("rid"))))) == [(1,)]
    assert rows(people.order_by(col("id").desc).fetch(1).select(col("id")))[-1] == (2,)
    with pytest.raises(ValidationException, match="Ambiguous column name: id"):
        people.join(people, col("id") == col("id"))
    assert rows(people.where(col("id").in_(other.select(col("rid")))).select(col("name"))) == [("Ann",)]


def test_unknown_column_error_lists_the_columns(people: Table) -> None:
    with pytest.raises(ValidationException, match=r"Cannot resolve field \[zz\], input field list:\[id, name, x\]"):
        people.select(col("zz"))
    with pytest.raises(AttributeError, match="no column named 'zz'"):
        _ = people.zz
    assert rows(people.select(people.name)) == [("Ann",), ("Bob",)]


def test_table_can_be_used_in_sql_text(t_env: StreamTableEnvironment, people: Table) -> None:
    assert rows(t_env.sql_query(f"SELECT name FROM {people} WHERE id = 2")) == [("Bob",)]
    assert str(people) == "UnnamedTable$0"


def test_group_windows_of_the_table_api(t_env: StreamTableEnvironment) -> None:
    times = [datetime.datetime(2024, 1, 1, 0, 0, s) for s in (1, 4, 12)]
    source = ValuesTable([(times[0], "a", 1), (times[1], "a", 2), (times[2], "b", 3)])
    t_env.execute_sql(
        "CREATE TABLE bids (ts TIMESTAMP(3), k STRING, n INT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        f"WITH {source.options}"
    )
    bids = t_env.from_path("bids")

    def counted(window: Any) -> list[tuple[Any, ...]]:
        grouped = bids.window(window).group_by(col("w"), col("k"))
        return rows(grouped.select(col("k"), col("w").start, col("w").end, col("n").sum.alias("s")))

    ten = counted(Tumble.over(lit(10).seconds).on(col("ts")).alias("w"))
    start = datetime.datetime(2024, 1, 1)
    assert ten == [
        ("a", start, start + datetime.timedelta(seconds=10), 3),
        ("b", start + datetime.timedelta(seconds=10), start + datetime.timedelta(seconds=20), 3),
    ]
    assert len(counted(Slide.over(lit(10).seconds).every(lit(5).seconds).on(col("ts")).alias("w"))) == 4
    assert len(counted(Session.with_gap(lit(5).seconds).on(col("ts")).alias("w"))) == 2
    with pytest.raises(ValidationException, match="must have the window's alias"):
        bids.window(Tumble.over(lit(10).seconds).on(col("ts")).alias("w")).group_by(col("k"))


def test_over_windows_translate_to_sql() -> None:
    window = Over.partition_by(col("k")).order_by(col("ts")).preceding(row_interval(2)).alias("w").tree
    assert (window.unit, window.start.side, window.start.distance.text) == ("ROWS", -1, "2")  # type: ignore[union-attr]
    unbounded = Over.order_by(col("ts")).preceding(UNBOUNDED_RANGE).alias("w").tree
    assert (unbounded.unit, unbounded.start.distance) == ("RANGE", None)  # type: ignore[union-attr]


# --- user functions


def test_scalar_udfs_of_all_forms(t_env: StreamTableEnvironment, people: Table) -> None:
    @udf(result_type=DataTypes.BIGINT())
    def plus(a: int, b: int) -> int:
        return a + b

    class Shout(ScalarFunction):
        def open(self, function_context: Any) -> None:
            self.mark = "!" * (1 + function_context.get_index_of_this_subtask())

        def eval(self, text: str) -> str:
            return text + self.mark  # type: ignore[no-any-return]

    shout = udf(Shout(), result_type="STRING")
    t_env.create_temporary_system_function("plus", plus)
    assert rows(t_env.sql_query(f"SELECT plus(id, 5) FROM {people}")) == [(6,), (7,)]
    assert rows(people.select(plus(col("id"), 1), shout(col("name")))) == [(2, "Ann!"), (3, "Bob!")]
    assert "plus" in t_env.list_user_defined_functions()
    assert t_env.drop_temporary_system_function("plus")


def test_udf_is_opened_and_closed_once_per_subtask(people: Table, tmp_path: Path) -> None:
    log = tmp_path / "log"

    class CountedCalls(ScalarFunction):
        def open(self, function_context: Any) -> None:
            log.write_text("opened ")

        def eval(self, n: int) -> int:
            return n

        def close(self) -> None:
            log.write_text(log.read_text() + "closed")

    assert rows(people.select(udf(CountedCalls(), result_type=DataTypes.BIGINT())(col("id")))) == [(1,), (2,)]
    assert log.read_text() == "opened closed"


def test_udtfs_in_joins_and_flat_map(t_env: StreamTableEnvironment, people: Table) -> None:
    class Letters(TableFunction):
        def eval(self, text: str) -> Any:
            yield from enumerate(text[:2])

    letters = udtf(Letters(), result_types=[DataTypes.INT(), DataTypes.STRING()])
    t_env.create_temporary_function("letters", letters)
    expected = [(1, "A"), (1, "n"), (2, "B"), (2, "o")]
    sql = f"SELECT id, l FROM {people}, LATERAL TABLE(letters(name)) AS T(i, l)"
    assert rows(t_env.sql_query(sql)) == expected
    joined = people.join_lateral(letters(col("name")).alias("i", "l"))
    assert rows(joined.select(col("id"), col("l"))) == expected
    assert rows(people.flat_map(letters(col("name")))) == [(0, "A"), (1, "n"), (0, "B"), (1, "o")]


def test_map_returns_a_row_for_a_row(people: Table) -> None:
    kind = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.BIGINT()), DataTypes.FIELD("b", DataTypes.STRING())])

    @udf(result_type=kind)
    def turned(r: Row) -> Row:
        return Row(r.id * 10, r.name.lower())

    mapped = people.map(turned)
    assert mapped.get_resolved_schema().get_column_names() == ["a", "b"]
    assert rows(mapped) == [(10, "ann"), (20, "bob")]


def test_async_udfs_keep_the_order(people: Table) -> None:
    @udf(result_type=DataTypes.STRING())
    async def slow(name: str) -> str:
        import asyncio

        await asyncio.sleep(0.02 if name == "Ann" else 0)
        return name.upper()

    assert rows(people.select(slow(col("name")))) == [("ANN",), ("BOB",)]


def test_pandas_udfs_receive_columns(people: Table) -> None:
    pytest.importorskip("pandas")

    @udf(result_type=DataTypes.BIGINT(), func_type="pandas")
    def double(a: Any) -> Any:
        return a * 2

    @udf(result_type=DataTypes.BIGINT(), func_type="pandas")
    def short(a: Any) -> Any:
        return a[:1]

    assert rows(people.select(double(col("id")))) == [(2,), (4,)]
    with pytest.raises(MillstreamError, match="has returned 1 values for 2 rows"):
        rows(people.select(short(col("id"))))


def test_udf_error_shows_user_lines_and_the_row(people: Table) -> None:
    @udf(result_type=DataTypes.BIGINT())
    def broken(a: int) -> int:
        return 1 // (a - 2)

    with pytest.raises(MillstreamError) as error:
        rows(people.select(broken(col("id"))))
    text = str(error.value)
    first, *_ = [line for line in text.splitlines() if line.strip().startswith("File")]
    assert "test_table_api.py" in first
    assert "in the function broken, for the row (2)" in text


def test_udf_returning_another_type_raises(people: Table) -> None:
    @udf(result_type=DataTypes.BIGINT())
    def wrong(a: int) -> str:
        return "x"

    with pytest.raises(MillstreamError, match="The function wrong has returned a value of another type"):
        rows(people.select(wrong(col("id"))))


def test_udaf_is_called_in_select(people: Table) -> None:
    from millstream.table import AggregateFunction

    class Sum(AggregateFunction[int, list[int]]):
        def create_accumulator(self) -> list[int]:
            return [0]

        def accumulate(self, accumulator: list[int], *args: Any) -> None:
            accumulator[0] += args[0]

        def get_value(self, accumulator: list[int]) -> int:
            return accumulator[0]

    total = udaf(Sum(), result_type=DataTypes.BIGINT(), accumulator_type=DataTypes.ARRAY(DataTypes.BIGINT()))
    assert rows(people.group_by(col("name")).select(total(col("id")))) == [(1,), (2,)]


# --- statements, catalogs, settings


def test_statement_set_is_one_job(t_env: StreamTableEnvironment, people: Table) -> None:
    one, two = ValuesTable(), ValuesTable()
    t_env.execute_sql(f"CREATE TABLE ids (id BIGINT) WITH {one.options}")
    t_env.execute_sql(f"CREATE TABLE names (name STRING) WITH {two.options}")
    statements = t_env.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO ids SELECT id FROM {people}")
    statements.add_insert("names", people.select(col("name")))
    statements.execute().wait()
    assert ([tuple(r) for r in one.results()], [tuple(r) for r in two.results()]) == (
        [(1,), (2,)],
        [("Ann",), ("Bob",)],
    )
    one.clear()
    t_env.execute_sql(f"EXECUTE STATEMENT SET BEGIN INSERT INTO ids SELECT id FROM {people}; END").wait()
    assert [tuple(r) for r in one.results()] == [(1,), (2,)]


def test_table_descriptors_declare_tables(t_env: StreamTableEnvironment) -> None:
    schema = (
        Schema.new_builder()
        .column("a", DataTypes.BIGINT())
        .column_by_expression("b", col("a") * 2)
        .column("s", "STRING")
        .build()
    )
    options = {"number-of-rows": 3, "fields.a.kind": "sequence", "fields.a.start": 1, "fields.a.end": 3}
    builder = TableDescriptor.for_connector("datagen").schema(schema)
    for key, value in options.items():
        builder.option(key, value)
    t_env.create_temporary_table("g", builder.build())
    assert rows(t_env.from_path("g").select(col("a"), col("b"))) == [(1, 2), (2, 4), (3, 6)]
    assert rows(t_env.from_descriptor(builder.build()).select(col("a")))[0] == (1,)
    json = FormatDescriptor.for_format("json").option("ignore-parse-errors", True).build()
    reported = TableDescriptor.for_connector("filesystem").format(json).build().get_options()
    assert reported == {"connector": "filesystem", "format": "json", "json.ignore-parse-errors": "true"}


def test_schema_text_matches_flink() -> None:
    schema = (
        Schema.new_builder()
        .column("id", DataTypes.INT().not_null())
        .column_by_expression("c", "id + 1")
        .column_by_metadata("m", DataTypes.STRING(), "key", True)
        .watermark("ts", "ts - INTERVAL '1' SECOND")
        .primary_key("id")
        .build()
    )
    assert str(schema) == (
        "(\n  `id` INT NOT NULL,\n  `c` AS [id + 1],\n  `m` STRING METADATA FROM 'key' VIRTUAL,\n"
        "  WATERMARK FOR `ts` AS [ts - INTERVAL '1' SECOND],\n"
        "  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED\n)"
    )


def test_table_descriptor_rejects_a_missing_schema_or_nullable_key(t_env: StreamTableEnvironment) -> None:
    descriptor = TableDescriptor.for_connector("print")
    assert "COMMENT" not in str(descriptor.build())
    with pytest.raises(ValidationException, match="Missing schema in TableDescriptor"):
        t_env.create_table("x", descriptor.build())
    keyed = Schema.new_builder().column("a", "INT").primary_key("a").build()
    with pytest.raises(ValidationException, match="Invalid primary key 'PK_a'. Column 'a' is nullable"):
        t_env.create_temporary_table("x", descriptor.schema(keyed).build())


def test_resolved_schema_of_a_declared_table(t_env: StreamTableEnvironment) -> None:
    t_env.execute_sql(
        "CREATE TABLE declared (a INT NOT NULL COMMENT 'no', b STRING, ts TIMESTAMP(3), c AS a * 2 COMMENT 'twice', "
        "p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (a) NOT ENFORCED) "
        "WITH ('connector' = 'datagen')"
    )
    table = t_env.from_path("declared")
    assert (
        str(table.get_resolved_schema())
        == """(
  `a` INT NOT NULL COMMENT 'no',
  `b` STRING,
  `ts` TIMESTAMP(3) *ROWTIME*,
  `c` INT NOT NULL AS `a` * 2 COMMENT 'twice',
  `p` TIMESTAMP_LTZ(3) NOT NULL *PROCTIME* AS PROCTIME(),
  WATERMARK FOR `ts`: TIMESTAMP(3) AS `ts` - INTERVAL '5' SECOND,
  CONSTRAINT `PK_a` PRIMARY KEY (`a`) NOT ENFORCED
)"""
    )
    t_env.create_temporary_view("seen", table.where(col("a") > 1))
    assert t_env.from_path("seen").get_resolved_schema() == table.get_resolved_schema()
    # A query over it returns plain columns.
    plain = str(table.where(col("a") > 1).select(col("ts"), col("c")).get_resolved_schema())
    assert plain == "(\n  `ts` TIMESTAMP(3) *ROWTIME*,\n  `c` INT NOT NULL\n)"


def test_catalog_methods_of_the_table_environment(t_env: StreamTableEnvironment, people: Table) -> None:
    t_env.create_temporary_view("v", people)
    assert t_env.list_tables() == ["v"]
    assert t_env.list_temporary_views() == ["v"]
    assert (t_env.list_catalogs(), t_env.list_databases()) == (["default_catalog"], ["default_database"])
    assert t_env.drop_temporary_view("v")
    assert t_env.list_tables() == []
    with pytest.raises(ValidationException, match="Table `nope` was not found"):
        t_env.from_path("nope")
    catalog = t_env.get_catalog("default_catalog")
    assert catalog is not None
    assert catalog.list_databases() == ["default_database"]
    assert "upper" in t_env.list_functions()
    assert [str(m) for m in t_env.list_full_modules()] == ["ModuleEntry{name='core', used=true}"]


def test_table_config_shares_the_environment_configuration() -> None:
    env = LocalEnvironment(Configuration().set_string("parallelism.default", "3"))
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("table.exec.state.ttl", "1 h").set("pipeline.jars", "file:///x.jar")
    assert env.get_configuration().get_string("table.exec.state.ttl", "") == "1 h"
    assert t_env.get_config().get_idle_state_retention() == datetime.timedelta(hours=1)
    t_env.execute_sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    assert t_env.get_config().get_local_timezone() == "Europe/Berlin"
    assert env.get_parallelism() == 3
    assert list(t_env.execute_sql("SELECT 1").collect()) == [Row(1)]


_ADVICE = "You might want to enable local-global two-phase optimization by configuring "


@pytest.mark.parametrize(
    "settings, advice",
    [
        (
            {},
            f"{_ADVICE}('table.exec.mini-batch.enabled' to 'true', 'table.exec.mini-batch.allow-latency' to a "
            "positive long value, 'table.exec.mini-batch.size' to a positive long value).",
        ),
        (
            {"table.exec.mini-batch.enabled": "true", "table.optimizer.agg-phase-strategy": "ONE_PHASE"},
            f"{_ADVICE}('table.optimizer.agg-phase-strategy' to 'AUTO').",
        ),
        ({"table.exec.mini-batch.enabled": "true"}, None),
    ],
)
def test_explain_gives_the_advice_of_flink(
    t_env: StreamTableEnvironment, people: Table, settings: dict[str, str], advice: str | None
) -> None:
    config = t_env.get_config()
    for key, value in settings.items():
        config.set(key, value)
    for key in () if not settings else ("allow-latency", "size"):
        config.set(f"table.exec.mini-batch.{key}", "10")
    text = people.group_by(col("name")).select(col("name"), lit(1).count).explain(ExplainDetail.PLAN_ADVICE)
    assert "== Optimized Physical Plan With Advice ==\n" in text
    if advice is None:
        assert "\n\nNo available advice...\n\n== Optimized Execution Plan ==\n" in text
    else:
        assert "\nGroupAggregate(advice=[1], groupBy=[name], " in text
        assert f"\n\nadvice[1]: [ADVICE] {advice}\n\n== Optimized Execution Plan ==\n" in text


def test_explain_includes_the_execution_plan_as_json(t_env: StreamTableEnvironment, people: Table) -> None:
    text = people.where(col("id") > 1).explain(ExplainDetail.JSON_EXECUTION_PLAN)
    nodes = json.loads(text.partition("\n== Physical Execution Plan ==\n")[2])["nodes"]
    assert [n["pact"] for n in nodes] == ["Data Source", "Operator", "Operator"]
    assert nodes[1]["predecessors"] == [{"id": nodes[0]["id"], "ship_strategy": "FORWARD", "side": "second"}]
    # The result is the same each time: the call leaves nothing in the program.
    assert len(json.loads(people.explain(ExplainDetail.JSON_EXECUTION_PLAN).split(" ==\n")[-1])["nodes"]) == 2


def test_explain_has_three_sections(people: Table) -> None:
    explanation = people.select(col("id")).explain()
    parts = ["== Abstract Syntax Tree ==", "== Optimized Physical Plan ==", "== Optimized Execution Plan =="]
    assert [line for line in explanation.splitlines() if line.startswith("==")] == parts


@pytest.mark.parametrize(
    ("use", "error_text"),
    [
        (lambda t: t.connect(None), "Flink 2 has removed"),
        (lambda t: t.sql_update("INSERT"), "use execute_sql"),
        (lambda t: t.register_function("f", None), "create_temporary_system_function"),
    ],
)
def test_removed_flink_1_apis_name_their_replacement(t_env: StreamTableEnvironment, use: Any, error_text: str) -> None:
    with pytest.raises(NotSupportedError, match=error_text):
        use(t_env)


def test_removed_modules_and_classes_raise() -> None:
    from millstream import table
    from millstream.table import descriptors

    with pytest.raises(NotSupportedError, match="Flink 2 has removed connect\\(\\)"):
        descriptors.Kafka()  # type: ignore[operator]
    with pytest.raises(NotSupportedError, match="in_batch_mode"):
        table.BatchTableEnvironment()  # type: ignore[operator]


def test_catalog_partitions_and_statistics(t_env: StreamTableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE parted (a INT, p STRING, q INT) PARTITIONED BY (p, q) WITH ('connector' = 'print')")
    t_env.execute_sql("CREATE TABLE whole (a INT) WITH ('connector' = 'print')")
    catalog = t_env.get_catalog("default_catalog")
    assert catalog is not None
    parted, whole = ObjectPath("default_database", "parted"), ObjectPath("default_database", "whole")
    one, two = CatalogPartitionSpec({"p": "x", "q": "1"}), CatalogPartitionSpec({"q": "2", "p": "x"})
    partition = CatalogPartition.create_instance({"k": "v"}, "a day")
    for spec in (one, two):
        catalog.create_partition(parted, spec, partition, False)
    catalog.create_partition(parted, one, partition, True)
    assert catalog.list_partitions(parted, CatalogPartitionSpec({"q": "2"})) == [two]
    assert catalog.get_partition(parted, one).get_properties() == {"k": "v"}
    shown = [r[0] for r in t_env.execute_sql("SHOW PARTITIONS parted").collect()]
    assert shown == ["p=x/q=1", "p=x/q=2"]
    (row,) = t_env.execute_sql("SHOW PARTITIONS parted PARTITION (q = '2')").collect()
    assert row[0] == "p=x/q=2"
    catalog.alter_partition(parted, two, CatalogPartition.create_instance({}, None), False)
    assert catalog.get_partition(parted, two).get_comment() is None
    counts = CatalogTableStatistics(3, 1, 20, 30, None)
    catalog.alter_table_statistics(whole, counts, False)
    catalog.alter_partition_statistics(parted, one, counts, False)
    assert catalog.get_table_statistics(whole).get_row_count() == 3
    assert [s.get_row_count() for s in catalog.bulk_get_partition_statistics(parted, [one, two])] == [3, -1]
    columns = CatalogColumnStatistics({"a": 1}, {})
    catalog.alter_table_column_statistics(whole, columns, False)
    catalog.alter_partition_column_statistics(parted, two, columns, False)
    assert catalog.get_partition_column_statistics(parted, two).get_column_statistics_data() == {"a": 1}
    assert catalog.get_table_column_statistics(parted).get_column_statistics_data() == {}
    catalog.drop_partition(parted, two, False)
    assert not catalog.partition_exists(parted, two)
    for act, error_text in (
        (lambda: catalog.list_partitions(whole), "is not partitioned"),
        (lambda: catalog.get_partition(parted, two), "does not exist"),
        (lambda: catalog.create_partition(parted, one, partition, False), "already exists"),
        (
            lambda: catalog.create_partition(parted, CatalogPartitionSpec({"z": "1"}), partition, False),
            r"keys \[p, q\]",
        ),
        (lambda: catalog.get_table_statistics(ObjectPath("default_database", "no")), "does not exist"),
        (lambda: t_env.execute_sql("SHOW PARTITIONS whole"), "is not partitioned"),
    ):
        with pytest.raises(MillstreamError, match=error_text):
            act()
    # Dropped objects no longer exist.
    t_env.execute_sql("DROP TABLE parted")
    t_env.execute_sql("CREATE TABLE parted (a INT, p STRING, q INT) PARTITIONED BY (p, q) WITH ('connector' = 'print')")
    assert catalog.list_partitions(parted) == []


@pytest.mark.parametrize("name", ["order", "user", "select", "`a.b`", "default_database.values"])
def test_from_path_accepts_keywords_as_table_names(t_env: StreamTableEnvironment, people: Table, name: str) -> None:
    t_env.create_temporary_view(name, people)
    assert t_env.from_path(name).get_resolved_schema() == people.get_resolved_schema()


@pytest.mark.parametrize("name", ["1a", "a-b", "a b", "a.", "", "a..b"])
def test_from_path_rejects_invalid_identifiers(t_env: StreamTableEnvironment, name: str) -> None:
    with pytest.raises(SqlParserException, match=f"Invalid SQL identifier {name}"):
        t_env.from_path(name)


def test_to_changelog_and_from_changelog_functions(t_env: StreamTableEnvironment) -> None:
    events = t_env.from_elements([(1, "a"), (1, "b"), (2, "c")], ["k", "v"])
    counts = events.group_by(col("k")).select(col("k"), lit(1).count.alias("n"))
    kinds = map_("INSERT", "c", "UPDATE_BEFORE", "b", "UPDATE_AFTER", "a").as_argument("op_mapping")
    reported = counts.to_changelog(descriptor("word").as_argument("op"), kinds)
    assert rows(reported) == [("c", 1, 1), ("b", 1, 1), ("a", 1, 2), ("c", 2, 1)]
    back = map_("c", "INSERT", "b", "UPDATE_BEFORE", "a", "UPDATE_AFTER").as_argument("op_mapping")
    again = reported.from_changelog(descriptor("word").as_argument("op"), back)
    changes = [(str(r.get_row_kind()), *r) for r in again.execute().collect()]
    assert changes == [("+I", 1, 1), ("-U", 1, 1), ("+U", 1, 2), ("+I", 2, 1)]
    # Retractions take effect: a downstream aggregate counts them.
    assert rows(again.select(col("n").sum))[-1] == (3,)
    with pytest.raises(TableException, match="doesn't support consuming update changes"):
        rows(_rows_as_changelog(again))
    with pytest.raises(MillstreamError, match=r"Received invalid op code 'c'. Defined op codes are: \[i\]"):
        rows(
            reported.from_changelog(descriptor("word").as_argument("op"), map_("i", "INSERT").as_argument("op_mapping"))
        )


def _rows_as_changelog(table: Table) -> Table:
    changes = table.select(col("n").cast(DataTypes.STRING()).alias("op"), col("k"))
    return changes.from_changelog(map_("1", "INSERT").as_argument("op_mapping"))


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda t: t.alias("a", "a"), "Ambiguous column name: a"),
        (lambda t: t.alias("a", "b", "c", "d", "e"), "Aliasing more fields than we actually have"),
        (lambda t: t.fetch(-1), "FETCH count must be equal or larger than 0"),
        (lambda t: t.offset(-1), "Offset should be greater or equal 0"),
        (lambda t: t.union_all(t.select(col("id"))), "The union operation on two tables of different column sizes"),
        (lambda t: t.from_changelog(), "The op column 'op' does not exist in the input schema"),
        (
            lambda t: t.from_changelog(descriptor("id").as_argument("op")),
            "'id' must be of type STRING, but it is BIGINT",
        ),
        (lambda t: t.to_changelog(descriptor("id").as_argument("op")), "Field names must be unique. Found .*id"),
        (lambda t: t.to_changelog(descriptor("id")), "Arguments of TO_CHANGELOG must be named"),
        (
            lambda t: t.to_changelog(descriptor("w").as_argument("word")),
            "TO_CHANGELOG has no argument word; it has input",
        ),
        (
            lambda t: t.to_changelog(map_("INSERTED", "I").as_argument("op_mapping")),
            "'INSERTED', which is none of INSERT",
        ),
        (
            lambda t: t.to_changelog(map_("INSERT, INSERT", "I").as_argument("op_mapping")),
            "op_mapping has INSERT twice",
        ),
        (
            lambda t: t.to_changelog(map_(1, "I").as_argument("op_mapping")),
            "op_mapping must be a constant MAP of strings",
        ),
        (
            lambda t: t.from_changelog(
                descriptor("name").as_argument("op"), map_("u", "UPDATE_AFTER").as_argument("op_mapping")
            ),
            "both UPDATE_BEFORE and UPDATE_AFTER, or neither",
        ),
        (lambda t: t.select(col("id").as_argument("x")), "Argument is not allowed here"),
    ],
)
def test_table_api_rejects_invalid_calls(people: Table, wrong: Any, message: str) -> None:
    with pytest.raises(ValidationException, match=message):
        wrong(people)


@pytest.mark.parametrize("batch", [False, True])
def test_order_by_places_nulls_as_flink_does(batch: bool) -> None:
    mode = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(LocalEnvironment(), mode)
    kind = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.INT()), DataTypes.FIELD("v", DataTypes.INT())])
    t = t_env.from_elements([(1, 10), (2, None), (3, 30), (4, None), (5, 20)], kind)

    def left(table: Table) -> list[list[Any]]:
        rows: list[list[Any]] = []
        for change in table.execute().collect():
            if change.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                rows.append(list(change))
            else:
                rows.remove(list(change))
        return sorted(rows)

    # Like in PyFlink 2.3: NULL is larger than every value, in SQL smaller.
    assert left(t.order_by(col("v").desc, col("id").asc).fetch(1)) == [[2, None]]
    assert left(t.order_by(col("v").asc).fetch(1)) == [[1, 10]]
    assert left(t.order_by(col("v")).fetch(3)) == [[1, 10], [3, 30], [5, 20]]
    assert left(t.order_by((col("v") + 1).desc, col("id").asc).fetch(1)) == [[2, None]]
    assert left(t.order_by(col("v").desc, col("id").asc).offset(1).fetch(2)) == [[3, 30], [4, None]]
    t_env.create_temporary_view("t", t)
    assert left(t_env.sql_query("SELECT * FROM t ORDER BY v DESC LIMIT 1")) == [[3, 30]]


def test_offset_and_fetch_merge_into_one_sort(people: Table) -> None:
    plan = people.order_by(col("id")).offset(1).fetch(2).explain()
    optimized = plan.partition("== Optimized Physical Plan ==")[2].partition("== Optimized Execution Plan ==")[0]
    assert "offset=[1], fetch=[2]" in optimized and optimized.count("SortLimit") == 1
    with pytest.raises(ValidationException, match="FETCH is already defined"):
        people.fetch(2).fetch(1)
    with pytest.raises(ValidationException, match="OFFSET already defined"):
        people.offset(2).offset(1)
    with pytest.raises(ValidationException, match="FETCH is already defined"):
        people.fetch(2).offset(1)


def test_sum0_of_decimals_and_floats(t_env: StreamTableEnvironment) -> None:
    kind = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.FLOAT()), DataTypes.FIELD("b", DataTypes.DECIMAL(10, 2))])
    t = t_env.from_elements([(1.5, None)], kind)
    assert list(t.select(col("a").sum0, col("b").sum0, col("b").sum).execute().collect()) == [
        Row(1.5, decimal.Decimal("0.00"), None)
    ]


def test_collect_returns_floats_by_their_shortest_text(t_env: StreamTableEnvironment) -> None:
    # PyFlink receives them from Java as text.
    query = (
        "SELECT CAST(1.23 AS FLOAT), ARRAY[CAST(1.23 AS FLOAT)], ROW(CAST(0.1 AS FLOAT)), MAP['a', CAST(0.1 AS FLOAT)]"
    )
    (row,) = t_env.sql_query(query).execute().collect()
    assert row == Row(1.23, [1.23], Row(0.1), {"a": 0.1})


def test_nested_json_constants_are_not_quoted(t_env: StreamTableEnvironment) -> None:
    query = (
        "SELECT JSON_OBJECT('a' VALUE JSON_OBJECT('b' VALUE 1)), JSON_ARRAY(JSON_ARRAY(1), JSON('{\"a\": 1}')), "
        "JSON_STRING(JSON_OBJECT('b' VALUE 1))"
    )
    (row,) = t_env.sql_query(query).execute().collect()
    assert list(row) == ['{"a":{"b":1}}', '[[1],{"a":1}]', '{"b":1}']


def test_user_aggregates_name_columns_as_flink_does(t_env: StreamTableEnvironment) -> None:
    t_env.execute_sql(
        "CREATE TABLE l (id INT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')"
    )
    t = t_env.from_path("l")
    windows = t.window(Tumble.over(lit(10).seconds).on(col("ts")).alias("w")).group_by(col("w"), col("id"))

    def columns(table: Table) -> list[str]:
        return [f"{f.name} {f.type}" for f in node_of(table).fields.fields]

    whole = udaf(lambda v: v.sum(), result_type=DataTypes.BIGINT(), func_type="pandas")
    assert columns(windows.select(col("w").start, whole(col("v")), col("v").sum)) == [
        "EXPR$0 TIMESTAMP(3)",
        "EXPR$1 BIGINT",
        "EXPR$2 BIGINT",
    ]
    assert columns(windows.select(whole(col("v")).alias("x"), col("w").rowtime))[1] == "EXPR$1 TIMESTAMP(3)"
    assert columns(windows.aggregate(whole(col("v"))).select(col("id"), col("TMP_0"), col("w").end)) == [
        "id INT",
        "TMP_0 BIGINT",
        "EXPR$0 TIMESTAMP(3)",
    ]
    pair = DataTypes.ROW([DataTypes.FIELD("s", DataTypes.BIGINT()), DataTypes.FIELD("n", DataTypes.STRING())])
    both = udaf(lambda v: (v.sum(), "x"), result_type=pair, func_type="pandas")
    assert columns(t.group_by(col("id") + 1).aggregate(both(col("v"))).select(col("*"))) == [
        "plus(id, 1) INT",
        "TMP_0$s BIGINT",
        "TMP_0$n STRING",
    ]
    with pytest.raises(ValidationException, match=r"Can not use \* for window aggregate"):
        windows.aggregate(whole(col("v"))).select(col("*"))


def test_global_aggregate_over_constant_empty_input_has_a_row(t_env: StreamTableEnvironment) -> None:
    # As in Flink: in streaming mode nothing is emitted if emptiness is only known at run time.
    t_env.execute_sql("CREATE VIEW v AS SELECT * FROM (VALUES (1, 2), (2, 3)) AS t(a, b)")

    def rows_of(query: str) -> list[list[Any]]:
        return [list(r) for r in t_env.execute_sql(query).collect()]

    assert rows_of("SELECT COUNT(*), SUM(b), MAX(b) FROM v WHERE FALSE") == [[0, None, None]]
    assert rows_of("SELECT COUNT(*) FROM (SELECT * FROM v LIMIT 0)") == [[0]]
    assert rows_of("SELECT COUNT(*) + 1 FROM v WHERE FALSE HAVING COUNT(*) = 0") == [[1]]
    assert rows_of("SELECT a, COUNT(*) FROM v WHERE FALSE GROUP BY a") == []
    assert rows_of("SELECT COUNT(*), SUM(b) FROM v WHERE a > 100") == []
