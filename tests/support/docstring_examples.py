"""Runs the examples in docstrings, as doctest does, each in an empty directory and with an environment of its own.

An example has the names of its module and a few others, see `names_of`; it imports everything else.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import linecache
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from millstream.datastream import StreamExecutionEnvironment, launch_context
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table.expressions import col, lit
from tests.support.paths import ROOT

SOURCE = ROOT / "src"
# The settings of environments: results are in order, and no greeting is printed.
IN_ORDER = {"parallelism.default": "1", "millstream.quiet": "true"}
LOCAL = {**IN_ORDER, "millstream.engine": "local"}


def modules_with_examples(word: str = "") -> list[str]:
    """Return the names of the modules of src with examples, of those with a word in the code; none is imported."""
    line = re.compile(rf"^ *(>>>|\.\.\.) .*{word}", re.MULTILINE | re.IGNORECASE)
    paths = [path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py")) if line.search(path.read_text())]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]


def examples_of(module: str) -> list[doctest.DocTest]:
    """Return the docstrings of a module that have examples; a class with two names counts once."""
    tests = doctest.DocTestFinder().find(importlib.import_module(module))
    # doctest knows no line of a property, so the line alone does not tell two docstrings apart.
    return list({(test.lineno, test.docstring): test for test in tests if test.examples}.values())


def source_of(test: doctest.DocTest) -> str:
    """Return the code of the examples of one docstring."""
    return "".join(example.source for example in test.examples)


def needs_spark(test: doctest.DocTest) -> bool:
    """Return whether examples use Spark itself, which jobs in this process do without."""
    return "spark" in source_of(test).lower()


def names_of(source: str) -> dict[str, Any]:
    """Return what an example finds besides the names of its module.

    `env` is an environment with parallelism 1, and `t_env` its table environment, which comes with `col`, `lit` and
    `DataTypes`.
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    names = {
        "StreamExecutionEnvironment": StreamExecutionEnvironment,
        "env": env,
        "col": col,
        "lit": lit,
        "DataTypes": DataTypes,
    }
    return names | {"t_env": StreamTableEnvironment.create(env)} if "t_env" in source else names


def run_example(test: doctest.DocTest) -> str:
    """Run the examples of one docstring; return a report of those that failed."""
    test.globs |= names_of(source_of(test))
    report: list[str] = []
    with TemporaryDirectory(dir=os.curdir) as directory, contextlib.chdir(directory):
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    return "".join(report)


def configure(monkeypatch: pytest.MonkeyPatch, directory: Path, settings: dict[str, str]) -> None:
    """Run the examples of this test in a directory, in environments with these settings."""
    monkeypatch.chdir(directory)
    # Python 3.11's checkcache, which doctest calls, fails if generated code of an earlier job is collected meanwhile.
    monkeypatch.setattr(linecache, "checkcache", lambda filename=None: None)
    monkeypatch.setattr(launch_context, "_command_line", settings)
