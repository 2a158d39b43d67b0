"""Plans are written to files and executed as planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.sql.errors import TableException
from millstream.table import (
    CompiledPlan,
    DataTypes,
    EnvironmentSettings,
    PlanReference,
    Schema,
    StreamTableEnvironment,
    TableDescriptor,
    TableEnvironment,
)
from millstream.table.expressions import col
from millstream.table.udf import udf
from millstream.testing import LocalEnvironment, ValuesTable
from tests.sql.nexmark_answers import NAMES, QUERIES, WITHOUT, declare

_COUNT = "INSERT INTO snk SELECT id, COUNT(*) FROM src WHERE v <> 'x' GROUP BY id"


class Tables:
    """An environment with a source and a sink."""

    def __init__(self) -> None:
        self.t_env = StreamTableEnvironment.create(LocalEnvironment())
        self.source, self.sink = ValuesTable([(1, "a"), (2, "x"), (1, "b"), (3, "c")]), ValuesTable()
        self.t_env.execute_sql(f"CREATE TABLE src (id INT, v STRING) WITH {self.source.options}")
        self.t_env.execute_sql(f"CREATE TABLE snk (id INT, n BIGINT) WITH {self.sink.options}")


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT])
def test_compiled_plan_of_nexmark_round_trips(name: str, tmp_path: Path) -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "1").set("millstream.engine", "local")
    declare(t_env, tmp_path, udf)
    table = t_env.sql_query((QUERIES / f"{name}.sql").read_text())
    schema = Schema.new_builder().from_resolved_schema(table.get_resolved_schema()).build()
    t_env.create_temporary_table("o", TableDescriptor.for_connector("blackhole").schema(schema).build())

    plan = table.insert_into("o").compile_plan()
    read = t_env.load_plan(PlanReference.from_json_string(plan.as_json_string()))

    assert read.as_json_string() == plan.as_json_string()
    assert read.explain() == plan.explain()


def test_compiled_plan_executes_from_a_file(tmp_path: Path) -> None:
    tables, file = Tables(), tmp_path / "plan.json"
    plan = tables.t_env.compile_plan_sql(_COUNT)
    plan.write_to_file(file)

    tables.t_env.execute_plan(PlanReference.from_file(file)).wait()

    assert tables.sink.final() == [(1, 2), (3, 1)]
    assert (plan.get_flink_version(), json.loads(plan.as_json_string())["flinkVersion"]) == ("2.3", "2.3")
    with pytest.raises(TableException, match="Cannot overwrite the plan file"):
        plan.write_to_file(file)
    plan.write_to_file(file, ignore_if_exists=True)
    again = tables.t_env.load_plan(PlanReference.from_smile_bytes(plan.as_smile_bytes()))
    assert isinstance(again, CompiledPlan) and str(again) == plan.explain()


def test_compiled_plan_sql_statements(tmp_path: Path) -> None:
    tables, file = Tables(), tmp_path / "plan.json"
    t_env = tables.t_env

    assert [tuple(r) for r in t_env.execute_sql(f"COMPILE PLAN '{file}' FOR {_COUNT}").collect()] == [("OK",)]
    with pytest.raises(TableException, match="Cannot overwrite the plan file"):
        t_env.execute_sql(f"COMPILE PLAN '{file}' FOR {_COUNT}")
    t_env.execute_sql(f"COMPILE PLAN '{file}' IF NOT EXISTS FOR {_COUNT}")
    t_env.execute_sql(f"EXECUTE PLAN '{file}'").wait()
    assert tables.sink.final() == [(1, 2), (3, 1)]
    # The existing file is executed, not the statement.
    t_env.execute_sql(f"COMPILE AND EXECUTE PLAN '{file}' FOR INSERT INTO snk SELECT 9, CAST(9 AS BIGINT)").wait()
    assert tables.sink.final() == [(1, 2), (1, 2), (3, 1), (3, 1)]

    both = tmp_path / "set.json"
    into = "INSERT INTO snk SELECT id, CAST(0 AS BIGINT) FROM src WHERE id = 3;"
    t_env.execute_sql(f"COMPILE AND EXECUTE PLAN '{both}' FOR STATEMENT SET BEGIN {into} {into} END").wait()
    assert tables.sink.final()[4:] == [(3, 1), (3, 1)]
    assert len(json.loads(both.read_text())["ends"]) == 2


def test_compiled_plan_resolves_functions_by_name(tmp_path: Path) -> None:
    tables = Tables()
    t_env = tables.t_env
    t_env.create_temporary_system_function("twice", udf(lambda v: v * 2, result_type=DataTypes.BIGINT()))
    t_env.create_temporary_function("longer", udf(len, result_type=DataTypes.INT()))
    plan = t_env.compile_plan_sql("INSERT INTO snk SELECT longer(v), twice(id) FROM src")
    t_env.load_plan(PlanReference.from_json_string(plan.as_json_string())).execute().wait()
    assert sorted(tables.sink.final()) == [(1, 2), (1, 2), (1, 4), (1, 6)]

    t_env.drop_temporary_system_function("twice")
    with pytest.raises(TableException, match="calls the function 'twice', which is not registered"):
        t_env.load_plan(PlanReference.from_json_string(plan.as_json_string()))


def test_compiled_plan_rejects_unsupported_statements() -> None:
    tables = Tables()
    t_env = tables.t_env
    with pytest.raises(TableException, match="only accepts a single SQL statement of type INSERT"):
        t_env.compile_plan_sql("SELECT 1")
    with pytest.raises(TableException, match=r"reads rows of the program"):
        rows = t_env.from_elements([(1, 2)]).select(col("_1").cast(DataTypes.INT()), col("_2"))
        rows.insert_into("snk").compile_plan()
    with pytest.raises(TableException, match="it is not JSON"):
        t_env.load_plan(PlanReference.from_json_string("{"))
    with pytest.raises(TableException, match="Cannot load Plan from file '/nowhere/plan.json': No such file"):
        t_env.load_plan(PlanReference.from_file("/nowhere/plan.json"))
    batch = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    with pytest.raises(TableException, match="it was compiled in streaming mode"):
        batch.load_plan(PlanReference.from_json_string(t_env.compile_plan_sql(_COUNT).as_json_string()))


def test_compiled_plan_rejects_a_changed_table() -> None:
    tables = Tables()
    plan = tables.t_env.compile_plan_sql(_COUNT).as_json_string()
    tables.t_env.execute_sql("DROP TABLE src")
    # The plan contains the table itself.
    tables.t_env.load_plan(PlanReference.from_json_string(plan)).execute().wait()
    assert tables.sink.final() == [(1, 2), (3, 1)]
    tables.t_env.execute_sql(f"CREATE TABLE src (id BIGINT, v STRING) WITH {tables.source.options}")
    with pytest.raises(TableException, match="'default_catalog.default_database.src' has other columns"):
        tables.t_env.load_plan(PlanReference.from_json_string(plan))
