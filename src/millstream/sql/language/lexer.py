"""Cuts the text of statements into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from millstream.sql.language.errors import refused


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    BINARY = auto()
    INTEGER = auto()
    DECIMAL = auto()
    DOUBLE = auto()
    SYMBOL = auto()
    HINT = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        kind: what it is.
        text: a word or symbol as it stands there; of names and strings what is between the quotes.
        upper: a word or symbol in upper case, by which keywords are told; empty for what is quoted.
        at, end: where it begins and ends in the text.
    """

    kind: Kind
    text: str
    upper: str
    at: int
    end: int


_PATTERN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*|/\*(?!\+).*?\*/)
    | (?P<hint>/\*\+|\*/)
    | (?P<unicode>[uU]&'(?:[^']|'')*')
    | (?P<binary>[xX]'[^']*')
    | (?P<charset>_[\w]+'(?:[^']|'')*')
    | (?P<string>[nN]?'(?:[^']|'')*')
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<double>(?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+)
    | (?P<decimal>\d+\.\d*|\.\d+)
    | (?P<integer>\d+)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<symbol><>|<=|>=|!=|\|\||=>|::|\.\.|[-+*/%<>=(),.;?:\[\]{}|^$])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\\\|\\\+([0-9a-fA-F]{6})|\\([0-9a-fA-F]{4})")


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text, the last of which is its end."""
    found = list(_tokens(text))
    found.append(Token(Kind.END, "", "", len(text), len(text)))
    return found


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        match = _PATTERN.match(text, at)
        if match is None:
            raise _unknown(text, at)
        end = match.end()
        if match.lastgroup != "blank":
            yield _token(text, str(match.lastgroup), match.group(), at, end)
        at = end


def _unknown(text: str, at: int) -> Exception:
    opened = {"'": "A string is not closed", "`": "A quoted name is not closed", "/": "A comment is not closed"}
    if text[at] == '"':
        return refused(text, at, "Names are quoted with backquotes (`), strings with single quotes: Encountered '\"'")
    return refused(text, at, opened.get(text[at], f"Encountered {text[at]!r}"))


def _token(text: str, group: str, found: str, at: int, end: int) -> Token:
    if group == "word":
        return Token(Kind.WORD, found, found.upper(), at, end)
    if group == "symbol":
        return Token(Kind.SYMBOL, found, found, at, end)
    if group == "hint":
        return Token(Kind.HINT, found, found, at, end)
    if group == "quoted":
        name = found[1:-1].replace("``", "`")
        if not name:
            raise refused(text, at, "A name cannot be empty: Encountered '``'")
        return Token(Kind.QUOTED, name, "", at, end)
    if group in ("string", "charset"):
        return Token(Kind.STRING, _unquoted(found), "", at, end)
    if group == "unicode":
        return Token(Kind.STRING, _ESCAPE.sub(_character, _unquoted(found)), "", at, end)
    if group == "binary":
        return Token(Kind.BINARY, _hexadecimal(text, found[2:-1], at), "", at, end)
    return Token(Kind[group.upper()], found, "", at, end)


def _unquoted(found: str) -> str:
    return found[found.index("'") + 1 : -1].replace("''", "'")


def _character(match: re.Match[str]) -> str:
    code = match.group(1) or match.group(2)
    return "\\" if code is None else chr(int(code, 16))


def _hexadecimal(text: str, digits: str, at: int) -> str:
    if len(digits) % 2 or not re.fullmatch("[0-9a-fA-F]*", digits):
        raise refused(text, at, "Binary literal string must contain an even number of hexits")
    return digits
