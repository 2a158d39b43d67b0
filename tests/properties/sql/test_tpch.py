"""TPC-H's 22 queries over its tables at a small scale give DuckDB's results."""

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
    t_env = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    t_env.get_config().set("parallelism.default", "2")
    tpch.create_tables(t_env, folder)
    return t_env


@pytest.mark.parametrize("number", tpch.queries())
def test_tpch_query_matches_duckdb(env: TableEnvironment, number: int) -> None:
    results = tpch.plain(list(env.execute_sql(tpch.queries()[number]).collect()))
    assert tpch.are_equal(results, WANTED[number]), (results[:3], WANTED[number][:3])
