"""Typed options: key, default, deprecated keys and limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass

__all__ = [
    "ChoiceSetting",
    "DurationSetting",
    "FlagSetting",
    "FloatSetting",
    "IntegerSetting",
    "Limit",
    "Setting",
    "TextSetting",
    "at_least",
    "in_words",
]

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def in_words(millis: int) -> str:
    """Format a duration in the largest unit that divides it.

    Example:
        >>> in_words(60_000), in_words(1500), in_words(0)
        ('1 min', '1500 ms', '0 ms')
    """
    for length, unit in _UNITS:
        if millis and millis % length == 0:
            return f"{millis // length} {unit}"
    return f"{millis} ms"


@fast_dataclass
class Limit(Generic[T]):
    """A condition on a value, with its description."""

    words: str
    holds: Callable[[T], bool]


def at_least(min_value: int, words: Callable[[int], str] = str) -> Limit[int]:
    """Return a lower limit."""
    return Limit(f"at least {words(min_value)}", lambda value: value >= min_value)


@fast_dataclass
class Setting(ABC, Generic[T]):
    """An option with Flink's key. Deprecated keys count if its own is absent.

    Example:
        >>> retained = IntegerSetting("execution.checkpointing.num-retained", 1, ("state.checkpoints.num-retained",))
        >>> retained.read(Configuration.from_dict({"state.checkpoints.num-retained": "3"}))
        3
    """

    key: str
    default: T
    old: tuple[str, ...] = ()
    limit: Limit[T] | None = None

    def is_set(self, config: Configuration) -> bool:
        return self._present_key(config) is not None

    def read(self, config: Configuration) -> T:
        """Return the configured value, else the default."""
        key = self._present_key(config)
        return self.default if key is None else self._checked(key, self._parse(config, key))

    def write(self, config: Configuration, value: T) -> None:
        """Set the value under the current key."""
        config.set_string(self.key, self.text(self._checked(self.key, value)))

    def clear(self, config: Configuration) -> None:
        """Remove the value under all keys."""
        for key in (self.key, *self.old):
            config.remove_config(key)

    def text(self, value: T) -> str:
        """Return a value in its configuration form."""
        return str(value)

    def _present_key(self, config: Configuration) -> str | None:
        return next((key for key in (self.key, *self.old) if config.contains_key(key)), None)

    def _checked(self, key: str, value: T) -> T:
        if not self._is_kind(value):
            raise InvalidProgramError(f"{key} is {value!r}: it must be {self._kind()}.")
        if self.limit is not None and not self.limit.holds(value):
            raise InvalidProgramError(f"{key} is {self.text(value)}: it must be {self.limit.words}.")
        return value

    @abstractmethod
    def _parse(self, config: Configuration, key: str) -> T: ...

    @abstractmethod
    def _is_kind(self, value: object) -> bool: ...

    @abstractmethod
    def _kind(self) -> str: ...


@fast_dataclass
class IntegerSetting(Setting[int]):
    """An integer."""

    def _parse(self, config: Configuration, key: str) -> int:
        return config.get_integer(key, self.default)

    def _is_kind(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def _kind(self) -> str:
        return "a whole number"


@fast_dataclass
class DurationSetting(IntegerSetting):
    """A duration in milliseconds."""

    def text(self, value: int) -> str:
        return f"{value} ms"

    def _parse(self, config: Configuration, key: str) -> int:
        # -1 means disabled, where that is allowed.
        return -1 if config.get_string(key, "").strip() == "-1" else config.get_millis(key, self.default)

    def _kind(self) -> str:
        return "a whole number of milliseconds"


@fast_dataclass
class FloatSetting(Setting[float]):
    """A floating-point number."""

    def _parse(self, config: Configuration, key: str) -> float:
        return config.get_float(key, self.default)

    def _is_kind(self, value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def _kind(self) -> str:
        return "a number"


@fast_dataclass
class FlagSetting(Setting[bool]):
    """A boolean."""

    def text(self, value: bool) -> str:
        return "true" if value else "false"

    def _parse(self, config: Configuration, key: str) -> bool:
        return config.get_boolean(key, self.default)

    def _is_kind(self, value: object) -> bool:
        return isinstance(value, bool)

    def _kind(self) -> str:
        return "True or False"


@fast_dataclass
class TextSetting(Setting[str | None]):
    """A non-empty string, or None."""

    def _parse(self, config: Configuration, key: str) -> str | None:
        return config.get_string(key, self.default or "").strip()

    def _is_kind(self, value: object) -> bool:
        return isinstance(value, str) and bool(value.strip())

    def _kind(self) -> str:
        return "a text that is not empty"


@fast_dataclass
class ChoiceSetting(Setting[E]):
    """A member of an enum, by its name in any case, with `-` or `_`."""

    def text(self, value: E) -> str:
        return value.name

    def _parse(self, config: Configuration, key: str) -> E:
        name = config.get_string(key, self.default.name)
        member: E | None = type(self.default).__members__.get(name.strip().upper().replace("-", "_"))
        if member is None:
            raise InvalidProgramError(f"{key} is {name!r}: it must be {self._kind()}.")
        return member

    def _is_kind(self, value: object) -> bool:
        return isinstance(value, type(self.default))

    def _kind(self) -> str:
        return "one of " + ", ".join(type(self.default).__members__)
