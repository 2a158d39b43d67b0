"""Architecture rules that import-linter cannot check."""

from __future__ import annotations

import ast

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "millstream"


def test_no_optional_attribute_access_on_errors() -> None:
    violations = []
    for package in ("jobmaster", "checkpoint", "spark"):
        for path in (SOURCE / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                    violations += [f"{path}:{node.lineno}"] if ast.unparse(node.args[0]) in ("e", "error") else []
    assert violations == []
