"""Lint warnings about programs that run but do not do what was intended. Each names the user's line."""

from __future__ import annotations

import atexit
import dis
import inspect
import sys
import warnings
from functools import cache, partial
from types import FunctionType, MethodType

from millstream.common.call_site import users_frame, warn_user


def warn_of_yields(function: object, operation: str) -> None:
    """Warn about a generator function where the returned value is the record or the decision."""
    if inspect.isgeneratorfunction(function):
        map_effect = "each record becomes a generator; use flat_map() to emit what it yields"
        filter_effect = "every record passes, because a generator is true"
        warn_user(
            f"{operation}() was given a function that yields: {map_effect if operation == 'map' else filter_effect}."
        )


def warn_of_no_result(function: object) -> None:
    """Warn about a filter function that returns nothing: no record passes."""
    if _returns_only_none(function):
        warn_user("filter() was given a function that returns nothing, so no record passes: is a `return` missing?")


def _returns_only_none(function: object) -> bool:
    if isinstance(function, partial):
        return _returns_only_none(function.func)
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType) or function.__code__.co_flags & (
        inspect.CO_GENERATOR | inspect.CO_COROUTINE
    ):
        return False
    instructions = list(dis.get_instructions(function.__code__))
    returned = [
        i.argval if i.opname == "RETURN_CONST" else ... if i.is_jump_target else _constant(instructions[index - 1])
        for index, i in enumerate(instructions)
        if i.opname in ("RETURN_VALUE", "RETURN_CONST")
    ]
    # An unknown value is not None.
    return bool(returned) and all(value is None for value in returned)


def _constant(instruction: dis.Instruction) -> object:
    return instruction.argval if instruction.opname == "LOAD_CONST" else ...


class RunTracker:
    """Tracks whether a program that has sources is run."""

    def __init__(self) -> None:
        self._begun: str | None = None

    def begin(self) -> None:
        """Record the line of a script's first source, to warn if the program never runs."""
        frame = users_frame()
        if self._begun is None and frame.f_globals.get("__name__") == "__main__":
            self._begun = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            _watch()
            _UNEXECUTED[id(self)] = self._begun

    def runs(self) -> None:
        """Record that the program is run or planned."""
        _UNEXECUTED.pop(id(self), None)


# Locations of programs that have not been run, by tracker.
_UNEXECUTED: dict[int, str] = {}


@cache
def _watch() -> None:
    atexit.register(_warn_of_unexecuted)


def _warn_of_unexecuted() -> None:
    # A crashed program is no lint; `millstream run` clears the list itself.
    if _UNEXECUTED and not hasattr(sys, "last_type"):
        file, _, line = next(iter(_UNEXECUTED.values())).rpartition(":")
        text = "the program that begins here was never run: call execute() of its environment"
        warnings.warn_explicit(text, UserWarning, file, int(line))


def clear_unexecuted() -> None:
    """Discard the warnings, because the program has failed."""
    _UNEXECUTED.clear()
