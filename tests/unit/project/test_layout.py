"""The layout of src: sizes of files, their number, and no access to private names of other modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

SOURCE = ROOT / "src"
MAX_LINES = 600
MAX_FILES = 815
# Methods of NamedTuple, which have an underscore only to avoid clashes with fields.
NAMED_TUPLE = {"_replace", "_make", "_fields", "_asdict", "_field_defaults"}
# Public names of libraries that start with an underscore: of enum and of confluent_kafka's KafkaError.
LIBRARY_NAMES = {"_value_", "_PARTITION_EOF", "_AUTO_OFFSET_RESET"}
# The only access to private names of PySpark, which has no public API for these.
INTERNALS = {"millstream/spark/pyspark_internals.py"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def defined_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines or assigns, including attributes and slots."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__slots__" for t in node.targets):
            names |= {c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    return names


def imported_modules(tree: ast.Module) -> set[str]:
    """Return the names of modules imported as a whole: os._exit is not an attribute of a class."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}


def is_own(value: ast.expr, modules: set[str]) -> bool:
    """Return whether an attribute is of the object or class itself, of its base class, or of an imported module."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and (value.id in ("self", "cls") or value.id in modules)


def private_accesses(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each access to a private name of another module."""
    tree = ast.parse(source)
    own, modules = defined_names(tree) | NAMED_TUPLE | LIBRARY_NAMES, imported_modules(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            if not is_own(node.value, modules):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from (
                (node.lineno, f"from {node.module} import {alias.name}")
                for alias in node.names
                if is_private(alias.name)
            )


def modules() -> list[str]:
    return sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))


def packages() -> list[str]:
    """Return the packages and modules of the top level."""
    return sorted({module.split("/")[1] for module in modules()})


def test_src_modules_have_limited_length() -> None:
    too_long = [
        f"src/{module}:{lines} has {lines} lines: split it, {MAX_LINES} is the maximum."
        for module in modules()
        if (lines := len((SOURCE / module).read_text().splitlines())) > MAX_LINES
    ]
    assert not too_long, "\n".join(too_long)


def test_src_has_limited_number_of_modules() -> None:
    names = modules()
    message = f"src/{names[-1]}:1 is module {len(names)} of src: merge fragments, {MAX_FILES} is the maximum."
    assert len(names) <= MAX_FILES, message


@pytest.mark.parametrize("package", packages())
def test_package_accesses_no_private_names_of_other_modules(package: str) -> None:
    accesses = [
        f"src/{module}:{line}: {text} is private to another module: make it public there."
        for module in modules()
        if module.split("/")[1] == package and module not in INTERNALS
        for line, text in private_accesses((SOURCE / module).read_text())
    ]
    assert not accesses, "\n".join(accesses)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f(other):\n    return other._x", [2]),
        ("from millstream.state import _x", [1]),
        ("class A:\n    def f(self, other):\n        self._x = 1\n        return self._x + other._x", []),
        ("class A:\n    __slots__ = ('_x',)\ndef f(other):\n    return other._x", []),
        ("import os\nos._exit(0)", []),
        ("def f(row):\n    return row._replace(x=1), row._fields", []),
        ("class B(A):\n    def f(self):\n        return super()._f(), self._g()", []),
    ],
    ids=["attribute", "import", "defined here", "slots", "module", "named tuple", "base class"],
)
def test_private_accesses_finds_names_of_other_modules(source: str, lines: list[int]) -> None:
    assert [line for line, _ in private_accesses(source)] == lines
