"""Pickling of records and state: fast, and safe from objects that two values share; and reading by who only looks."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import cloudpickle

from millstream.common.errors import MissingClassError


def dump(value: Any) -> bytes:
    """Pickle a value: plainly if that does, else with the code of classes that only the driver's script defines.

    Pickle's fast mode remembers nothing, which saves half the work. And it writes an object anew each time it meets
    it: two records never become one object that a later operator could change twice.
    """
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    pickler.fast = True
    try:
        pickler.dump(value)
        return out.getvalue()
    except Exception:
        # Not only what cannot be pickled: values that contain themselves, which only full pickling can write, and more
        # than fifty frozensets, at which the fast mode of CPython 3.11 to 3.13 stumbles with a KeyError.
        data: bytes = cloudpickle.dumps(value, 5)
        return data


class TooLargeError(ValueError):
    """A pickle would be larger than it may be."""


def dump_at_most(value: Any, most: int) -> bytes:
    """Pickle a value with the code of classes that only a script defines, unless that takes more than so many bytes.

    Raises:
        TooLargeError: it would.
    """
    out = _Bounded(most)
    cloudpickle.Pickler(out, 5).dump(value)
    return b"".join(out.parts)


class _Bounded:
    """A file that takes so many bytes and no more."""

    def __init__(self, most: int) -> None:
        self.parts: list[bytes] = []
        self._left = most

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._left -= len(part)
        if self._left < 0:
            raise TooLargeError(f"more than {self._left + len(part)} bytes")
        self.parts.append(part)
        return len(part)


def load(data: Any) -> Any:
    """Read a pickle that is trusted, from outside its program; a class that is not here is an error that says so."""
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as e:
        raise _missing(e) from None


@contextmanager
def naming_missing_classes() -> Iterator[None]:
    """Let others read pickles; a class that is not here is an error that says so, as with `load`."""
    try:
        yield
    except (ImportError, AttributeError) as e:
        raise _missing(e) from None


def _missing(error: Exception) -> MissingClassError:
    return MissingClassError(
        f"a class of the program is not found here ({error}): run this with the program's directory on PYTHONPATH."
    )


def adopt_main_classes() -> None:
    """Make the classes of the driver's script known here as `__main__`'s, so that their objects pickle plainly.

    cloudpickle has brought them along by value and remembers them; without this they would still travel, slowly.
    """
    main = sys.modules["__main__"]
    for cls in list(getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ())):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__ and not hasattr(main, cls.__name__):
            setattr(main, cls.__name__, cls)


class StandIn:
    """Stands for an object whose class is not here, or not trusted: equal to others that were made of the same."""

    def __new__(cls, *args: Any, **kwargs: Any) -> StandIn:
        made = super().__new__(cls)
        made._made_of = [args, kwargs, None, []]
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._made_of: list[Any]

    def __setstate__(self, state: Any) -> None:
        self._made_of[2] = state

    def append(self, element: Any) -> None:
        """Take an element of what was a list."""
        self._made_of[3].append(element)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._made_of[3].append((key, value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandIn) and type(self) is type(other) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash((type(self), repr(self._made_of)))

    def __repr__(self) -> str:
        args, kwargs, state, items = self._made_of
        shown = [*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items()), *map(repr, items)]
        if isinstance(state, dict):
            shown += [f"{k}={v!r}" for k, v in state.items()]
        elif state is not None:
            shown.append(repr(state))
        return f"{type(self).__module__}.{type(self).__qualname__}({', '.join(shown)})"


@cache
def stand_in_for(module: str, name: str) -> type[StandIn]:
    """Return the class that stands for one that is not here."""
    return type(name.rpartition(".")[2], (StandIn,), {"__module__": module, "__qualname__": name})
