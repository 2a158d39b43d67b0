"""Verifies values before conversion to columns, as PyFlink's verify_schema does: rejects lossy conversions.

Lossless conversions that PyFlink rejects are accepted: an int for a DOUBLE or a DECIMAL.
"""

from __future__ import annotations

import array
import datetime as dt
import decimal
from collections.abc import Callable, Iterable

from millstream.common.aliases import Value
from millstream.common.errors import TypeMismatchError
from millstream.common.types import Row
from millstream.sql import types as t

Verify = Callable[[Value], None]

_WHOLE: dict[type[t.DataType], int] = {t.TinyIntType: 7, t.SmallIntType: 15, t.IntType: 31}
_ACCEPTED: dict[type[t.DataType], tuple[type, ...]] = {
    t.BooleanType: (bool,),
    t.TinyIntType: (int,),
    t.SmallIntType: (int,),
    t.IntType: (int,),
    t.BigIntType: (int,),
    t.FloatType: (float, int),
    t.DoubleType: (float, int),
    t.DecimalType: (decimal.Decimal, int),
    t.BinaryType: (bytes, bytearray),
    t.VarBinaryType: (bytes, bytearray),
    t.DateType: (dt.date,),
    t.TimeType: (dt.time,),
    t.TimestampType: (dt.datetime,),
    t.ArrayType: (list, tuple, array.array),
    t.MapType: (dict,),
}


def verifier(kind: t.DataType, name: str | None = None) -> Verify:
    """Return a function that raises an error for values that do not match a type.

    Raises:
        ValueError: the value is null, too large or too long.
        TypeMismatchError: the value has another type.

    Example:
        >>> verifier(t.DataTypes.INT(), "a")(1.5)
        Traceback (most recent call last):
        millstream.common.errors.TypeMismatchError: The value 1.5 of type float (a) is not one of type INT.
    """
    field = "" if name is None else f" ({name})"
    inner = _inner(kind)

    def verify(value: Value) -> None:
        if value is None:
            if not kind.is_nullable:
                raise ValueError(f"The value None{field} is not one of type {kind}.")
            return
        # numpy scalars count as Python numbers.
        plain = value.tolist() if type(value).__module__ == "numpy" else value
        accepted = _ACCEPTED.get(type(kind))
        if accepted is not None and (
            not isinstance(plain, accepted) or (isinstance(plain, bool) and bool not in accepted)
        ):
            raise _of_another_type(value, kind, field)
        if type(kind) in _WHOLE and not -(2 ** _WHOLE[type(kind)]) <= plain < 2 ** _WHOLE[type(kind)]:
            raise ValueError(f"The value {value!r}{field} is out of the range of {kind}.")
        if isinstance(kind, (t.CharType, t.VarCharType, t.BinaryType, t.VarBinaryType)):
            text = value if isinstance(value, (bytes, bytearray)) else str(value)
            if len(text) > kind.length:
                raise ValueError(f"The value {value!r}{field} is longer than {kind}.")
        if isinstance(kind, t.UserDefinedType) and type(getattr(value, "__UDT__", None)) is not type(kind):
            raise ValueError(f"The value {value!r}{field} is not one of the user's type {type(kind).__name__}.")
        if inner is not None:
            inner(value)

    return verify


def _of_another_type(value: Value, kind: t.DataType, field: str = "") -> TypeMismatchError:
    return TypeMismatchError(f"The value {value!r} of type {type(value).__name__}{field} is not one of type {kind}.")


def _inner(kind: t.DataType) -> Verify | None:
    if isinstance(kind, t.ArrayType):
        return _for_each(verifier(kind.element_type, "element of array"))
    if isinstance(kind, t.MapType):
        return _entries(verifier(kind.key_type, "key of map"), verifier(kind.value_type, "value of map"))
    return _row(kind) if isinstance(kind, t.RowType) else None


def _for_each(verify: Verify) -> Verify:
    def verify_all(values: Iterable[Value]) -> None:
        for value in values:
            verify(value)

    return verify_all


def _entries(keys: Verify, values: Verify) -> Verify:
    def verify_all(entries: dict[Value, Value]) -> None:
        for key, value in entries.items():
            keys(key)
            values(value)

    return verify_all


def _row(kind: t.RowType) -> Verify:
    members = [(f.name, verifier(f.data_type, f.name)) for f in kind.fields]

    def verify(value: Value) -> None:
        if isinstance(value, Row) and _has_names(value):
            fields = value.as_dict()
            missing = [n for n, _ in members if n not in fields] if len(fields) < len(members) else []
            if missing:
                raise ValueError(f"The row {value!r} has no field {missing[0]}")
            # Fields with other names match by position.
            values = [fields[n] for n, _ in members] if all(n in fields for n, _ in members) else list(value)
        elif isinstance(value, (Row, tuple, list)):
            values = list(value)
        elif isinstance(value, dict):
            values = [value.get(n) for n, _ in members]
        elif hasattr(value, "__dict__"):
            values = [vars(value).get(n) for n, _ in members]
        else:
            raise _of_another_type(value, kind)
        if len(values) != len(members):
            raise ValueError(
                f"The element {value!r} has {len(values)} values, and the schema {len(members)} columns: {kind.names}."
            )
        for (_, check), member in zip(members, values, strict=True):
            check(member)

    return verify


def _has_names(row: Row) -> bool:
    try:
        row.as_dict()
    except TypeError:
        return False
    return True
