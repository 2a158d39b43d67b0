"""Names of jobs and operators: any text is one; where not every character can be, it is escaped."""

from __future__ import annotations


def printable(name: str, length: int | None = None) -> str:
    r"""Return a name without line breaks, control characters and half characters, cut to a length.

    Example:
        >>> print(printable("two\nlines"))
        two\nlines
        >>> printable("a long name", 7)
        'a long…'
    """
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return text if length is None or len(text) <= length else f"{text[: length - 1]}…"
