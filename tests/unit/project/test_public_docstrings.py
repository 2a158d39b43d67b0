"""Public methods have docstrings, those of streams, tables, state and windows examples; the API reference has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import reduce
from pkgutil import resolve_name
from types import ModuleType

import pytest

from millstream import cep, common, datastream, metrics, table, testing
from millstream.cep import Pattern
from millstream.datastream import (
    AllWindowedStream,
    ConnectedStreams,
    DataStream,
    KeyedStream,
    WindowedStream,
    state,
    window,
)
from millstream.table import window as group_window
from tests.support.paths import ROOT

WINDOW_PARTS = (window.Evictor, window.Trigger, window.TriggerResult, window.Window, window.WindowAssigner)
# The classes of which every public method has an example.
WITH_EXAMPLES: list[type] = [
    AllWindowedStream,
    ConnectedStreams,
    DataStream,
    KeyedStream,
    Pattern,
    WindowedStream,
    *(getattr(state, name) for name in state.__all__),
    state.StateTtlConfig.Builder,
    *(thing for thing in vars(window).values() if isinstance(thing, type) and issubclass(thing, WINDOW_PARTS)),
    *(table.Table, table.GroupedTable, table.GroupWindowedTable, table.OverWindowedTable, table.WindowGroupedTable),
    *(table.TableEnvironment, table.StreamTableEnvironment, table.StatementSet, table.TablePipeline, table.TableResult),
    table.Schema.Builder,
    *(
        thing
        for thing in vars(group_window).values()
        if inspect.isclass(thing) and thing.__module__ == group_window.__name__
    ),
]
# Methods without an example, each with the reason.
NO_EXAMPLE = {
    "AppendingState.add": "the kinds of state have one",
    "AppendingState.get": "the kinds of state have one",
    "Builder.cleanup_in_rocksdb_compact_filter": "has no effect",
    "Builder.set_ttl_time_characteristic": "has no effect",
    "Builder.use_processing_time": "has no effect",
    "CatalogMethods.list_materialized_tables": "always empty",
    "GroupWindow.part": "internal",
    "GroupWindow.tree": "internal",
    "KeyedStream.cache": "raises an error",
    "KeyedStream.show_live": "needs a notebook",
    "OperatorStateStore.get_broadcast_state": "BroadcastProcessFunction reads it from its context",
    "OperatorStateStore.is_empty": "internal",
    "Pattern.group": "internal",
    "ReducingStateDescriptor.reducer": "internal",
    "State.declared": "internal",
    "State.get_internal_state": "only for compatibility",
    "StateDescriptor.life_text": "internal",
    "StateDescriptor.type_text": "internal",
    "StreamOutputs.show_live": "needs a notebook",
    "StreamTableEnvironment.to_append_stream": "deprecated",
    "StreamTableEnvironment.to_retract_stream": "deprecated",
    "TableBase.get_schema": "deprecated",
    "TableBase.show_live": "needs a notebook",
    "TableResult.get_table_schema": "deprecated",
    "_ContinuousTrigger.register_next_fire_timestamp": "internal",
}


def documented() -> Iterator[tuple[str, object]]:
    """Yield the modules, classes and functions in the API reference with their names."""
    for page in sorted((ROOT / "docs" / "reference" / "api").rglob("*.md")):
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE):
            yield name, resolve_name(name)


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


def public_methods(cls: type) -> Iterator[str]:
    """Yield the public methods of a class of ours, inherited ones included.

    Methods that PyFlink has and Millstream lacks are made by another module.
    """
    for ours in cls.__mro__:
        if ours.__module__.startswith("millstream"):
            for name, thing in vars(ours).items():
                is_method = inspect.isfunction(thing) or isinstance(thing, (staticmethod, classmethod, property))
                is_lacking = inspect.isfunction(thing) and not thing.__qualname__.startswith(ours.__qualname__)
                if is_method and not is_lacking and not name.startswith("_"):
                    yield name


def documentation(cls: type, name: str) -> tuple[str, str]:
    """Return the class whose docstring documents a method, and the docstring: an override may leave it to its base."""
    for ours in cls.__mro__:
        text = getattr(vars(ours).get(name), "__doc__", None)
        if text and ours.__module__.startswith("millstream"):
            return ours.__name__, text
    return cls.__name__, ""


def methods_without_example(classes: list[type]) -> set[str]:
    """Return the public methods without an example, named by the class that documents them."""
    documented_methods = {(*documentation(cls, name), name) for cls in classes for name in public_methods(cls)}
    return {f"{owner}.{name}" for owner, text, name in documented_methods if not has_example(text)}


def has_example(text: str) -> bool:
    """Return whether a docstring has an example, or refers to one."""
    reference = re.search("See `(.+)` for an example", text)
    if reference is None:
        return ">>> " in text
    first, *rest = reference[1].split(".")
    thing: object = reduce(getattr, rest, (vars(table) | vars(group_window))[first])
    return has_example(inspect.getdoc(thing) or "")


def test_methods_of_streams_tables_state_windows_and_patterns_have_examples() -> None:
    assert methods_without_example(WITH_EXAMPLES) == set(NO_EXAMPLE)


def test_methods_without_example_names_the_class_that_documents_them() -> None:
    class Base:
        """Stands for a class of ours."""

        __module__ = "millstream.example"

        def shown(self) -> None:
            """Do it.

            Example:
                >>> 1 + 1
                2
            """

        def bare(self) -> None:
            """Do it."""

    class Derived(Base):
        """Overrides methods without a docstring of its own."""

        __module__ = "millstream.example"

        def shown(self) -> None:
            pass

        def bare(self) -> None:
            pass

    assert methods_without_example([Derived]) == {"Base.bare"}


def test_public_methods_have_docstrings() -> None:
    things = [thing for _, thing in documented()]
    assert len(things) > 150
    undocumented: set[str] = set()
    for thing in things:
        names = thing.__all__ if isinstance(thing, ModuleType) else []
        for part in [thing, *(getattr(thing, name) for name in names)]:
            if inspect.isclass(part) and part.__module__.startswith("millstream"):
                undocumented |= set(silent(part))
    assert undocumented == set()


@pytest.mark.parametrize("package", [cep, common, datastream, metrics, table, testing], ids=lambda p: p.__name__)
def test_api_reference_contains_exported_names(package: ModuleType) -> None:
    parts: list[object] = []
    for _, thing in documented():
        parts += [getattr(thing, name) for name in thing.__all__] if isinstance(thing, ModuleType) else [thing]
    missing = [name for name in package.__all__ if not any(getattr(package, name) is part for part in parts)]
    assert missing == [], "add a line to a page in docs/reference/api"
