"""ConfigOptions: key, type and default of an option in one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from millstream.common.fast_dataclass import fast_dataclass

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


@fast_dataclass
class ConfigOption(Generic[T]):
    """An option's key and default value."""

    key: str
    default: T | None = None


class ConfigOptions:
    """Builds ConfigOption objects: key, type and default of an option.

    Example:
        >>> from millstream.common.config_options import ConfigOptions
        >>> ConfigOptions.key("tmp.dir").string_type().default_value("/tmp")
        ConfigOption(key='tmp.dir', default='/tmp')
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Start an option with its key.

        Example:
            >>> ConfigOptions.key("my.attempts").int_type().no_default_value()
            ConfigOption(key='my.attempts', default=None)
        """
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """An option with a key and no type yet."""

        def __init__(self, key: str) -> None:
            self._key = key

        def _typed(self, kind: Callable[[T], T]) -> ConfigOptions.TypedConfigOptionBuilder[T]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, kind)

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Declare a boolean."""
            return self._typed(bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Declare an integer."""
            return self._typed(int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Declare an integer."""
            return self._typed(int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Declare a floating-point number."""
            return self._typed(float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Declare a floating-point number."""
            return self._typed(float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Declare a string."""
            return self._typed(str)

    class TypedConfigOptionBuilder(Generic[T]):
        """An option with key and type, and no default yet."""

        def __init__(self, key: str, kind: Callable[[T], T]) -> None:
            self._key = key
            self._kind = kind

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option with a default value."""
            return ConfigOption(self._key, self._kind(value))

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option without a default."""
            return ConfigOption(self._key)
