"""Pickling of records and state, and stand-ins for classes that cannot be imported."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import cloudpickle

from millstream.common.aliases import Value
from millstream.common.errors import MissingClassError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def dump(value: Value) -> bytes:
    """Pickle a value, plainly if possible, else with the code of classes that only the driver's script defines.

    Pickle's fast mode has no memo, which saves half the time. It also writes an object each time it occurs: two records
    never become one object that a later operator could change twice.
    """
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    pickler.fast = True
    try:
        pickler.dump(value)
        return out.getvalue()
    except Exception:
        # Besides unpicklable values: recursive values, which need a memo, and more than fifty frozensets, for which the
        # fast mode of CPython 3.11 to 3.13 raises KeyError.
        data: bytes = cloudpickle.dumps(value, 5)
        return data


class TooLargeError(ValueError):
    """A pickle would exceed its maximum size."""


def dump_at_most(value: Value, max_size: int) -> bytes:
    """Pickle a value with the code of classes that only a script defines, up to a number of bytes.

    Raises:
        TooLargeError: the pickle is larger.
    """
    out = _Bounded(max_size)
    cloudpickle.Pickler(out, 5).dump(value)
    return b"".join(out.parts)


class _Bounded:
    """A file with a maximum size."""

    def __init__(self, max_size: int) -> None:
        self.parts: list[bytes] = []
        self._left = max_size

    def write(self, data: ReadableBuffer) -> int:
        part = bytes(data)
        self._left -= len(part)
        if self._left < 0:
            raise TooLargeError(f"more than {self._left + len(part)} bytes")
        self.parts.append(part)
        return len(part)


def load(data: ReadableBuffer) -> Value:
    """Read a trusted pickle outside its program; raise MissingClassError for a class that cannot be imported."""
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as e:
        raise _missing(e) from None


@contextmanager
def naming_missing_classes() -> Iterator[None]:
    """Raise MissingClassError for classes that cannot be imported within the block, as `load` does."""
    try:
        yield
    except (ImportError, AttributeError) as e:
        raise _missing(e) from None


def _missing(error: Exception) -> MissingClassError:
    return MissingClassError(
        f"a class of the program is not found here ({error}): run this with the program's directory on PYTHONPATH."
    )


def adopt_main_classes() -> None:
    """Register the classes of the driver's script in `__main__`, so that their objects pickle plainly.

    cloudpickle has transferred them by value; without this, each object would carry their code.
    """
    main = sys.modules["__main__"]
    for cls in list(getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ())):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__ and not hasattr(main, cls.__name__):
            setattr(main, cls.__name__, cls)


class StandIn:
    """Represents an object whose class is unavailable or untrusted; equal to others of the same content."""

    def __new__(cls, *args: object, **kwargs: object) -> StandIn:
        stand_in = super().__new__(cls)
        stand_in._made_of = [args, kwargs, None, []]
        return stand_in

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._made_of: list[Value]

    def __setstate__(self, state: object) -> None:
        self._made_of[2] = state

    def append(self, element: object) -> None:
        """Add an element of a list subclass."""
        self._made_of[3].append(element)

    def __setitem__(self, key: object, value: object) -> None:
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
    """Return the stand-in class for a class."""
    return type(name.rpartition(".")[2], (StandIn,), {"__module__": module, "__qualname__": name})
