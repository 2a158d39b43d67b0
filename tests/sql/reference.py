"""Writes docs/sql-reference.md: statements, functions, connectors, formats, from the code itself (`make sql-docs`)."""

from __future__ import annotations

from pathlib import Path

from millstream.sql.functions.function import Kind
from millstream.sql.functions.table import functions
from millstream.table.connectors.registry import BUILT_IN, find_connector
from millstream.table.formats.registry import _FORMATS, format_class

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sql-reference.md"
STATEMENTS = [
    ("tables", "CREATE TABLE (computed and METADATA columns, WATERMARK, PRIMARY KEY, LIKE, AS query), ALTER, DROP"),
    ("views", "CREATE, ALTER and DROP VIEW"),
    ("functions", "CREATE [TEMPORARY [SYSTEM]] FUNCTION .. AS 'module.object' LANGUAGE PYTHON, ALTER, DROP"),
    ("catalogs", "CREATE and DROP CATALOG, DATABASE; USE, USE CATALOG, USE MODULES; LOAD, UNLOAD MODULE"),
    ("looking", "SHOW .. [LIKE], DESCRIBE, EXPLAIN [CHANGELOG_MODE]"),
    ("data", "SELECT, INSERT INTO, INSERT OVERWRITE, EXECUTE STATEMENT SET"),
    ("settings", "SET, RESET; ADD JAR is accepted without effect"),
]  # fmt: skip
_KINDS = {Kind.SCALAR: "Scalar functions and operators", Kind.AGGREGATE: "Aggregates", Kind.OVER: "Only with OVER"}


def page() -> str:
    """Return the page."""
    lines = ["# SQL: statements, functions, connectors", ""]
    lines += ["Made by `make sql-docs` from the code; do not edit. [sql.md](sql.md) is where to begin.", ""]
    lines += ["## Statements", "", "| | |", "|---|---|", *(f"| {what} | {text} |" for what, text in STATEMENTS), ""]
    for kind, title in _KINDS.items():
        found = sorted((f for f in functions().values() if f.kind is kind), key=lambda f: f.name)
        lines += [f"## {title}", "", "| SQL | Table API |", "|---|---|"]
        lines += [f"| `{f.name.replace('|', chr(92) + '|')}` | {f'`{f.api}`' if f.api else ''} |" for f in found]
        lines.append("")
    lines += ["## Connectors", "", "| identifier | options |", "|---|---|"]
    for name in sorted(BUILT_IN):
        connector = find_connector(name)
        assert connector is not None
        own = sorted(o for o in connector.required | connector.optional if not o.startswith(tuple(_FORMATS)))
        lines.append(f"| `{name}` | {', '.join(f'`{o}`' for o in own) or 'none'} |")
    lines += ["", "## Formats", "", "| identifier | options, each with the format's name before it |", "|---|---|"]
    for name in sorted(_FORMATS):
        own = sorted(format_class(name).optional)
        lines.append(f"| `{name}` | {', '.join(f'`{o}`' for o in own) or 'none'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
