"""The documentation's custom source and the HTTP source on Spark: a killed worker loses no record."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from millstream.common import WatermarkStrategy
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.http_source import HttpSource
from millstream.testing import CollectSink
from tests.conftest import Env
from tests.support.helpers import wait_until
from tests.support.paths import DOCS

pytestmark = pytest.mark.spark

DOCS = DOCS / "reference" / "connectors" / "index.md"


class Dies:
    """Kills its worker once, at one record."""

    def __init__(self, flag: Path, number: str) -> None:
        self._flag, self._number = flag, number

    def __call__(self, value: str) -> str:
        if value == self._number and not self._flag.exists():
            self._flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value


def _prepared(env: Env) -> None:
    config = env.get_configuration()
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.delay", "10 ms")
    env.enable_checkpointing(50)


def test_documented_source_loses_nothing_after_worker_kill(env: Env, tmp_path: Path) -> None:
    match = re.search(r"```python\n(class LogFiles.*?)```", DOCS.read_text(), re.DOTALL)
    assert match is not None
    # As in a main module, whose classes are pickled by value.
    names: dict[str, Any] = {
        "glob": glob,
        "islice": islice,
        "SplitAssignment": SplitAssignment,
        "Source": Source,
        "__name__": "__main__",
    }
    names |= {"SourceReader": SourceReader, "SplitEnumerator": SplitEnumerator}
    exec(match[1], names)
    for file in range(3):
        (tmp_path / f"{file}.log").write_text("".join(f"{file}-{i}\n" for i in range(100)))
    _prepared(env)
    sink = CollectSink()
    source = names["LogFiles"](f"{tmp_path}/*.log")
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "logs")
    stream.map(Dies(tmp_path / "flag", "1-150")).sink_to(sink)
    job = env.execute_async()
    try:
        wait_until(lambda: len(sink.results()) == 300)
        with open(tmp_path / "1.log", "a") as file_:
            file_.write("".join(f"1-{i}\n" for i in range(100, 200)))
        wait_until(lambda: len(sink.results()) >= 400)
    finally:
        job.cancel().result()
    expected = [f"{f}-{i}" for f in (0, 2) for i in range(100)] + [f"1-{i}" for i in range(200)]
    assert (tmp_path / "flag").exists() and sorted(sink.results()) == sorted(expected)


def test_http_source_loses_nothing_after_worker_kill(env: Env, tmp_path: Path) -> None:
    _prepared(env)
    sink = CollectSink()
    source = HttpSource(0, acknowledge_processed=True)
    env.from_source(source).map(Dies(tmp_path / "flag", "2")).sink_to(sink)
    job = env.execute_async()
    try:
        wait_until(lambda: bool(source.address))
        for text in ("1", "2", "3"):
            with urllib.request.urlopen(source.address, text.encode(), timeout=60) as answer:
                assert answer.status == 200
    finally:
        job.cancel().result()
    assert (tmp_path / "flag").exists() and sink.results() == ["1", "2", "3"]
