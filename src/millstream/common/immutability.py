"""Immutable values: which classes are, and how to copy the others."""

from __future__ import annotations

import pickle

import cloudpickle

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.types import Row, field_names

# Classes of immutable values.
ATOMS = frozenset({int, str, float, bool, type(None), bytes, complex})


def detach(value: Value) -> Value:
    """Return a value that shares no mutable object with the given one; immutable values are returned unchanged."""
    kind = value.__class__
    if kind in ATOMS:
        return value
    if kind is tuple:
        for member in value:
            if member.__class__ not in ATOMS:
                return tuple([v if v.__class__ in ATOMS else detach(v) for v in value])
        return value
    if kind is list:
        return [v if v.__class__ in ATOMS else detach(v) for v in value]
    if kind is dict:
        return {k: v if v.__class__ in ATOMS else detach(v) for k, v in value.items()}
    if kind is Row:
        return Row.of(field_names(value), [detach(v) for v in value], value.get_row_kind())
    if getattr(kind, "never_changes", False) or (_is_named_tuple(kind) and all(v.__class__ in ATOMS for v in value)):
        return value
    try:
        return pickle.loads(_pickled(value))
    except Exception as e:
        raise InvalidProgramError(
            f"A value of class {kind.__name__} can be neither sent nor kept in state: it cannot be pickled ({e})."
        ) from e


def _is_named_tuple(kind: type) -> bool:
    """Return whether a class is a named tuple without an instance dict."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__dictoffset__ == 0


def _pickled(value: Value) -> bytes:
    """Pickle a value, plainly if possible: with the code of a script's class it takes a hundred times as long."""
    try:
        return pickle.dumps(value, 5)
    except Exception:
        data: bytes = cloudpickle.dumps(value, 5)
        return data
