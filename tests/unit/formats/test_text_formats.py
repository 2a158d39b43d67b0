"""JSON and CSV are accepted and rejected as by apache-flink (`tests/sql/text_formats.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.table import StreamTableEnvironment
from millstream.testing import LocalEnvironment
from tests.sql.text_formats import CASES, RECORDED, rows

_FLINKS: dict[str, list[str]] = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def t_env() -> StreamTableEnvironment:
    environment = StreamTableEnvironment.create(LocalEnvironment())
    environment.get_config().set("table.local-time-zone", "UTC")
    return environment


@pytest.mark.parametrize("name", CASES)
def test_text_formats_match_recorded_flink(name: str, t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    assert rows(name, t_env, tmp_path) == _FLINKS[name]
