"""The pytest plugin in a separate pytest, which finds it by its entry point as in a user's project."""

from __future__ import annotations

from pathlib import Path

from tests.support.plugin_runner import run_pytest


def test_pytest_plugin_loads_lazily(tmp_path: Path) -> None:
    out = run_pytest(
        tmp_path,
        [
            """
import sys

def test_nothing_is_loaded(request):
    assert request.config.pluginmanager.has_plugin("millstream")
    loaded = [m for m in sys.modules if m.startswith(("millstream", "pyspark", "py4j"))]
    assert sorted(loaded) == ["millstream", "millstream.testing", "millstream.testing.pytest_plugin"]
"""
        ],
    )
    assert "1 passed" in out


def test_pytest_plugin_runs_programs_in_process(tmp_path: Path) -> None:
    out = run_pytest(
        tmp_path,
        [
            """
import sys
from millstream.datastream.stream_execution_environment import builder_of
from millstream.testing import CollectSink

def test_local(millstream_local):
    sink = CollectSink()
    millstream_local.from_collection([1, 2, 3]).map(lambda x: x * 2).sink_to(sink)
    millstream_local.execute()
    assert sink.results() == [2, 4, 6]

def test_clock(millstream_local, millstream_clock):
    millstream_clock.set(42)
    assert builder_of(millstream_local).clock() == 42

def test_no_spark():
    assert "pyspark" not in sys.modules
"""
        ],
    )
    assert "3 passed" in out


def test_pytest_plugin_lists_fixtures_with_description(tmp_path: Path) -> None:
    out = run_pytest(tmp_path, ["def test_nothing(): pass"], "--fixtures")
    for name in ("millstream_config", "millstream_env", "millstream_local", "millstream_clock"):
        assert f"\n{name} -- " in out
