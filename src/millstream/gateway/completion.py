"""Completion of statements: keywords, tables, columns and functions at a position. Pure: text in, names out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# How statements begin.
STARTS = (
    *("ADD JAR", "ALTER TABLE", "ALTER VIEW", "ANALYZE TABLE", "BEGIN STATEMENT SET", "COMPILE PLAN", "CREATE CATALOG"),
    *("CREATE DATABASE", "CREATE FUNCTION", "CREATE TABLE", "CREATE TEMPORARY TABLE", "CREATE TEMPORARY VIEW"),
    *("CREATE VIEW", "DESCRIBE", "DROP CATALOG", "DROP DATABASE", "DROP FUNCTION", "DROP TABLE", "DROP VIEW", "END"),
    *("EXECUTE STATEMENT SET", "EXPLAIN", "INSERT INTO", "INSERT OVERWRITE", "RESET", "SELECT", "SET"),
    *("SHOW CATALOGS", "SHOW COLUMNS", "SHOW CREATE TABLE", "SHOW CURRENT CATALOG", "SHOW CURRENT DATABASE"),
    *("SHOW DATABASES", "SHOW FUNCTIONS", "SHOW JOBS", "SHOW MODULES", "SHOW TABLES", "SHOW VIEWS", "STOP JOB"),
    *("TRUNCATE TABLE", "USE", "USE CATALOG", "VALUES", "WITH"),
)
KEYWORDS = (
    *("ALL", "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "CROSS JOIN", "CUMULATE", "DESC", "DESCRIPTOR"),
    *("DISTINCT", "ELSE", "END", "EXCEPT", "EXISTS", "FALSE", "FILTER", "FOR SYSTEM_TIME AS OF", "FROM", "FULL JOIN"),
    *("GROUP BY", "GROUPING SETS", "HAVING", "HOP", "IN", "INNER JOIN", "INTERSECT", "INTERVAL", "IS", "JOIN"),
    *(
        "LATERAL TABLE",
        "LEFT JOIN",
        "LIKE",
        "LIMIT",
        "MATCH_RECOGNIZE",
        "NOT",
        "NULL",
        "OFFSET",
        "ON",
        "OR",
        "ORDER BY",
    ),
    *("OVER", "PARTITION BY", "RIGHT JOIN", "SELECT", "SESSION", "SET", "TABLE", "THEN", "TRUE", "TUMBLE", "UNION"),
    *("UNION ALL", "UNNEST", "USING", "VALUES", "WHEN", "WHERE", "WITH"),
)
_WORD = re.compile(r"[\w.`$]*\Z")
# Keywords that precede a table name.
_BEFORE_TABLES = re.compile(
    r"\b(FROM|JOIN|INTO|OVERWRITE|DESCRIBE|DESC|TABLE|VIEW)\s+([\w.`$]+\s*,\s*)*[\w.`$]*\Z", re.IGNORECASE
)
_TABLES = re.compile(
    r"\b(?:FROM|JOIN|INTO)\s+([\w.`$]+)(?:\s+(?:AS\s+)?(?!ON\b|WHERE\b|JOIN\b|GROUP\b)(\w+))?", re.IGNORECASE
)


@dataclass(frozen=True)
class Vocabulary:
    """The names that statements can use.

    Attributes:
        tables: tables and views, and the columns of each.
        functions: the names of functions.
        path: the current catalog and database.
        catalogs: the names of catalogs.
    """

    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    functions: Sequence[str] = ()
    path: str = ""
    catalogs: Sequence[str] = ()


def word_at(text: str, position: int) -> str:
    """Return the typed part of the word at a position."""
    match = _WORD.search(text[:position])
    return "" if match is None else match.group()


def candidates(text: str, position: int, words: Vocabulary) -> list[str]:
    """Return the completions of the word at a position, sorted.

    Example:
        >>> words = Vocabulary({"orders": ["id", "price"]}, ["abs"], "c.d")
        >>> candidates("SELECT * FROM or", 16, words)
        ['orders']
        >>> candidates("SELECT pr FROM orders", 9, words)
        ['price']
        >>> candidates("SHO", 3, words)[:2]
        ['SHOW CATALOGS', 'SHOW COLUMNS']
    """
    before, word = text[:position], word_at(text, position)
    begun = before.rpartition(";")[2].lstrip()
    if begun == word or _starts_with_several(begun):
        return _matching(STARTS, begun)
    if _BEFORE_TABLES.search(before):
        return _matching([*words.tables, *(f"{words.path}.{t}" for t in words.tables)], word)
    names, prefix = _columns(text, word, words)
    if prefix:
        return [prefix + name for name in _matching(names, word[len(prefix) :])]
    functions = [name.upper() for name in words.functions] if word else []
    return _matching([*names, *words.tables, *KEYWORDS, *functions], word)


def _starts_with_several(begun: str) -> bool:
    """Return whether the text is the beginning of a multi-word statement start."""
    shown = " ".join(begun.upper().split())
    return " " in begun and any(s.startswith(shown) and s != shown for s in STARTS)


def _columns(text: str, word: str, words: Vocabulary) -> tuple[list[str], str]:
    """Return the columns that may occur in a text, and the table prefix of the word."""
    aliases: dict[str, Sequence[str]] = {}
    for name, alias in _TABLES.findall(text):
        bare = name.replace("`", "").rpartition(".")[2]
        if bare in words.tables:
            aliases[bare] = aliases[alias or bare] = words.tables[bare]
    table, dot, _ = word.rpartition(".")
    if dot and table in aliases:
        return list(aliases[table]), f"{table}."
    of_all = aliases.values() or words.tables.values()
    return list(dict.fromkeys(c for columns in of_all for c in columns)), ""


def _matching(names: Iterable[str], begun: str) -> list[str]:
    """Return the names with a prefix, ignoring case; each once, in order."""
    lower = begun.lower()
    return sorted({n for n in names if n.lower().startswith(lower)}, key=lambda n: (n.lower(), n))
