"""ConfigOptions: a setting's key, type and default as one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millstream.common.fast_dataclass import record

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


@record
class ConfigOption(Generic[T]):
    """A setting: its key, and what it is when nobody sets it."""

    key: str
    default: T | None = None


class ConfigOptions:
    """Where a ConfigOption begins.

    Example:
        >>> ConfigOptions.key("tmp.dir").string_type().default_value("/tmp")
        ConfigOption(key='tmp.dir', default='/tmp')
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Begin an option with its key."""
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """Knows the key, not yet the type."""

        def __init__(self, key: str) -> None:
            self._key = key

        def _typed(self, kind: Callable[[Any], T]) -> ConfigOptions.TypedConfigOptionBuilder[T]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, kind)

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Say that its value is true or false."""
            return self._typed(bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Say that its value is a whole number."""
            return self._typed(int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Say that its value is a whole number."""
            return self._typed(int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Say that its value is a number."""
            return self._typed(float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Say that its value is a number."""
            return self._typed(float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Say that its value is a text."""
            return self._typed(str)

    class TypedConfigOptionBuilder(Generic[T]):
        """Knows key and type, not yet the default."""

        def __init__(self, key: str, kind: Callable[[Any], T]) -> None:
            self._key = key
            self._kind = kind

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option, with what it is when nobody sets it."""
            return ConfigOption(self._key, self._kind(value))

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option, without a default."""
            return ConfigOption(self._key)
