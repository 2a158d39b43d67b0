"""ANALYZE TABLE counts the rows of a table; CALL is rejected, because there are no procedures."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.sql.errors import TableException, ValidationException
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.catalog import ObjectPath

_STATEMENT = "ANALYZE TABLE t COMPUTE STATISTICS"


def _environment(settings: EnvironmentSettings, folder: Path) -> TableEnvironment:
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("millstream.engine", "local")
    (folder / "rows.json").write_text('{"a": 3, "b": "x"}\n{"a": 1, "b": null}\n{"a": 3, "b": "y"}\n')
    t_env.execute_sql(
        f"CREATE TABLE t (a INT, b STRING) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json')"
    )
    return t_env


def test_analyze_table_counts_rows_and_columns(tmp_path: Path) -> None:
    t_env = _environment(EnvironmentSettings.in_batch_mode(), tmp_path)
    catalog, path = t_env.get_catalog("default_catalog"), ObjectPath("default_database", "t")
    assert catalog is not None

    assert [tuple(row) for row in t_env.execute_sql(_STATEMENT).collect()] == [("OK",)]
    assert catalog.get_table_statistics(path).get_row_count() == 3
    assert catalog.get_table_column_statistics(path).get_column_statistics_data() == {}
    t_env.execute_sql(f"{_STATEMENT} FOR ALL COLUMNS")
    assert catalog.get_table_column_statistics(path).get_column_statistics_data() == {
        "a": {"nullCount": 0, "ndv": 2, "min": 1, "max": 3},
        "b": {"nullCount": 1, "ndv": 2, "min": "x", "max": "y"},
    }
    with pytest.raises(ValidationException, match="Column: c does not exist in the table"):
        t_env.execute_sql(f"{_STATEMENT} FOR COLUMNS a, c")


def test_analyze_and_call_reject_unsupported_uses(tmp_path: Path) -> None:
    t_env = _environment(EnvironmentSettings.in_streaming_mode(), tmp_path)
    with pytest.raises(TableException, match="ANALYZE TABLE is not supported for streaming mode now"):
        t_env.execute_sql(_STATEMENT)
    with pytest.raises(ValidationException, match="`nope` doesn't exist or is a temporary table"):
        t_env.execute_sql("ANALYZE TABLE nope COMPUTE STATISTICS")
    with pytest.raises(ValidationException, match="procedure 'sys.p' cannot be called: getProcedure is not"):
        t_env.execute_sql("CALL sys.p(1, 'a')")
