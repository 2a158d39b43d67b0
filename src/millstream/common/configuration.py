"""Configuration: options by key, with their parsing."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import TypeVar

from millstream.common.errors import InvalidProgramError

__all__ = ["Configuration", "parse_duration_ms", "read_list"]


T = TypeVar("T")
# A scalar of a YAML list.
Scalar = str | float | bool | None

_UNITS = {
    "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "mins": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


def parse_duration_ms(text: str) -> int:
    """Parse a duration in Flink's notation.

    Example:
        >>> parse_duration_ms("10 s"), parse_duration_ms("250")
        (10000, 250)
    """
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    unit = (match.group(2) or "ms").lower() if match else ""
    if match is None or unit not in _UNITS:
        raise InvalidProgramError(f"{text!r} is not a duration; write for example '500 ms', '10 s' or '1 min'.")
    return int(match.group(1)) * _UNITS[unit]


class Configuration:
    """Options by key. Unknown keys are retained: another layer may know them.

    Example:
        >>> from millstream.common import Configuration
        >>> config = Configuration().set_string("parallelism.default", "2")
        >>> config.get_integer("parallelism.default", 1)
        2
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, object] = dict(other._values) if other else {}

    @classmethod
    def from_dict(cls, map: Mapping[str, object]) -> Configuration:
        """Return a configuration with the given values.

        Example:
            >>> str(Configuration.from_dict({"parallelism.default": 2}))
            '{parallelism.default=2}'
        """
        config = cls()
        config._values.update(map)
        return config

    def _set(self, key: str, value: object) -> Configuration:
        self._values[key] = value
        return self

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a string.

        Example:
            >>> Configuration().set_string("pipeline.name", "word counts").get_string("pipeline.name", "")
            'word counts'
        """
        return self._set(key, value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set an integer.

        Example:
            >>> Configuration().set_integer("parallelism.default", 2).get_integer("parallelism.default", 1)
            2
        """
        return self._set(key, value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a boolean.

        Example:
            >>> Configuration().set_boolean("pipeline.operator-chaining.enabled", False).to_dict()
            {'pipeline.operator-chaining.enabled': 'false'}
        """
        return self._set(key, value)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a floating-point number.

        Example:
            >>> Configuration().set_float("my.threshold", 0.5).get_float("my.threshold", 1.0)
            0.5
        """
        return self._set(key, value)

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set bytes.

        Example:
            >>> Configuration().set_bytearray("my.salt", bytearray(b"ab")).get_bytearray("my.salt", bytearray())
            bytearray(b'ab')
        """
        return self._set(key, value)

    def get_string(self, key: str, default_value: str) -> str:
        """Return a value as a string, else the default.

        Example:
            >>> Configuration().set_integer("parallelism.default", 2).get_string("parallelism.default", "")
            '2'
        """
        value = self._values.get(key)
        return default_value if value is None else _text(value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return an integer, else the default.

        Example:
            >>> Configuration().set_string("parallelism.default", "2").get_integer("parallelism.default", 1)
            2
        """
        return self._number(key, default_value, int)

    def get_float(self, key: str, default_value: float) -> float:
        """Return a floating-point number, else the default.

        Example:
            >>> Configuration().get_float("my.threshold", 1.0)
            1.0
        """
        return self._number(key, default_value, float)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return a boolean, else the default.

        Example:
            >>> Configuration().set_string("my.flag", "TRUE").get_boolean("my.flag", False)
            True
        """
        value = self._values.get(key)
        if value is None:
            return default_value
        if _text(value).lower() not in ("true", "false"):
            raise InvalidProgramError(f"Configuration {key}={value!r} must be true or false.")
        return _text(value).lower() == "true"

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return bytes, else the default.

        Example:
            >>> Configuration().get_bytearray("my.salt", bytearray(b"-"))
            bytearray(b'-')
        """
        value = self._values.get(key)
        if value is not None and not isinstance(value, (bytes, bytearray)):
            raise InvalidProgramError(f"Configuration {key}={value!r} is no bytearray: set it with set_bytearray().")
        return default_value if value is None else bytearray(value)

    def get_millis(self, key: str, default_value: int) -> int:
        """Return a duration ("10 s", "200 ms", or plain milliseconds) in milliseconds. Not in PyFlink.

        Example:
            >>> config = Configuration().set_string("execution.checkpointing.interval", "10 s")
            >>> config.get_millis("execution.checkpointing.interval", 0)
            10000
        """
        value = self._values.get(key)
        try:
            return default_value if value is None else parse_duration_ms(_text(value))
        except InvalidProgramError as e:
            raise InvalidProgramError(f"{key}: {e}") from None

    def _number(self, key: str, default: T, kind: type[T]) -> T:
        value = self._values.get(key)
        if value is None:
            return default
        try:
            return kind(value)  # type: ignore[call-arg]
        except (TypeError, ValueError):
            raise InvalidProgramError(f"Configuration {key}={value!r} must be a number ({kind.__name__}).") from None

    def key_set(self) -> set[str]:
        """Return all keys.

        Example:
            >>> Configuration().set_string("pipeline.name", "word counts").key_set()
            {'pipeline.name'}
        """
        return set(self._values)

    def add_all(self, other: Configuration, prefix: str | None = None) -> None:
        """Copy all values of another configuration, with an optional prefix to their keys.

        Example:
            >>> config = Configuration()
            >>> config.add_all(Configuration().set_string("name", "word counts"), "pipeline.")
            >>> config.to_dict()
            {'pipeline.name': 'word counts'}
        """
        for key, value in other._values.items():
            self._values[f"{prefix}{key}" if prefix else key] = value

    def add_all_to_dict(self, target_dict: dict[str, object]) -> None:
        """Copy all values to a dict, with their types.

        Example:
            >>> values = {}
            >>> Configuration().set_integer("parallelism.default", 2).add_all_to_dict(values)
            >>> values
            {'parallelism.default': 2}
        """
        target_dict.update({k: bytes(v) if isinstance(v, bytearray) else v for k, v in self._values.items()})

    def contains_key(self, key: str) -> bool:
        """Return whether a key has a value.

        Example:
            >>> Configuration().set_integer("parallelism.default", 2).contains_key("parallelism.default")
            True
        """
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Remove a value; return whether it existed.

        Example:
            >>> config = Configuration().set_integer("parallelism.default", 2)
            >>> config.remove_config("parallelism.default"), config.remove_config("parallelism.default")
            (True, False)
        """
        return self._values.pop(key, None) is not None

    def to_dict(self) -> dict[str, str]:
        """Return all values as strings.

        Example:
            >>> Configuration().set_integer("parallelism.default", 2).to_dict()
            {'parallelism.default': '2'}
        """
        return {k: _text(v) for k, v in self._values.items()}

    @staticmethod
    def parse_list_value(value: str) -> list[Scalar]:
        """Parse a YAML list (flow or block style), or items separated by semicolons.

        Example:
            >>> Configuration.parse_list_value("a;b"), Configuration.parse_list_value("['a;b', c]")
            (['a', 'b'], ['a;b', 'c'])
        """
        if not value:
            return []
        elements = read_list(value)
        return [*value.split(";")] if elements is None else elements

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._typed() == other._typed()

    def _typed(self) -> dict[str, tuple[type, object]]:
        return {k: (type(v), v) for k, v in self._values.items()}

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        return "{" + ", ".join(f"{k}={v}" for k, v in self.to_dict().items()) + "}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, bytearray)):
        return f"!!binary |-\n  {base64.b64encode(value).decode()}"
    return str(value)


_PLAIN: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"[-+]?(\d+|\d*\.\d+|\d+\.\d*)([eE][-+]?\d+)?")
_ELEMENT = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,\[\]]*?)\s*(,|$)""", re.DOTALL)


def read_list(text: str) -> list[Scalar] | None:
    """Parse a YAML list of numbers, strings, booleans and nulls; None if the text is not a list.

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


def _in_one_line(text: str) -> list[Scalar] | None:
    elements: list[Scalar] = []
    position = 0
    while text[position:].strip():
        match = _ELEMENT.match(text, position)
        if match is None:
            return None
        elements.append(_scalar(match.group(1)))
        position = match.end()
    return elements


def _scalar(text: str) -> Scalar:
    if text[:1] == text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text.lower() in _PLAIN:
        return _PLAIN[text.lower()]
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text
