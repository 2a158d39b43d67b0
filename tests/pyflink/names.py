"""Print every public name of PyFlink as JSON, with its kind.

    python names.py                 the kinds
    python names.py --signatures    the parameters of functions, methods and classes; optional ones end in "="

Runs on an interpreter with apache-flink, without other dependencies. A module has the names it defines or lists in
`__all__`; a class has the names that its body defines, and its nested classes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

PACKAGES = ["pyflink.common", "pyflink.datastream", "pyflink.metrics", "pyflink.table"]


def modules(package: str) -> list[str]:
    """Return the names of a package and of all modules below it, without its tests."""
    modules = [package]
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if ".tests" not in info.name:
            modules.append(info.name)
    return modules


def public(name: str) -> bool:
    return not name.startswith("_") and name != "TYPE_CHECKING"


def kind(value: object) -> str:
    if inspect.isclass(value):
        return "class"
    if isinstance(value, property):
        return "property"
    if callable(value) or isinstance(value, (staticmethod, classmethod)):
        return "function"
    return "value"


def parameters(value: Any) -> list[str] | None:
    """Return the parameters of a callable, without those for Java objects; None for other values."""
    if inspect.isclass(value):
        value = vars(value).get("__init__")
    function = getattr(value, "__func__", value)
    if not inspect.isfunction(function):
        return None
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    if any(p.name.startswith(("j_", "_j", "java_")) for p in parameters):
        return None
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(p.kind, "") + p.name + ("=" if p.default is not p.empty else "") for p in parameters]


def is_own(module: ModuleType, name: str, value: object) -> bool:
    """Return whether a module defines a name rather than only importing it."""
    if inspect.ismodule(value) or isinstance(value, typing.TypeVar) or typing.get_origin(value) is not None:
        return False
    home = getattr(value, "__module__", None)
    if name in getattr(module, "__all__", ()):
        return True
    if not isinstance(home, str):
        return not hasattr(module, "__path__") and name.isupper()
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return False
    return home == module.__name__ or (hasattr(module, "__path__") and home.startswith("pyflink."))


def members(name: str, cls: Any) -> Iterator[tuple[str, str, object]]:
    """Yield the names that the body of a class defines, with their kinds."""
    enum = hasattr(cls, "__members__")
    for member, value in vars(cls).items():
        if not public(member) or (enum and member in ("name", "value")):
            continue
        if inspect.isclass(value) and value.__qualname__.startswith(cls.__qualname__ + "."):
            yield f"{name}.{member}", "class", value
            yield from members(f"{name}.{member}", value)
        elif not inspect.isclass(value):
            yield f"{name}.{member}", "value" if enum and member in cls.__members__ else kind(value), value


def names(package: str) -> Iterator[tuple[str, str, object]]:
    """Yield the names below a package, with their kinds and values."""
    for module_name in modules(package):
        module = importlib.import_module(module_name)
        yield module_name, "module", module
        for name, value in sorted(vars(module).items()):
            if public(name) and is_own(module, name, value):
                yield f"{module_name}.{name}", kind(value), value
                if inspect.isclass(value) and value.__module__ == module_name:
                    yield from members(f"{module_name}.{name}", value)


if __name__ == "__main__":
    everything = [entry for package in PACKAGES for entry in names(package)]
    if sys.argv[1:] == ["--signatures"]:
        signatures = {name: parameters(value) for name, _, value in everything}
        print(
            json.dumps({name: signature for name, signature in signatures.items() if signature is not None}, indent=0)
        )
    else:
        print(json.dumps({name: category for name, category, _ in everything}, indent=0))
