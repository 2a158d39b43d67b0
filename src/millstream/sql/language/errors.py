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


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return line and column of an offset in a text, from 1."""
    line = text.count("\n", 0, position) + 1
    return line, position - (text.rfind("\n", 0, position) + 1) + 1


def line_with_caret(text: str, position: int) -> str:
    """Return the line of an offset, with a caret below it."""
    line, column = line_and_column(text, position)
    # Copy tabs, so that the caret is aligned.
    shown = text.split("\n")[line - 1]
    blanks = "".join("\t" if c == "\t" else " " for c in shown[: column - 1])
    return f"    {shown}\n    {blanks}^"


def syntax_error(text: str, position: int, message: str) -> SqlParserException:
    """Return an exception with the line and column of an offset in a text."""
    line, column = line_and_column(text, position)
    full = f"SQL parse failed. {message} at line {line}, column {column}.\n{line_with_caret(text, position)}"
    return SqlParserException(full, line, column)
