"""Functions on arrays and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.errors import TableException
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Rule, Site
from millstream.sql.functions.rules import INT, STRING, array, boolean, integer, mapping, takes, text
from millstream.sql.functions.vectors import as_array, by_row, from_numpy, to_numpy

_List = list[Value]


def _element(kind: t.DataType) -> t.DataType:
    assert isinstance(kind, t.ArrayType)
    return kind.element_type


def _with_member(nulls: str, to: Callable[[t.DataType], t.DataType] | None = None, added: bool = False) -> Rule:
    """Return the rule of an array and an element to search for or, if `added`, to add."""

    def rule(arguments: Arguments) -> Resolved | None:
        if len(arguments) != 2 or not isinstance(arguments.types[0], t.ArrayType):
            return None
        held, needle = arguments.types
        element = _element(held)
        common = type_rules.common_type([element, needle])
        if common is None or not common.is_same_but_null(element):
            return None
        array_type = t.ArrayType(element.with_nullability(element.is_nullable or (added and needle.is_nullable)))
        result = array_type if to is None else to(array_type)
        nullable = {"first": held.is_nullable, "any": arguments.any_nullable}[nulls]
        cast = (array_type.with_nullability(held.is_nullable), element.with_nullability(needle.is_nullable))
        return Resolved(result.with_nullability(nullable), cast)

    return rule


def _of_arrays(min_count: int = 2, max_count: int | None = 2) -> Rule:
    """Return the rule of arrays with a common type."""

    def rule(arguments: Arguments) -> Resolved | None:
        if len(arguments) < min_count or (max_count is not None and len(arguments) > max_count):
            return None
        if not all(isinstance(k, t.ArrayType) for k in arguments.types):
            return None
        common = type_rules.common_type(arguments.types)
        if common is None:
            return None
        cast = tuple(common.with_nullability(k.is_nullable) for k in arguments.types)
        return Resolved(common.with_nullability(arguments.any_nullable), cast)

    return rule


def _element_type(arguments: Arguments) -> t.DataType:
    element = _element(arguments.types[0])
    return element.with_nullability(element.is_nullable or arguments.any_nullable)


def _ordered(kind: t.DataType) -> t.DataType | None:
    """Accept arrays of orderable elements."""
    fits = isinstance(kind, t.ArrayType) and type_rules.is_ordered(kind.element_type, kind.element_type)
    return kind if fits else None


def _of_texts(kind: t.DataType) -> t.DataType | None:
    return kind if isinstance(kind, t.ArrayType) and type_rules.is_string(kind.element_type) else None


def _same(arguments: Arguments) -> t.DataType:
    return arguments.types[0]


def _lengths(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    fixed = isinstance(values[0], pa.Scalar)
    column = as_array(values[0], 1 if fixed else rows)
    ends = to_numpy(column.offsets)
    result = from_numpy((ends[1:] - ends[:-1]).astype(np.int32), pa.int32(), [column])
    return result[0] if fixed else result


def _sized(kind: t.DataType) -> t.DataType | None:
    return kind if isinstance(kind, (t.ArrayType, t.MapType, t.MultisetType)) else None


# --- arrays


def _unique(values: _List) -> _List:
    result: _List = []
    try:
        return list(dict.fromkeys(values))
    except TypeError:
        for value in values:
            if value not in result:
                result.append(value)
        return result


def _slice(values: _List, start: int, end: int | None = None) -> _List:
    if not values:
        return values
    count = len(values)
    end = count if end is None else end
    begin = start + count if start < 0 else start - 1 if start > 0 else 0
    stop = end + count if end < 0 else end - 1 if end > 0 else 0
    if begin > stop or begin >= count or stop < 0:
        return []
    return values[max(begin, 0) : stop + 1]


def _sort(values: _List, ascending: bool = True, nulls_first: bool | None = None) -> _List:
    nulls = [v for v in values if v is None]
    known = sorted((v for v in values if v is not None), key=cmp_to_key(_compared), reverse=not ascending)
    first = ascending if nulls_first is None else nulls_first
    return nulls + known if first else known + nulls


def _compared(left: Value, right: Value) -> int:
    if left == right:
        return 0
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return -1 if left < right else 1


def _extreme(choose: Callable[[Value], Value]) -> Callable[[_List], Value]:
    def find(values: _List) -> Value:
        known = [v for v in values if v is not None]
        return choose(known) if known else None

    return find


def _join(values: _List, delimiter: str, null: str | None = None) -> str:
    shown = [null if v is None else v for v in values]
    return delimiter.join(v for v in shown if v is not None)


def _element_of(values: _List) -> Value:
    if len(values) > 1:
        raise TableException("Array has more than one element.")
    return values[0] if values else None


def _except(left: _List, right: _List) -> _List:
    rest = list(right)
    result = []
    for value in left:
        if value in rest:
            continue
        result.append(value)
    return _unique(result)


def _intersect(left: _List, right: _List) -> _List:
    return _unique([v for v in left if v in right])


def _position(values: _List, needle: Value) -> int:
    return values.index(needle) + 1 if needle in values else 0


def _contains(values: _List, needle: Value) -> bool:
    return needle in values


def _by_list(function: Callable[..., Value], null_member: bool) -> Kernel:
    """Return the kernel of an array and an element that may be null."""

    def call(values: _List | None, member: Value) -> Value:
        if values is None or (member is None and not null_member):
            return None
        return function(values, member)

    return by_row(call, keep_nulls=True)


def _boolean_of(kind: t.DataType) -> t.DataType:
    return t.DataTypes.BOOLEAN()


def _int_of(kind: t.DataType) -> t.DataType:
    return INT


# --- maps


def _keys(arguments: Arguments) -> t.DataType:
    kind = arguments.types[0]
    assert isinstance(kind, t.MapType)
    return t.ArrayType(kind.key_type)


def _values(arguments: Arguments) -> t.DataType:
    kind = arguments.types[0]
    assert isinstance(kind, t.MapType)
    return t.ArrayType(kind.value_type)


def _entries(arguments: Arguments) -> t.DataType:
    kind = arguments.types[0]
    assert isinstance(kind, t.MapType)
    fields = [t.RowField("key", kind.key_type), t.RowField("value", kind.value_type)]
    return t.ArrayType(t.RowType(fields))


def _map_union_rule(arguments: Arguments) -> Resolved | None:
    if not len(arguments) or not all(isinstance(k, t.MapType) for k in arguments.types):
        return None
    common = type_rules.common_type(arguments.types)
    if common is None:
        return None
    cast = tuple(common.with_nullability(k.is_nullable) for k in arguments.types)
    return Resolved(common.with_nullability(arguments.any_nullable), cast)


def _map_union(*maps: list[tuple[Value, Value]]) -> list[tuple[Value, Value]]:
    result: dict[Value, Value] = {}
    for pairs in maps:
        result.update(pairs)
    return list(result.items())


def _map_from_arrays(keys: _List, values: _List) -> list[tuple[Value, Value]]:
    if len(keys) != len(values):
        raise TableException(
            f"Invalid function MAP_FROM_ARRAYS call:\nThe length of the keys array {len(keys)} is not equal to the "
            f"length of the values array {len(values)}"
        )
    return list(dict(zip(keys, values, strict=True)).items())


def _map_of(arguments: Arguments) -> t.DataType:
    return t.MapType(_element(arguments.types[0]), _element(arguments.types[1]))


FUNCTIONS = [
    Function("CARDINALITY", takes(_sized, to=INT), _lengths, api="cardinality"),
    Function(
        "ELEMENT",
        takes(array, to=_element_type, nulls="own"),
        by_row(_element_of),
        api="element",
        fails=True,
    ),
    Function("ARRAY_DISTINCT", takes(array, to=_same), by_row(_unique), api="array_distinct"),
    Function("ARRAY_REVERSE", takes(array, to=_same), by_row(lambda v: v[::-1]), api="array_reverse"),
    Function(
        "ARRAY_MAX",
        takes(_ordered, to=lambda a: _element(a.types[0]), nulls="always"),
        by_row(_extreme(max)),
        api="array_max",
    ),
    Function(
        "ARRAY_MIN",
        takes(_ordered, to=lambda a: _element(a.types[0]), nulls="always"),
        by_row(_extreme(min)),
        api="array_min",
    ),
    Function("ARRAY_SORT", takes(_ordered, boolean, boolean, to=_same, optional=2), by_row(_sort), api="array_sort"),
    Function("ARRAY_SLICE", takes(array, integer, integer, to=_same, optional=1), by_row(_slice), api="array_slice"),
    Function("ARRAY_JOIN", takes(_of_texts, text, text, to=STRING, optional=1), by_row(_join), api="array_join"),
    Function("ARRAY_CONTAINS", _with_member("first", _boolean_of), _by_list(_contains, True), api="array_contains"),
    Function("ARRAY_POSITION", _with_member("any", _int_of), _by_list(_position, False), api="array_position"),
    Function(
        "ARRAY_REMOVE", _with_member("first"), _by_list(lambda v, n: [x for x in v if x != n], True), api="array_remove"
    ),
    Function("ARRAY_APPEND", _with_member("any", added=True), _by_list(lambda v, n: [*v, n], True), api="array_append"),
    Function(
        "ARRAY_PREPEND", _with_member("any", added=True), _by_list(lambda v, n: [n, *v], True), api="array_prepend"
    ),
    Function("ARRAY_UNION", _of_arrays(), by_row(lambda a, b: _unique(a + b)), api="array_union"),
    Function(
        "ARRAY_CONCAT", _of_arrays(1, None), by_row(lambda *a: [v for some in a for v in some]), api="array_concat"
    ),
    Function("ARRAY_EXCEPT", _of_arrays(), by_row(_except), api="array_except"),
    Function("ARRAY_INTERSECT", _of_arrays(), by_row(_intersect), api="array_intersect"),
    Function("MAP_KEYS", takes(mapping, to=_keys), by_row(lambda m: [k for k, _ in m]), api="map_keys"),
    Function("MAP_VALUES", takes(mapping, to=_values), by_row(lambda m: [v for _, v in m]), api="map_values"),
    Function("MAP_ENTRIES", takes(mapping, to=_entries), by_row(lambda m: list(m)), api="map_entries"),
    Function("MAP_UNION", _map_union_rule, by_row(_map_union), api="map_union"),
    Function(
        "MAP_FROM_ARRAYS", takes(array, array, to=_map_of), by_row(_map_from_arrays), api="map_from_arrays", fails=True
    ),
]
