"""The function that a name refers to in SQL and the Table API, and the names of unnamed columns."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common import Row
from millstream.table import (
    DataTypes,
    EnvironmentSettings,
    FormatDescriptor,
    Schema,
    TableDescriptor,
    TableEnvironment,
)
from millstream.table.expressions import call, lit, source_watermark
from millstream.table.udf import udaf, udf

MINE = udf(lambda value: f"mine {value}", result_type=DataTypes.STRING())
ROW = DataTypes.ROW([DataTypes.FIELD("x", DataTypes.BIGINT()), DataTypes.FIELD("y", DataTypes.STRING())])
ROWS = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.BIGINT()), DataTypes.FIELD("r", ROW)])


@pytest.fixture
def t_env() -> TableEnvironment:
    return environment()


def environment(batch: bool = False) -> TableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("parallelism.default", "1").set("millstream.engine", "local")
    t_env.create_temporary_view("t", t_env.from_elements([(1, "a")], ["n", "s"]))
    return t_env


def rows(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in table.execute().collect()]


@pytest.mark.parametrize(("name", "answer"), [("upper", "A"), ("is_alpha", "mine a"), ("mine", "mine a")])
def test_catalog_function_yields_to_a_built_in_function(t_env: TableEnvironment, name: str, answer: str) -> None:
    t_env.create_temporary_function(name, MINE)
    assert rows(t_env.sql_query(f"SELECT {name}(s) FROM t")) == [(answer,)]
    table = t_env.from_path("t")
    assert rows(table.select(call(name, table.s))) == [(answer,)]


def test_system_function_overrides_a_built_in_function(t_env: TableEnvironment) -> None:
    t_env.create_temporary_system_function("upper", MINE)
    table = t_env.from_path("t")
    assert rows(t_env.sql_query("SELECT UPPER(s) FROM t")) == [("mine a",)]
    assert rows(table.select(call("upper", table.s), table.s.upper_case)) == [("mine a", "mine a")]


def test_system_function_named_like_an_operator_replaces_it_in_table_api_only(t_env: TableEnvironment) -> None:
    table = t_env.from_path("t")
    plus = udf(lambda a, b: a * 100 + b, result_type=DataTypes.BIGINT())
    t_env.create_temporary_function("plus", plus)
    assert rows(table.select(table.n + table.n, call("plus", table.n, table.n))) == [(2, 2)]
    t_env.create_temporary_system_function("plus", plus)
    added = table.select(table.n + table.n, 2 + table.n, call("plus", table.n, table.n), call("times", table.n, lit(5)))
    assert rows(added) == [(101, 201, 101, 5)]
    assert rows(t_env.sql_query("SELECT n + n FROM t")) == [(2,)]


def test_unaliased_user_aggregates_are_named_like_built_in_ones(t_env: TableEnvironment) -> None:
    mean = udaf(lambda v: v.mean(), result_type=DataTypes.DOUBLE(), func_type="pandas")
    t_env.create_temporary_function("my_mean", mean)
    table = t_env.from_path("t")
    grouped = table.group_by(table.s).select(table.s, table.n.sum, mean(table.n), call("my_mean", table.n))
    assert grouped.get_resolved_schema().get_column_names() == ["s", "EXPR$0", "EXPR$1", "EXPR$2"]


def test_source_watermark_expression_in_a_schema() -> None:
    assert str(source_watermark()) == "SOURCE_WATERMARK()"
    schema = Schema.new_builder().column("a", DataTypes.TIMESTAMP(3)).watermark("a", str(source_watermark())).build()
    assert "WATERMARK FOR `a` AS [SOURCE_WATERMARK()]" in str(schema)


@udf(result_type=DataTypes.STRING(), func_type="pandas")
def described(value: Any) -> Any:
    import pandas

    return pandas.Series([f"{type(value).__name__} {list(value.columns)} {row}" for row in value.values.tolist()])


def test_pandas_udf_receives_a_row_as_a_data_frame(t_env: TableEnvironment) -> None:
    table = t_env.from_elements([(1, Row(10, "p")), (2, Row(11, None))], ROWS)
    assert rows(table.select(described(table.r))) == [
        ("DataFrame ['x', 'y'] [10, 'p']",),
        ("DataFrame ['x', 'y'] [11, None]",),
    ]
    # In map() the fields of a ROW are additional columns.
    assert rows(table.map(udf(described.function, result_type=DataTypes.STRING(), func_type="pandas")))[0] == (
        "DataFrame ['a', 'x', 'y'] [1, 10, 'p']",
    )


def test_pandas_udaf_receives_a_row_as_a_data_frame() -> None:
    t_env = environment(batch=True)
    table = t_env.from_elements([(1, Row(10, "p")), (1, Row(11, "q"))], ROWS)
    total = udaf(lambda frame: int(frame.x.sum()), result_type=DataTypes.BIGINT(), func_type="pandas")
    assert rows(table.group_by(table.a).select(total(table.r))) == [(21,)]


def test_table_descriptor_orders_options_as_flink_does() -> None:
    form = FormatDescriptor.for_format("test-format").option("a", "false").build()
    descriptor = TableDescriptor.for_connector("test-connector").option("a", "true").format(form).build()
    options = [line.split("'")[1] for line in str(descriptor).splitlines() if line.startswith("  '")]
    assert options == ["a", "connector", "test-format.a", "format"]
