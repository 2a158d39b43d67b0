"""Coercion of values to declared types."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

from millstream.common.aliases import Value
from millstream.common.errors import TypeMismatchError
from millstream.common.immutability import ATOMS
from millstream.common.inferred_types import InferredType, Real, Some, Whole
from millstream.common.time import Instant

if TYPE_CHECKING:
    from millstream.common.typeinfo import TypeInformation

Converter = Callable[[Value], Value]


def type_mismatch(value: Value, type_name: str) -> TypeMismatchError:
    """Return the error for a value that does not fit a type."""
    shown = repr(value)
    if len(shown) > 200:
        shown = shown[:200] + "..."
    return TypeMismatchError(f"the value {shown} ({type(value).__name__}) does not fit the type {type_name}")


def _nullable(convert: Converter) -> Converter:
    return lambda v: None if v is None else convert(v)


def instance_of(name: str, *classes: type) -> Converter:
    """Return a converter that accepts None and instances of the given classes."""

    def convert(value: Value) -> Value:
        if value is None or isinstance(value, classes):
            return value
        raise type_mismatch(value, name)

    return convert


def plain(value: Value) -> Value:
    """Return the Python value of a numpy scalar; other values unchanged."""
    kind = type(value)
    return value.item() if kind.__module__ == "numpy" and hasattr(kind, "item") and not value.shape else value


def _whole(name: str, bits: int | None) -> Converter:
    """Return a converter to ints of `bits` bits: fractions are truncated, values out of range refused."""
    high = None if bits is None else 1 << (bits - 1)

    def convert(value: Value) -> Value:
        if value is None:
            return None
        scalar = plain(value)
        # Unlike int(), strings of digits are refused.
        if not hasattr(scalar, "__int__") and not hasattr(scalar, "__index__"):
            raise type_mismatch(value, name)
        try:
            number = int(scalar)
        except (ValueError, OverflowError, TypeError):
            # NaN or infinity.
            raise type_mismatch(value, name) from None
        if high is not None and not -high <= number < high:
            raise type_mismatch(value, f"{name}, which is from {-high} to {high - 1}")
        return number

    return convert


def _floating(name: str, narrow: bool) -> Converter:
    single = struct.Struct("f")

    def convert(value: Value) -> Value:
        if value is None:
            return None
        value = plain(value)
        if isinstance(value, (str, bytes)):
            raise type_mismatch(value, name)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise type_mismatch(value, name) from None
        if not narrow:
            return number
        try:
            return single.unpack(single.pack(number))[0]
        except OverflowError:
            return float("inf") if number > 0 else float("-inf")

    return convert


def _text(value: Value) -> Value:
    if value is None or isinstance(value, str):
        return plain(value)
    raise type_mismatch(value, "String")


def _char(value: Value) -> Value:
    if value is None or (isinstance(value, str) and len(value) == 1):
        return plain(value)
    raise type_mismatch(value, "Char")


def _decimal(value: Value) -> Value:
    value = plain(value)
    if value is None or isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        return Decimal(value)
    raise type_mismatch(value, "BigDecimal")


# Converters by type name.
BASIC: dict[str, Converter] = {
    "String": _text,
    "Boolean": _nullable(lambda v: bool(v) if isinstance(plain(v), int) else _raise(type_mismatch(v, "Boolean"))),
    "Byte": _whole("Byte", 8),
    "Short": _whole("Short", 16),
    "Integer": _whole("Integer", 32),
    "Long": _whole("Long", 64),
    "Float": _floating("Float", narrow=True),
    "Double": _floating("Double", narrow=False),
    "Char": _char,
    "BigInteger": _whole("BigInteger", None),
    "BigDecimal": _decimal,
    "Instant": instance_of("Instant", Instant),
}


def _bits(bits: int) -> Whole:
    return Whole(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, null=True)


# Inferred types of converted values by type name; a one-character string has none.
BASIC_INFERRED_TYPES: dict[str, InferredType] = {
    "String": Some(str, exact=False, null=True),
    "Boolean": Some(bool, exact=True, null=True),
    "Byte": _bits(8),
    "Short": _bits(16),
    "Integer": _bits(32),
    "Long": _bits(64),
    "Float": Real(single=True, null=True),
    "Double": Real(null=True),
    "BigInteger": Whole(null=True),
    "BigDecimal": Some(Decimal, exact=False, null=True),
    "Instant": Some(Instant, exact=False, null=True),
}


def _raise(error: Exception) -> NoReturn:
    raise error


# CPython compares smaller ints inline, larger ones by a call.
QUICK = (1 << 30) - 1


def plain_class(type_info: TypeInformation | None) -> type | None:
    """Return the immutable class whose values need no coercion to a type; of ints, those up to QUICK."""
    inferred = type_info.inferred_type() if type_info is not None else None
    if isinstance(inferred, Whole):
        small = (inferred.low is None or inferred.low <= -QUICK) and (inferred.high is None or inferred.high >= QUICK)
        return int if small else None
    if isinstance(inferred, Real):
        # FLOAT too: as in PyFlink, state returns the number that was put in; it is rounded where it is encoded.
        return float
    return inferred.kind if isinstance(inferred, Some) and inferred.kind in ATOMS else None


def coercer_of(type_info: TypeInformation | None, label: str) -> Converter | None:
    """Return a function that coerces a value to a type or raises TypeMismatchError; None if any value fits.

    It tests for the most common values inline; the type's converter handles the others.

    Example:
        >>> from millstream.common import Types
        >>> coercer_of(Types.INT(), "State 'count'")(7)
        7
        >>> coercer_of(Types.INT(), "State 'count'")("seven")
        Traceback (most recent call last):
        millstream.common.errors.TypeMismatchError: State 'count': the value 'seven' (str) does not fit the type Integer
    """
    convert = type_info.converter() if type_info is not None else None
    if type_info is None or convert is None:
        return None

    def coerce(value: Value) -> Value:
        try:
            return convert(value)
        except TypeMismatchError as e:
            raise TypeMismatchError(f"{label}: {e}") from None

    inferred = type_info.inferred_type()
    if isinstance(inferred, Whole) and inferred.low is not None and inferred.high is not None:
        low, high = inferred.low, inferred.high
        return lambda value: value if value.__class__ is int and low <= value <= high else coerce(value)
    if isinstance(inferred, (Whole, Some, Real)):
        kind = inferred.kind if isinstance(inferred, Some) else int if isinstance(inferred, Whole) else float
        return lambda value: value if value.__class__ is kind else coerce(value)
    return coerce
