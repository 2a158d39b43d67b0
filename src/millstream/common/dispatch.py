"""Tables of functions by the class of an argument; type checkers compare each function with its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
V = TypeVar("V")


class Dispatch(Generic[P, R]):
    """Functions by the class of their first argument.

    Example:
        >>> lengths = Dispatch[[], int]().on(str, len).on(int, int.bit_length)
        >>> lengths.get("ab")("ab"), lengths.get(4)(4), lengths.get(1.5)
        (2, 3, None)
    """

    def __init__(self) -> None:
        # Any: each function takes its own class.
        self.functions: dict[type, Callable[Concatenate[Any, P], R]] = {}

    def on(self, kind: type[V], function: Callable[Concatenate[V, P], R]) -> Dispatch[P, R]:
        """Add a function for the instances of a class, but not of its subclasses."""
        self.functions[kind] = function
        return self

    def get(self, value: V) -> Callable[Concatenate[V, P], R] | None:
        """Return the function for a value; None if there is none."""
        return self.functions.get(type(value))

    def find(self, value: V) -> Callable[Concatenate[V, P], R] | None:
        """Return the function for the nearest base class of a value; None if there is none."""
        return next((self.functions[kind] for kind in type(value).__mro__ if kind in self.functions), None)

    def __getitem__(self, value: V) -> Callable[Concatenate[V, P], R]:
        """Return the function for a value; raise KeyError if there is none."""
        return self.functions[type(value)]


class MethodDispatch(Generic[S, P, R]):
    """Methods of a class by the class of their first argument after `self`."""

    def __init__(self) -> None:
        # Any: each method takes its own class.
        self.methods: dict[type, Callable[Concatenate[S, Any, P], R]] = {}

    def on(self, kind: type[V], method: Callable[Concatenate[S, V, P], R]) -> MethodDispatch[S, P, R]:
        """Add a method for the instances of a class, but not of its subclasses."""
        self.methods[kind] = method
        return self

    def get(self, value: V) -> Callable[Concatenate[S, V, P], R] | None:
        """Return the method for a value; None if there is none."""
        return self.methods.get(type(value))

    def __getitem__(self, value: V) -> Callable[Concatenate[S, V, P], R]:
        """Return the method for a value; raise KeyError if there is none."""
        return self.methods[type(value)]
