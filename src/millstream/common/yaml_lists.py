"""Lists as YAML writes them, in one line or one element a line: what a value of a configuration can be."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["read_list"]

_PLAIN: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"[-+]?(\d+|\d*\.\d+|\d+\.\d*)([eE][-+]?\d+)?")
_ELEMENT = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,\[\]]*?)\s*(,|$)""", re.DOTALL)


def read_list(text: str) -> list[Any] | None:
    """Read a list of numbers, texts, true, false and null; None if the text is not a list.

    Example:
        >>> read_list("['a;b', 2]"), read_list("- a\\n- b"), read_list("a;b")
        (['a;b', 2], ['a', 'b'], None)
    """
    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        return _in_one_line(stripped[1:-1])
    lines = [line.strip() for line in stripped.splitlines() if line.strip()]
    if lines and all(line == "-" or line.startswith("- ") for line in lines):
        return [_scalar(line[1:].strip()) for line in lines]
    return None


def _in_one_line(text: str) -> list[Any] | None:
    elements: list[Any] = []
    at = 0
    while text[at:].strip():
        found = _ELEMENT.match(text, at)
        if found is None:
            return None
        elements.append(_scalar(found.group(1)))
        at = found.end()
    return elements


def _scalar(text: str) -> Any:
    if text[:1] == text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text.lower() in _PLAIN:
        return _PLAIN[text.lower()]
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text
