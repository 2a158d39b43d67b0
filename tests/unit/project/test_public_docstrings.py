"""Every public method that users call or override has a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

from tests.support.paths import ROOT


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
