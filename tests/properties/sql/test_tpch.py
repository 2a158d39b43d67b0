"""TPC-H's 22 queries over its tables at a small scale: DuckDB's answers."""

from __future__ import annotations

import pytest

from millstream.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from millstream.testing import LocalEnvironment
from tests.sql import tpch

WANTED = tpch.answers()


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> TableEnvironment:
    folder = tmp_path_factory.mktemp("tpch")
    tpch.generate(folder)
    made = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    made.get_config().set("parallelism.default", "2")
    tpch.create_tables(made, folder)
    return made


@pytest.mark.parametrize("number", tpch.queries())
def test_tpch_query_matches_duckdb(env: TableEnvironment, number: int) -> None:
    found = tpch.plain(list(env.execute_sql(tpch.queries()[number]).collect()))
    assert tpch.are_equal(found, WANTED[number]), (found[:3], WANTED[number][:3])
