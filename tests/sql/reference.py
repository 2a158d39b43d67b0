"""Writes docs/sql-reference.md: statements, functions, connectors, formats, from the code itself (`make sql-docs`)."""

from __future__ import annotations

from pathlib import Path

from millstream.connectors.registry import BUILT_IN, find_connector
from millstream.formats.base import format_options_by_name
from millstream.sql.functions.function import Kind
from millstream.sql.functions.table import functions
from millstream.sql.language.statement_grammar import read_statement

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sql-reference.md"
# One of each kind: the parser reads them before they are written down.
STATEMENTS = {
    "tables": [
        "CREATE TABLE t (a INT NOT NULL, b AS a + 1 COMMENT 'c', m STRING METADATA FROM 'k' VIRTUAL, ts TIMESTAMP(3), "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (a) NOT ENFORCED) PARTITIONED BY (a) "
        "WITH ('k' = 'v')",
        "CREATE TEMPORARY TABLE IF NOT EXISTS t WITH ('k' = 'v') LIKE s (EXCLUDING OPTIONS INCLUDING GENERATED)",
        "CREATE OR REPLACE TABLE t WITH ('k' = 'v') AS SELECT 1 AS a",
        "ALTER TABLE t ADD (c INT AFTER a), t RENAME a TO b, t MODIFY a BIGINT, t DROP (a, b), t SET ('k' = 'v'), "
        "t RESET ('k'), t RENAME TO u",
        "DROP TABLE IF EXISTS t",
    ],
    "views": [
        "CREATE TEMPORARY VIEW IF NOT EXISTS v (a) COMMENT 'c' AS SELECT 1",
        "ALTER VIEW v AS SELECT 2",
        "ALTER VIEW v RENAME TO w",
        "DROP VIEW v",
    ],
    "functions": [
        "CREATE TEMPORARY SYSTEM FUNCTION f AS 'module.object' LANGUAGE PYTHON",
        "ALTER FUNCTION f AS 'module.object' LANGUAGE PYTHON",
        "DROP FUNCTION f",
    ],
    "models": [
        "CREATE MODEL m INPUT (a STRING) OUTPUT (b STRING) WITH ('provider' = 'p')",
        "ALTER MODEL m SET ('k' = 'v')",
        "DROP MODEL m",
    ],
    "catalogs": [
        "CREATE CATALOG c WITH ('type' = 'generic_in_memory')",
        "ALTER CATALOG c SET ('k' = 'v')",
        "DROP CATALOG c",
        "CREATE DATABASE d",
        "ALTER DATABASE d SET ('k' = 'v')",
        "DROP DATABASE d CASCADE",
        "USE CATALOG c",
        "USE d",
        "LOAD MODULE m",
        "UNLOAD MODULE m",
        "USE MODULES m",
    ],
    "looking": [
        *(f"SHOW {what}" for what in ("CATALOGS", "DATABASES", "TABLES", "VIEWS", "FUNCTIONS", "MODULES", "MODELS")),
        "SHOW USER FUNCTIONS LIKE 'a%'",
        "SHOW FULL MODULES",
        "SHOW COLUMNS FROM t",
        "SHOW PARTITIONS t",
        "SHOW CREATE TABLE t",
        "SHOW CREATE VIEW v",
        "SHOW CREATE CATALOG c",
        "SHOW CREATE MODEL m",
        "SHOW CURRENT CATALOG",
        "SHOW CURRENT DATABASE",
        "SHOW JARS",
        "SHOW PROCEDURES",
        "DESCRIBE t",
        "DESCRIBE CATALOG EXTENDED c",
        "EXPLAIN ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE SELECT 1",
    ],
    "data": [
        "SELECT 1",
        "INSERT INTO t (a) SELECT 1",
        "INSERT OVERWRITE t PARTITION (k = 'v') VALUES (1)",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT 1; INSERT INTO u SELECT 2; END",
        "COMPILE PLAN 'p.json' IF NOT EXISTS FOR INSERT INTO t SELECT 1",
        "EXECUTE PLAN 'p.json'",
        "ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS",
        "COMPILE AND EXECUTE PLAN 'p.json' FOR INSERT INTO t SELECT 1",
    ],
    "settings": ["SET 'k' = 'v'", "RESET 'k'", "ADD JAR 'j.jar'"],
}
_KINDS = {Kind.SCALAR: "Scalar functions and operators", Kind.AGGREGATE: "Aggregates", Kind.OVER: "Only with OVER"}


def page() -> str:
    """Return the page."""
    lines = ["# SQL: statements, functions, connectors", ""]
    lines += ["Made by `make sql-docs` from the code; do not edit. [sql.md](sql.md) is where to begin.", ""]
    lines += ["## Statements", "", "| | |", "|---|---|", *map(_statements, STATEMENTS), ""]
    for kind, title in _KINDS.items():
        # Those that only the planner calls have no name in the Table API.
        shown = [f for f in functions().values() if f.kind is kind and (f.api or not f.name.startswith("$"))]
        found = sorted(shown, key=lambda f: f.name)
        lines += [f"## {title}", "", "| SQL | Table API |", "|---|---|"]
        lines += [f"| `{f.name.replace('|', chr(92) + '|')}` | {f'`{f.api}`' if f.api else ''} |" for f in found]
        lines.append("")
    lines += ["## Connectors", "", "| identifier | options |", "|---|---|"]
    formats = format_options_by_name()
    prefixes = tuple(f"{before}{name}." for name in formats for before in ("", "key.", "value."))
    for name in sorted(BUILT_IN):
        connector = find_connector(name)
        assert connector is not None
        own = sorted(o for o in connector.required | connector.optional if not o.startswith(prefixes))
        lines.append(f"| `{name}` | {', '.join(f'`{o}`' for o in own) or 'none'} |")
    lines += ["", "## Formats", "", "| identifier | options, each with the format's name before it |", "|---|---|"]
    for name, options in formats.items():
        lines.append(f"| `{name}` | {', '.join(f'`{o}`' for o in sorted(options)) or 'none'} |")
    return "\n".join(lines) + "\n"


def _statements(group: str) -> str:
    for text in STATEMENTS[group]:
        for one in _each(text):
            read_statement(one)
    return f"| {group} | {'<br>'.join(f'`{text}`' for text in STATEMENTS[group])} |"


def _each(text: str) -> list[str]:
    """Return what is written together because it begins alike."""
    first, *others = text.split(", t ") if text.startswith("ALTER TABLE") else [text]
    return [first, *(f"ALTER TABLE t {other}" for other in others)]


if __name__ == "__main__":
    PAGE.write_text(page())
