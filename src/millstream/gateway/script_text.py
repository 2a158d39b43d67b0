"""Reads SQL scripts from files and URLs, and splits them into statements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

from millstream.checkpoint.storage import storage_options
from millstream.common.configuration import Configuration
from millstream.sql.errors import TableException

# Quoted text and comments, in which a semicolon does not end a statement; unterminated ones run to the end.
_SKIPPED = re.compile(
    r"'(?:[^']|'')*(?:'|\Z)|`(?:[^`]|``)*(?:`|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|;|[A-Za-z_]\w*", re.DOTALL
)
_COMMENT = re.compile(r"\A(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
# Commands without a semicolon.
COMMANDS = ("QUIT", "EXIT", "CLEAR", "HELP")


def split(text: str) -> tuple[list[str], str]:
    """Return the statements of a text, and the rest after the last semicolon.

    Example:
        >>> split("SELECT ';'; -- one; two\\nSHOW TABLES; SEL")
        (["SELECT ';'", '-- one; two\\nSHOW TABLES'], 'SEL')
    """
    statements, start, words = [], 0, list[str]()
    for match in _SKIPPED.finditer(text):
        token = match.group()
        if token != ";":
            words.append(token.upper())
            continue
        if _is_in_set(words):
            continue
        statements.append(text[start : match.start()].strip())
        start, words = match.end(), []
    return [s for s in statements if not is_blank(s)], text[start:].strip()


def _is_in_set(words: list[str]) -> bool:
    """Return whether the words are within a statement set, whose statements have their own semicolons."""
    keywords = [w for w in words if w[0].isalpha()]
    return keywords[:4] == ["EXECUTE", "STATEMENT", "SET", "BEGIN"] and keywords[-1] != "END"


def is_blank(text: str) -> bool:
    """Return whether a text has only blanks and comments."""
    match = _COMMENT.match(text)
    return match is not None and match.end() == len(text)


def is_command(text: str) -> bool:
    """Return whether a line is a command of the prompt, which needs no semicolon."""
    return text.strip().rstrip(";").strip().upper() in COMMANDS


def statements_of(text: str) -> list[str]:
    """Return the statements of a script up to QUIT, without commands of the prompt.

    Example:
        >>> statements_of("SET 'a' = 'b'; CLEAR; SHOW TABLES; QUIT; SHOW JOBS")
        ["SET 'a' = 'b'", 'SHOW TABLES']
    """
    statements, rest = split(text)
    selected = []
    for statement in [*statements, *([] if is_blank(rest) else [rest])]:
        if not is_command(statement):
            selected.append(statement)
        elif statement.upper() in ("QUIT", "EXIT"):
            break
    return selected


_TIMEOUT_SECONDS = 30.0


def script_at(uri: str, settings: Mapping[str, str]) -> str:
    """Return the text of a script.

    Args:
        uri: a path, or a URL: `file:`, `http:`, `https:`, or one of a file system.
        settings: options of file systems, such as `s3.access-key`.
    """
    try:
        return _read(uri, settings).decode()
    except (OSError, UnicodeDecodeError, ImportError, ValueError) as e:
        raise TableException(f"The script {uri!r} cannot be read: {e}.") from None


def _read(uri: str, settings: Mapping[str, str]) -> bytes:
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        # A path may contain characters that are special in URLs.
        return Path(unquote(parts.path) if parts.scheme else uri).read_bytes()
    if parts.scheme in ("http", "https"):
        with urlopen(uri, timeout=_TIMEOUT_SECONDS) as response:
            content: bytes = response.read()
            return content
    import fsspec

    options = storage_options(Configuration.from_dict(dict(settings)))
    with fsspec.open(uri, "rb", **options.get(parts.scheme, {})) as file:
        read: bytes = file.read()
        return read
