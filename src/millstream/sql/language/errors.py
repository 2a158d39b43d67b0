"""Syntax errors with location, the unexpected token and the expected ones."""

from __future__ import annotations

from millstream.common.errors import MillstreamError


class SqlParserException(MillstreamError):
    """A statement that is not valid SQL, or not supported.

    Attributes:
        line, column: the location, from 1.
    """

    is_of_program = True

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def place_of(text: str, at: int) -> tuple[int, int]:
    """Return line and column of an offset in a text, from 1."""
    line = text.count("\n", 0, at) + 1
    return line, at - (text.rfind("\n", 0, at) + 1) + 1


def pointed_at(text: str, at: int) -> str:
    """Return the line of an offset, with a caret below it."""
    line, column = place_of(text, at)
    # Tabs are kept, so that the caret is aligned.
    shown = text.split("\n")[line - 1]
    blanks = "".join("\t" if c == "\t" else " " for c in shown[: column - 1])
    return f"    {shown}\n    {blanks}^"


def refused(text: str, at: int, what: str) -> SqlParserException:
    """Return an error with its location."""
    line, column = place_of(text, at)
    message = f"SQL parse failed. {what} at line {line}, column {column}.\n{pointed_at(text, at)}"
    return SqlParserException(message, line, column)
