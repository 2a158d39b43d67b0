"""Says where in a statement something is wrong."""

from __future__ import annotations

from millstream.sql.errors import ValidationException
from millstream.sql.language.errors import place_of, pointed_at


class Refused(ValidationException):
    """Something is wrong at a place of a statement whose text is not known here; `located` adds it.

    Attributes:
        what: what is wrong, in one sentence.
        at: where in the text.
    """

    def __init__(self, what: str, at: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


def located(error: Refused, text: str) -> ValidationException:
    """Return the error with the line, the column and a caret."""
    if error.at is None or not text or error.at > len(text):
        return ValidationException(f"SQL validation failed. {error.what}" if text else error.what)
    line, column = place_of(text, error.at)
    message = f"SQL validation failed. At line {line}, column {column}: {error.what}\n{pointed_at(text, error.at)}"
    return ValidationException(message)
