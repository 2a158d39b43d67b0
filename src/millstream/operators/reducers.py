"""Reducers over one field of a record: sum, min, max, min_by and max_by."""

from __future__ import annotations

from collections.abc import Callable

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.types import Row

Reducer = Callable[[Value, Value], Value]


def _replace(record: Value, position: int | str, value: Value) -> Value:
    """Return the record with one field changed; the record itself is unchanged."""
    if isinstance(record, tuple):
        fields = list(record)
        fields[position] = value  # type: ignore[index]
        return tuple(fields)
    if isinstance(record, Row):
        changed = record.__copy__()
        changed[position] = value
        return changed
    changed = record.copy()
    changed[position] = value
    return changed


def _field(record: Value, position: int | str, operation: str) -> Value:
    if position == 0 and not isinstance(record, (tuple, list, dict, Row)):
        # A single value is its own field 0.
        return record
    try:
        return record[position]
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):
        raise InvalidProgramError(
            f"{operation}({position!r}): the record {record!r} has no field {position!r}. "
            f"Give the index or the name of a field that every record has."
        ) from None


def check_position(position: object, operation: str) -> None:
    """Raise TypeError if a position is neither an index nor a name."""
    if isinstance(position, bool) or not isinstance(position, (int, str)):
        raise TypeError(f"{operation}({position!r}): the field must be of int or str type.")


def combine_field(position: int | str, operation: str, combine: Reducer) -> Reducer:
    """Return a reducer that combines one field and retains the other fields of the first record (sum, min, max)."""

    def reduce(first: Value, second: Value) -> Value:
        if not isinstance(first, (tuple, list, dict, Row)):
            if position != 0:
                raise InvalidProgramError(
                    f"{operation}({position!r}): the record {first!r} is a single value, so only field 0 can be chosen."
                )
            return combine(first, second)
        field = _field(first, position, operation)
        return _replace(first, position, combine(field, _field(second, position, operation)))

    return reduce


def choose_by_field(position: int | str, operation: str, better: Callable[[Value, Value], bool]) -> Reducer:
    """Return a reducer that selects the record with the better field (min_by, max_by); on ties, the first."""

    def reduce(first: Value, second: Value) -> Value:
        field, other = _field(first, position, operation), _field(second, position, operation)
        return second if better(other, field) else first

    return reduce
