"""A statement that cannot be read: where, what stands there, and what could."""

from __future__ import annotations

from millstream.common.errors import MillstreamError


class SqlParserException(MillstreamError):
    """A statement is not SQL, or not SQL that is known here.

    Attributes:
        line, column: where it went wrong, from 1.
    """

    is_of_program = True

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def place_of(text: str, at: int) -> tuple[int, int]:
    """Return the line and the column of a place in a text, from 1."""
    line = text.count("\n", 0, at) + 1
    return line, at - (text.rfind("\n", 0, at) + 1) + 1


def pointed_at(text: str, at: int) -> str:
    """Return the line of a place, with a caret under the place."""
    line, column = place_of(text, at)
    # Tabs stay tabs, so that the caret stands where it should.
    shown = text.split("\n")[line - 1]
    blanks = "".join("\t" if c == "\t" else " " for c in shown[: column - 1])
    return f"    {shown}\n    {blanks}^"


def refused(text: str, at: int, what: str) -> SqlParserException:
    """Return the error that says what is wrong at a place."""
    line, column = place_of(text, at)
    message = f"SQL parse failed. {what} at line {line}, column {column}.\n{pointed_at(text, at)}"
    return SqlParserException(message, line, column)
