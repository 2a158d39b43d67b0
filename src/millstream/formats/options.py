"""Reads the options of a table, with Flink's error messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from millstream.common.configuration import parse_duration_ms
from millstream.common.errors import MillstreamError
from millstream.sql.errors import ValidationException

T = TypeVar("T")


class Options:
    """The options of a table by key."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def under(self, prefix: str) -> dict[str, str]:
        """Return the options that begin with a prefix, without it."""
        return {k.removeprefix(prefix): v for k, v in self._values.items() if k.startswith(prefix)}

    def text(self, key: str, otherwise: str) -> str:
        """Return an option as text."""
        return self._values.get(key, otherwise)

    def _read(self, key: str, otherwise: T, read: Callable[[str], T], expected: str) -> T:
        text = self._values.get(key)
        if text is None:
            return otherwise
        try:
            return read(text)
        except (ValueError, KeyError, ArithmeticError, MillstreamError):
            raise ValidationException(f"Invalid value for option '{key}': {text!r} is not {expected}.") from None

    def integer(self, key: str, otherwise: int) -> int:
        """Return an option that is a whole number."""
        return self._read(key, otherwise, int, "a whole number")

    def integer_or_none(self, key: str) -> int | None:
        """Return an option that is a whole number, or None if it is not set."""
        return self._read(key, None, int, "a whole number")

    def number(self, key: str, otherwise: float) -> float:
        """Return an option that is a number."""
        return self._read(key, otherwise, float, "a number")

    def flag(self, key: str, otherwise: bool) -> bool:
        """Return an option that is true or false."""
        return self._read(key, otherwise, _truth, "true or false")

    def duration(self, key: str, otherwise: int) -> int:
        """Return an option that is a duration, in milliseconds."""
        return self._read(key, otherwise, parse_duration_ms, "a duration such as '10 s'")

    def one_of(self, key: str, otherwise: str, known: Mapping[str, T]) -> T:
        """Return the value of one of the known words, which match in any case."""
        word = self._values.get(key, otherwise)
        by_word = {k.lower(): v for k, v in known.items()}
        if word.lower() not in by_word:
            raise ValidationException(f"Invalid value for option '{key}': {word!r} is none of {', '.join(known)}.")
        return by_word[word.lower()]

    def bytes(self, key: str, otherwise: int) -> int:
        """Return an option that is a size, in bytes."""
        return self._read(key, otherwise, _size, "a size such as '128 MB'")


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_SIZES = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}


def _size(text: str) -> int:
    digits = text.strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz ")
    return int(digits) * _SIZES[text.strip().lower()[len(digits) :].strip()]
