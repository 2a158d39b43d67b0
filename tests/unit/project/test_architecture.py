"""Architecture rules that import-linter cannot check."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "millstream"

# PySpark has no public way to these; only `millstream.spark` may use them.
OF_PYSPARK = {
    "_accumulatorServer",
    "_active_spark_context",
    "_ensure_initialized",
    "_gateway",
    "_javaAccumulator",
    "_jrdd",
    "_jsc",
    "_jvm",
    "_python_includes",
}
# The standard library's own, whose names only look private.
OF_PYTHON = {"_exit"}


def _private_names_of(tree: ast.Module) -> set[str]:
    """Return the private names that a module's own classes have."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if name.startswith("_")}


def _foreign(path: Path) -> list[str]:
    """Return where a module reaches for a private attribute of a class that is not its own."""
    tree = ast.parse(path.read_text())
    own, found = _private_names_of(tree), []
    allowed = OF_PYTHON | (OF_PYSPARK if "spark" in path.relative_to(SOURCE).parts else set())
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            and node.attr not in own | allowed
        ):
            found.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_no_private_attribute_access_across_modules() -> None:
    packages = ("jobmaster", "checkpoint", "operators", "spark")
    assert [f for package in packages for path in (SOURCE / package).rglob("*.py") for f in _foreign(path)] == []


def test_no_optional_attribute_access_on_errors() -> None:
    found = []
    for package in ("jobmaster", "checkpoint", "spark"):
        for path in (SOURCE / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                    found += [f"{path}:{node.lineno}"] if ast.unparse(node.args[0]) in ("e", "error") else []
    assert found == []
