"""Every public method that users call or override has a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import reduce

from millstream import table
from millstream.table import (
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    Schema,
    StatementSet,
    StreamTableEnvironment,
    Table,
    TableEnvironment,
    TablePipeline,
    TableResult,
    WindowGroupedTable,
    window,
)
from tests.support.paths import ROOT

WITH_EXAMPLES = [
    *(Table, GroupedTable, GroupWindowedTable, OverWindowedTable, WindowGroupedTable),
    *(TableEnvironment, StreamTableEnvironment, StatementSet, TablePipeline, TableResult, Schema.Builder),
    *(thing for thing in vars(window).values() if inspect.isclass(thing) and thing.__module__ == window.__name__),
]
WITHOUT_EXAMPLE = {
    "TableBase.get_schema": "deprecated",
    "TableResult.get_table_schema": "deprecated",
    "StreamTableEnvironment.to_append_stream": "deprecated",
    "StreamTableEnvironment.to_retract_stream": "deprecated",
    "CatalogMethods.list_materialized_tables": "always empty",
    "GroupWindow.tree": "internal",
    "GroupWindow.part": "internal",
}


def documented() -> list[str]:
    """The modules in the API reference of `make docs`."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    lists = dict(re.findall(r"^(\w+) := (.*)$", text, re.MULTILINE))
    words = re.sub(r"\$\(addprefix ([\w.]+),\$\((\w+)\)\)", lambda m: _prefixed(m[1], lists[m[2]]), lists["DOCUMENTED"])
    return [f"millstream.{word}" for word in words.split()]


def _prefixed(prefix: str, words: str) -> str:
    return " ".join(prefix + word for word in words.split())


def silent(cls: type) -> Iterator[str]:
    """Yield the public methods of a class and its nested classes that have no docstring and override none."""
    if not cls.__doc__:
        yield cls.__qualname__
    for name, thing in vars(cls).items():
        if name.startswith("_"):
            continue
        if inspect.isclass(thing):
            yield from silent(thing)
        elif isinstance(thing, (staticmethod, classmethod, property)) or inspect.isfunction(thing):
            ours = [c for c in cls.__mro__ if c.__module__.startswith("millstream")]
            if not any(getattr(vars(c).get(name), "__doc__", None) for c in ours):
                yield f"{cls.__qualname__}.{name}"


def test_public_methods_have_docstrings() -> None:
    modules = documented()
    assert len(modules) > 20
    undocumented: set[str] = set()
    for module in map(importlib.import_module, modules):
        for name in getattr(module, "__all__", vars(module)):
            cls = getattr(module, name)
            if inspect.isclass(cls) and cls.__module__.startswith("millstream") and not name.startswith("_"):
                undocumented |= set(silent(cls))
    assert undocumented == set()


def without_example(cls: type) -> Iterator[str]:
    """Yield the public methods of a class, also inherited ones, that have no example and refer to none.

    Methods that PyFlink has and Millstream has not are no functions of the class.
    """
    for name, thing in inspect.getmembers(cls, lambda t: inspect.isfunction(t) or isinstance(t, property)):
        owner = next(c for c in cls.__mro__ if name in vars(c))
        code = thing.fget if isinstance(thing, property) else thing
        if not name.startswith("_") and code.__module__ == owner.__module__ and not has_example(thing):
            yield f"{owner.__qualname__}.{name}"


def has_example(thing: object) -> bool:
    text = inspect.getdoc(thing) or ""
    reference = re.search("See `(.+)` for an example", text)
    if reference is None:
        return ">>> " in text
    first, *rest = reference[1].split(".")
    return has_example(reduce(getattr, rest, (vars(table) | vars(window))[first]))


def test_table_methods_have_examples() -> None:
    missing = {name for cls in WITH_EXAMPLES for name in without_example(cls)}
    assert missing == WITHOUT_EXAMPLE.keys()
