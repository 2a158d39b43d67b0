"""Every example in a docstring runs and prints its documented output."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import millstream
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment, launch_context

pytestmark = pytest.mark.spark


def modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(millstream.__path__, "millstream."):
        if not module.name.endswith(("__main__", "cli.main")):
            yield module.name


@pytest.fixture
def _one_subtask(config: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {k: str(v) for k, v in config.to_dict().items()}
    monkeypatch.setattr(launch_context, "_command_line", {**settings, "parallelism.default": "1"})


@pytest.mark.usefixtures("_one_subtask")
@pytest.mark.parametrize("name", list(modules()))
def test_docstring_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    names = {"StreamExecutionEnvironment": StreamExecutionEnvironment}
    failed, _ = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_docstring_examples_exist() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    count = sum(len(t.examples) for name in modules() for t in finder.find(importlib.import_module(name)))
    assert count > 30
