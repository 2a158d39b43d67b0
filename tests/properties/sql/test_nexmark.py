"""Nexmark runs end to end in this process with the results of Apache Flink (`tests/sql/nexmark_answers.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.udf import udf
from tests.sql.nexmark_answers import NAMES, WITHOUT, declare, final_rows, recorded


def _environment(folder: Path) -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "1").set("millstream.engine", "local")
    t_env.get_config().set("table.local-time-zone", "UTC")
    declare(t_env, folder, udf)
    return t_env


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT])
def test_nexmark_query_matches_recorded_flink(name: str, tmp_path: Path) -> None:
    assert final_rows(_environment(tmp_path), name) == recorded()[name]


def test_nexmark_q6_has_row_per_auction_with_bid(tmp_path: Path) -> None:
    t_env = _environment(tmp_path)
    assert len(final_rows(t_env, "q6")) == len(final_rows(t_env, "q9")) > 10
