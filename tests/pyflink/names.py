"""Print every public name of PyFlink's DataStream API as JSON, with what kind of thing it is.

    python names.py [package ...]

Run by an interpreter that has apache-flink; needs nothing else. A module has the names it defines or says are its own
(`__all__`); a class has what its body defines, and its nested classes.
"""

import importlib
import inspect
import json
import pkgutil
import sys
import typing

PACKAGES = ["pyflink.common", "pyflink.datastream", "pyflink.metrics"]


def modules(package):
    """Return the names of a package and of all modules below it, without its tests."""
    found = [package]
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if ".tests" not in info.name:
            found.append(info.name)
    return found


def public(name):
    return not name.startswith("_") and name != "TYPE_CHECKING"


def kind(value):
    if inspect.isclass(value):
        return "class"
    if isinstance(value, property):
        return "property"
    if callable(value) or isinstance(value, (staticmethod, classmethod)):
        return "function"
    return "value"


def is_own(module, name, value):
    """Say whether a name of a module is one of its own and not something it only imports."""
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


def members(name, cls):
    """Yield what the body of a class defines."""
    enum = hasattr(cls, "__members__")
    for member, value in vars(cls).items():
        if not public(member) or (enum and member in ("name", "value")):
            continue
        if inspect.isclass(value) and value.__qualname__.startswith(cls.__qualname__ + "."):
            yield f"{name}.{member}", "class"
            yield from members(f"{name}.{member}", value)
        elif not inspect.isclass(value):
            yield f"{name}.{member}", "value" if enum and member in cls.__members__ else kind(value)


def names(package):
    """Yield the names below a package, with their kinds."""
    for module_name in modules(package):
        module = importlib.import_module(module_name)
        yield module_name, "module"
        for name, value in sorted(vars(module).items()):
            if public(name) and is_own(module, name, value):
                yield f"{module_name}.{name}", kind(value)
                if inspect.isclass(value) and value.__module__ == module_name:
                    yield from members(f"{module_name}.{name}", value)


if __name__ == "__main__":
    print(json.dumps({n: k for p in sys.argv[1:] or PACKAGES for n, k in names(p)}, indent=0))
