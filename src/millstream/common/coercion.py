"""Makes a value fit a declared type outside of loops, as where it is put into state."""

from __future__ import annotations

from typing import Any

from millstream.common.conversions import Converter
from millstream.common.errors import TypeMismatchError
from millstream.common.immutability import ATOMS
from millstream.common.inferred_types import Real, Some, Whole
from millstream.common.typeinfo import TypeInformation

# CPython compares ints below this in place, and others by a call.
QUICK = (1 << 30) - 1


def plain_class(type_info: TypeInformation | None) -> type | None:
    """Return the class whose values fit a type, and cannot change, all of them or, of ints, those up to QUICK."""
    shape = type_info.shape() if type_info is not None else None
    if isinstance(shape, Whole):
        small = (shape.low is None or shape.low <= -QUICK) and (shape.high is None or shape.high >= QUICK)
        return int if small else None
    if isinstance(shape, Real):
        # Also of FLOAT: like PyFlink, state gives back the very number that was put in, rounded where it is encoded.
        return float
    return shape.kind if isinstance(shape, Some) and shape.kind in ATOMS else None


def fitter(type_info: TypeInformation | None, what: str) -> Converter | None:
    """Return a function that makes a value fit a type, or says what does not; None where any value fits.

    The commonest values are only looked at; the type's own converter sees the others.

    Example:
        >>> from millstream.common import Types
        >>> fitter(Types.INT(), "State 'count'")(7)
        7
        >>> fitter(Types.INT(), "State 'count'")("seven")
        Traceback (most recent call last):
        millstream.common.errors.TypeMismatchError: State 'count': the value 'seven' (str) does not fit the type Integer
    """
    convert = type_info.converter() if type_info is not None else None
    if type_info is None or convert is None:
        return None

    def fit(value: Any) -> Any:
        try:
            return convert(value)
        except TypeMismatchError as e:
            raise TypeMismatchError(f"{what}: {e}") from None

    shape = type_info.shape()
    if isinstance(shape, Whole) and shape.low is not None and shape.high is not None:
        low, high = shape.low, shape.high
        return lambda value: value if value.__class__ is int and low <= value <= high else fit(value)
    if isinstance(shape, (Whole, Some, Real)):
        kind = shape.kind if isinstance(shape, Some) else int if isinstance(shape, Whole) else float
        return lambda value: value if value.__class__ is kind else fit(value)
    return fit
