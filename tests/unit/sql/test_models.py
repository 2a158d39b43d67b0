"""Models are created, described, altered and dropped."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.sql.errors import ValidationException
from millstream.sql.language.errors import SqlParserException
from millstream.table import DataTypes, EnvironmentSettings, Schema, TableEnvironment
from millstream.table.catalog import CatalogModel, ObjectPath
from millstream.table.model_descriptor import ModelDescriptor

_MODEL = "INPUT (a INT NOT NULL) OUTPUT (b STRING COMMENT 'said') COMMENT 'hi' WITH ('provider' = 'openai', 'k' = 'v')"


@pytest.fixture
def t_env() -> TableEnvironment:
    return TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def _rows(t_env: TableEnvironment, statement: str) -> list[Any]:
    return [tuple(row) for row in t_env.execute_sql(statement).collect()]


def test_model_statements(t_env: TableEnvironment) -> None:
    t_env.execute_sql(f"CREATE MODEL m {_MODEL}")
    t_env.execute_sql(f"CREATE MODEL IF NOT EXISTS m {_MODEL}")
    t_env.execute_sql(f"CREATE TEMPORARY MODEL tm {_MODEL}")
    assert _rows(t_env, "SHOW MODELS") == [("m",)]
    assert _rows(t_env, "SHOW MODELS LIKE 't%'") == []
    t_env.execute_sql("ALTER MODEL m SET ('k' = 'w', 'z' = '1')")
    t_env.execute_sql("ALTER MODEL m RESET ('z')")
    t_env.execute_sql("ALTER MODEL m RENAME TO n")
    t_env.execute_sql("ALTER MODEL IF EXISTS m RENAME TO n")
    ((text,),) = _rows(t_env, "SHOW CREATE MODEL n")
    assert text == (
        "CREATE MODEL `default_catalog`.`default_database`.`n`\nINPUT (`a` INT NOT NULL)\n"
        "OUTPUT (`b` VARCHAR(2147483647) COMMENT 'said')\n"
        "COMMENT 'hi'\nWITH (\n  'k' = 'w',\n  'provider' = 'openai'\n)\n"
    )
    assert _rows(t_env, "DESCRIBE MODEL n") == [("a", "INT", False, True, None), ("b", "STRING", True, False, "said")]
    t_env.execute_sql("DROP MODEL n")
    t_env.execute_sql("DROP MODEL IF EXISTS n")
    t_env.execute_sql("DROP TEMPORARY MODEL tm")
    assert _rows(t_env, "SHOW MODELS") == []


@pytest.mark.parametrize(
    "statement, message",
    [
        (f"CREATE MODEL m {_MODEL}", "already exists"),
        ("DROP MODEL x", "'default_catalog.default_database.x' does not exist"),
        ("ALTER MODEL x SET ('a' = 'b')", "doesn't exist"),
        ("DESCRIBE MODEL x", "doesn't exist"),
        ("CREATE MODEL x INPUT (a INT) OUTPUT (b INT)", "Model property list can not be empty"),
    ],
)
def test_model_statements_reject_invalid_definitions(t_env: TableEnvironment, statement: str, message: str) -> None:
    t_env.execute_sql(f"CREATE MODEL m {_MODEL}")
    with pytest.raises((ValidationException, SqlParserException), match=message):
        t_env.execute_sql(statement)


def test_model_methods_of_the_table_environment(t_env: TableEnvironment) -> None:
    inputs = Schema.new_builder().column("a", DataTypes.STRING()).build()
    outputs = Schema.new_builder().column("b", DataTypes.STRING()).build()
    builder = ModelDescriptor.for_provider("openai").input_schema(inputs).output_schema(outputs)
    descriptor = builder.option("task", "chat").comment("c").build()
    t_env.create_model("m", descriptor)
    t_env.create_temporary_model("tm", descriptor)
    assert (t_env.list_models(), t_env.list_temporary_models()) == (["m"], ["tm"])

    catalog, path = t_env.get_catalog("default_catalog"), ObjectPath("default_database", "m")
    assert catalog is not None
    assert catalog.get_model(path).get_options() == {"provider": "openai", "task": "chat"}
    catalog.rename_model(path, "other", False)
    catalog.create_model(path, CatalogModel.create_model(inputs, outputs, {"x": "y"}, "c"), False)
    assert catalog.get_model(path).get_comment() == "c"
    assert catalog.list_models("default_database") == ["m", "other"]
    assert (t_env.drop_model("m"), t_env.drop_model("m"), t_env.drop_temporary_model("tm")) == (True, False, True)
