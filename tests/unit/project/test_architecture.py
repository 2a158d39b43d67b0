"""Architecture rules that import-linter cannot check, and the paths of docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "millstream"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def test_no_optional_attribute_access_on_errors() -> None:
    violations = []
    for package in ("jobmaster", "checkpoint", "spark"):
        for path in (SOURCE / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                    violations += [f"{path}:{node.lineno}"] if ast.unparse(node.args[0]) in ("e", "error") else []
    assert violations == []


def imported_names(node: ast.AST) -> Iterator[str]:
    """Yield the imported names of code, including functions, without those for type checkers only."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imported_names(child)


def import_cycle(sources: dict[str, str]) -> list[str]:
    """Return the modules of an import cycle, if any. An import of a package's name counts for its module."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        candidates = {(name, name.rpartition(".")[0]) for name in imported_names(ast.parse(source))}
        graph[module] = {next((c for c in pair if c in sources), module) for pair in candidates} - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        return list(e.args[1])
    return []


def test_imports_have_no_cycle_even_through_functions() -> None:
    sources = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    assert import_cycle(sources) == [], "these modules import each other: move what both need below them"


@pytest.mark.parametrize(
    ("source", "is_cycle"),
    [
        ("import p.a", True),
        ("def f():\n    from p import a", True),
        ("def f():\n    from p.a import x", True),
        ("if TYPE_CHECKING:\n    from p.a import x", False),
        ("import p.c", False),
    ],
)
def test_import_cycle_includes_imports_in_functions(source: str, is_cycle: bool) -> None:
    assert bool(import_cycle({"p.a": "import p.b", "p.b": source, "p.c": ""})) is is_cycle


@pytest.mark.parametrize(
    ("heading", "limit"), [("One record", 25), ("One SQL row", 25), ("One checkpoint", 8), ("One restore", 8)]
)
def test_paths_of_architecture_are_short(heading: str, limit: int) -> None:
    section = ARCHITECTURE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| `([^`]+)` \|", section, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len({file for _, file in rows}) == len(rows) <= limit


def test_files_named_in_architecture_exist() -> None:
    files = set(re.findall(r"`([\w/]+/\w+\.py)`", ARCHITECTURE))
    assert [file for file in sorted(files) if not (SOURCE / file).exists()] == []
