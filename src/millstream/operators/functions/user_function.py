"""A user function in an operator: a callable, or an object with open and close."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.common.aliases import UserCode, Value
from millstream.operators.functions.context import RuntimeContext

F = TypeVar("F", bound=Callable[..., Value])


def not_overridden(method: F) -> F:
    """Mark a default method of a base class, which need not be called unless overridden."""
    method.is_default = True  # type: ignore[attr-defined]
    return method


class UserFunction:
    """A user function and the name of its method (None: it is itself callable)."""

    __slots__ = ("function", "method")

    def __init__(self, function: UserCode, method: str | None) -> None:
        self.function = function
        self.method = method

    @property
    def call(self) -> Callable[..., Value]:
        """The callable that processes one record."""
        return self.function if self.method is None else getattr(self.function, self.method)  # type: ignore[no-any-return]

    @property
    def is_rich(self) -> bool:
        """Whether the function has open() and close(), and so may use state."""
        return self.method is not None or hasattr(self.function, "open")

    @property
    def is_checkpointed(self) -> bool:
        """Whether the function is a CheckpointedFunction."""
        return hasattr(self.function, "snapshot_state") and hasattr(self.function, "initialize_state")

    def overrides(self, method: str) -> bool:
        """Return whether the function overrides a method."""
        attribute = getattr(self.function, method, None)
        return attribute is not None and not getattr(attribute, "is_default", False)

    def open(self, context: RuntimeContext) -> None:
        if self.is_rich and hasattr(self.function, "open"):
            self.function.open(context)

    def close(self) -> None:
        if self.is_rich and hasattr(self.function, "close"):
            self.function.close()

    def __str__(self) -> str:
        target = self.function
        return str(getattr(target, "__qualname__", type(target).__qualname__))
