"""Row: a record with a fixed number of fields, with or without names, and a kind of change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, nonmember
from itertools import repeat
from operator import attrgetter

from millstream.common.aliases import Value
from millstream.common.tags import tagged
from millstream.common.unsupported import JAVA, missing_function

__all__ = ["Row", "RowKind"]


@tagged("row-kind")
class RowKind(Enum):
    """The kind of a change: an insertion, a row before or after an update, or a deletion.

    Example:
        >>> from millstream.common import RowKind
        >>> [str(kind) for kind in RowKind]
        ['+I', '-U', '+U', '-D']
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return _SHORT[self]

    to_j_row_kind = nonmember(missing_function("to_j_row_kind", JAVA))


_KINDS = tuple(RowKind)
_SHORT = {
    RowKind.INSERT: "+I",
    RowKind.UPDATE_BEFORE: "-U",
    RowKind.UPDATE_AFTER: "+U",
    RowKind.DELETE: "-D",
}


def _read_row(fields: tuple[str, ...] | None, values: list[Value], kind: int) -> Row:
    return Row.of(fields, values, _KINDS[kind])


@tagged("row", write=lambda row: (row._fields, row._values, row._kind._value_), read=_read_row)
class Row:
    """A record of fields, by position or by name.

    Example:
        >>> from millstream.common import Row
        >>> row = Row(name="Alice", age=11)
        >>> row.name, row["age"], row[1]
        ('Alice', 11, 11)
        >>> Row("a", 2)
        <Row('a', 2)>
    """

    __slots__ = ("_fields", "_kind", "_values")

    _fields: tuple[str, ...] | None
    _values: list[Value]
    _kind: RowKind

    def __init__(self, *args: Value, **kwargs: Value) -> None:
        if args and kwargs:
            raise ValueError("A Row takes either positional or named fields, not both.")
        set_slot = object.__setattr__
        set_slot(self, "_kind", RowKind.INSERT)
        if kwargs:
            set_slot(self, "_fields", tuple(kwargs))
            set_slot(self, "_values", list(kwargs.values()))
        else:
            set_slot(self, "_fields", None)
            set_slot(self, "_values", list(args))

    @classmethod
    def of(cls, fields: tuple[str, ...] | None, values: list[Value], kind: RowKind = RowKind.INSERT) -> Row:
        """Create a row that owns `values`; the fast path of converters."""
        row = cls.__new__(cls)
        set_slot = object.__setattr__
        set_slot(row, "_fields", fields)
        set_slot(row, "_values", values)
        set_slot(row, "_kind", kind)
        return row

    @classmethod
    def many(cls, fields: tuple[str, ...] | None, records: Iterable[Iterable[Value]]) -> list[Row]:
        """Create rows with the same names from records; faster than one by one.

        Example:
            >>> Row.many(("name", "age"), [("Ann", 7), ("Bob", 8)])
            [Row(name='Ann', age=7), Row(name='Bob', age=8)]
        """
        values = list(map(list, records))
        rows = list(map(cls.__new__, repeat(cls, len(values))))
        # Each is one loop in C.
        for slot, slot_values in (("_values", values), ("_fields", repeat(fields)), ("_kind", repeat(RowKind.INSERT))):
            deque(map(cls.__dict__[slot].__set__, rows, slot_values), maxlen=0)
        return rows

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Value, **kwargs: Value) -> Row:
        """Return a row of a kind.

        Example:
            >>> Row.of_kind(RowKind.DELETE, "tea", 3).get_row_kind()
            <RowKind.DELETE: 3>
        """
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def __call__(self, *args: Value) -> Row:
        """Return a row with the values of this one as its field names: `Row("name", "age")("Alice", 11)`."""
        if len(args) > len(self._values):
            raise ValueError(
                f"Can not create Row with fields {self._values}, expected {len(self)} values but got {args}"
            )
        return Row.of(tuple(self._values), list(args))

    def get_row_kind(self) -> RowKind:
        """Return the kind of change: INSERT unless set.

        Example:
            >>> Row("tea", 3).get_row_kind()
            <RowKind.INSERT: 0>
        """
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind of change.

        Example:
            >>> row = Row("tea", 3)
            >>> row.set_row_kind(RowKind.UPDATE_AFTER)
            >>> row.get_row_kind()
            <RowKind.UPDATE_AFTER: 2>
        """
        object.__setattr__(self, "_kind", row_kind)

    def get_fields_by_names(self, names: list[str]) -> list[Value]:
        """Return the values of some fields.

        Example:
            >>> Row(name="Alice", age=11, city="Paris").get_fields_by_names(["city", "name"])
            ['Paris', 'Alice']
        """
        return [self[name] for name in names]

    def set_field_names(self, field_names: list[str]) -> None:
        """Name the fields.

        Example:
            >>> row = Row("Alice", 11)
            >>> row.set_field_names(["name", "age"])
            >>> row
            Row(name='Alice', age=11)
        """
        if len(field_names) != len(self._values):
            raise ValueError(f"{len(field_names)} names do not fit a row of {len(self._values)} fields.")
        object.__setattr__(self, "_fields", tuple(field_names))

    def as_dict(self, recursive: bool = False) -> dict[str, Value]:
        """Return the fields by name.

        Example:
            >>> Row(name="Alice", age=11).as_dict()
            {'name': 'Alice', 'age': 11}
        """
        if self._fields is None:
            raise TypeError("Cannot convert a Row without field names into a dict.")
        if not recursive:
            return dict(zip(self._fields, self._values, strict=True))
        return {n: _plain(v) for n, v in zip(self._fields, self._values, strict=True)}

    def _index(self, key: int | str) -> int:
        if isinstance(key, int):
            return key
        try:
            return (self._fields or ()).index(key)
        except ValueError:
            known = ", ".join(self._fields) if self._fields else "none, it is positional"
            raise ValueError(f"Row has no field {key!r} (its fields: {known})") from None

    def __getitem__(self, key: int | str | slice) -> Value:
        if isinstance(key, slice):
            return self._values[key]
        return self._values[self._index(key)]

    def __setitem__(self, key: int | str, value: Value) -> None:
        self._values[self._index(key)] = value

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[self._index(name)]
        except ValueError as e:
            raise AttributeError(e.args[0]) from None

    def __setattr__(self, name: str, value: Value) -> None:
        try:
            self._values[self._index(name)] = value
        except ValueError as e:
            raise AttributeError(e.args[0]) from None

    def __contains__(self, item: Value) -> bool:
        return item in (self._values if self._fields is None else self._fields)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        if self._kind is not other._kind or (self._fields is None) != (other._fields is None):
            return False
        if self._fields == other._fields:
            return self._values == other._values
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        # The order of named fields does not matter.
        return hash(tuple(self._values) if self._fields is None else frozenset(self._values))

    def __copy__(self) -> Row:
        return Row.of(self._fields, list(self._values), self._kind)

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self._values, strict=True))})"

    __str__ = __repr__


# Returns a row's field names, None for a positional row.
field_names: Callable[[Row], tuple[str, ...] | None] = attrgetter("_fields")


def _plain(value: Value) -> Value:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
