"""The text of a script: where its statements end. Pure."""

from __future__ import annotations

import re

# Text in quotes, and comments, in which a semicolon is no end; one that has no end yet goes to the end.
_SKIPPED = re.compile(
    r"'(?:[^']|'')*(?:'|\Z)|`(?:[^`]|``)*(?:`|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|;|[A-Za-z_]\w*", re.DOTALL
)
_COMMENT = re.compile(r"\A(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
# These need no semicolon behind them.
COMMANDS = ("QUIT", "EXIT", "CLEAR", "HELP")


def split(text: str) -> tuple[list[str], str]:
    """Return the statements of a text, and what is left behind the last semicolon.

    Example:
        >>> split("SELECT ';'; -- one; two\\nSHOW TABLES; SEL")
        (["SELECT ';'", '-- one; two\\nSHOW TABLES'], 'SEL')
    """
    statements, start, words = [], 0, list[str]()
    for found in _SKIPPED.finditer(text):
        token = found.group()
        if token != ";":
            words.append(token.upper())
            continue
        if _is_in_set(words):
            continue
        statements.append(text[start : found.start()].strip())
        start, words = found.end(), []
    return [s for s in statements if not is_blank(s)], text[start:].strip()


def _is_in_set(words: list[str]) -> bool:
    """Tell whether the words begin a set of statements, which have semicolons of their own, and do not end it."""
    said = [w for w in words if w[0].isalpha()]
    return said[:4] == ["EXECUTE", "STATEMENT", "SET", "BEGIN"] and said[-1] != "END"


def is_blank(text: str) -> bool:
    """Tell whether a text has nothing but blanks and comments."""
    found = _COMMENT.match(text)
    return found is not None and found.end() == len(text)


def is_command(text: str) -> bool:
    """Tell whether a line is a command of the prompt, which needs no semicolon."""
    return text.strip().rstrip(";").strip().upper() in COMMANDS


def statements_of(text: str) -> list[str]:
    """Return the statements of a script, up to where it quits; what only a prompt can do is left out.

    Example:
        >>> statements_of("SET 'a' = 'b'; CLEAR; SHOW TABLES; QUIT; SHOW JOBS")
        ["SET 'a' = 'b'", 'SHOW TABLES']
    """
    statements, rest = split(text)
    found = []
    for statement in [*statements, *([] if is_blank(rest) else [rest])]:
        if not is_command(statement):
            found.append(statement)
        elif statement.upper() in ("QUIT", "EXIT"):
            break
    return found
