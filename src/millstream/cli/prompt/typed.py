"""What has been typed: where statements end, and what a word can become. Pure."""

from __future__ import annotations

import re

from millstream.gateway.completion import Vocabulary, candidates, word_at

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


def completions(before: str, line: str, position: int, words: Vocabulary) -> list[str]:
    """Return what can stand in place of the last word of a line.

    Args:
        before: the lines of the statement above this one.
        line: the line.
        position: where in it.
        words: the names there are.

    Example:
        >>> completions("", "show ta", 7, Vocabulary())
        ['TABLES']
    """
    text = f"{before}\n{line[:position]}" if before else line[:position]
    word = word_at(text, len(text))
    begun = text.rpartition(";")[2].lstrip()
    found = candidates(text + line[position:], len(text), words)
    shown = " ".join(begun.upper().split())
    # Of what a statement can begin with, the part that is not written yet.
    return [c[len(begun) - len(word) :] if " " in begun and c.startswith(shown) else c for c in found]
