"""Functions on values of any type: IN, GREATEST, LEAST, TYPEOF, constructors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.keys import hashes
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.functions.casts import cast_value
from millstream.sql.functions.comparison import comparable, compare
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Site
from millstream.sql.functions.rules import BOOLEAN, STRING, any_type, boolean, common, takes
from millstream.sql.functions.vectors import as_array, from_stored, stored, stored_scalar, to_numpy


def _in(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    """Return whether the first value is among the others, which are mostly constants."""
    value, *operands = values
    if not all(isinstance(v, pa.Scalar) for v in operands):
        tests = [compare("=", site.types[0], value, v, rows) for v in operands]
        return reduce(pc.or_kleene, tests)
    known = [v for v in operands if v.is_valid]
    result: Datum
    if not known:
        result = pa.scalar(False)
    elif isinstance(value, pa.Scalar):
        result = pa.scalar(any(stored_scalar(value) == stored_scalar(k) for k in known))
    else:
        choices = from_stored([stored_scalar(k) for k in known], value.type)
        result = pc.is_in(value, value_set=choices)
    if len(known) < len(operands):
        # An unknown value might be equal.
        result = pc.if_else(result, result, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(value), result, pa.scalar(None, pa.bool_()))


def _in_rule(arguments: Arguments) -> Resolved | None:
    cast = comparable(arguments.types)
    if len(arguments) < 2 or cast is None:
        return None
    return Resolved(BOOLEAN.with_nullability(arguments.any_nullable), cast)


def _nullif_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) != 2 or not type_rules.is_comparable(*arguments.types):
        return None
    return Resolved(arguments.types[0].nullable(), arguments.types)


def _nullif(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    kinds = comparable(site.types)
    assert kinds is not None
    both = [cast_value(v, s, k, site.context) for v, s, k in zip(values, site.types, kinds, strict=True)]
    equal = pc.fill_null(compare("=", kinds[0], both[0], both[1], rows), False)
    if isinstance(equal, pa.Scalar):
        return pa.scalar(None, values[0].type) if equal.as_py() else values[0]
    return pc.if_else(equal, pa.scalar(None, values[0].type), values[0])


def _if_ordered(arguments: Arguments) -> t.DataType | None:
    """Return the common type of orderable arguments."""
    kind = arguments.types[0]
    return kind if type_rules.is_ordered(kind, kind) else None


def _extreme(operation: Callable[..., Datum]) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        if isinstance(site.type, t.BooleanType):
            whole = operation(*(v.cast(pa.int8()) for v in values), skip_nulls=False)
            return whole.cast(pa.bool_())
        if isinstance(site.type, t.LocalZonedTimestampType):
            # Arrow has no kernel for timestamps.
            kind = arrow_type(site.type)
            return operation(*(v.cast(kind).cast(pa.int64()) for v in values), skip_nulls=False).cast(kind)
        return operation(*values, skip_nulls=False)

    return kernel


def _greatest(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    result = _extreme(pc.max_element_wise)(site, rows, values)
    if isinstance(site.type, (t.FloatType, t.DoubleType)):
        # Arrow prefers a number, but NaN is the greatest.
        result = pc.if_else(reduce(pc.or_, map(pc.is_nan, values)), pa.scalar(np.nan, result.type), result)
    return result


def _typeof_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) > 1 and arguments.constant(1) is None:
        return None
    return takes(any_type, boolean, to=STRING, optional=1, nulls="always")(arguments)


def _typeof(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    kind = site.types[0]
    return pa.scalar(str(kind))


def _uuid(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pa.array([str(uuid.uuid4()) for _ in range(rows)], pa.string())


def _hash_code(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    """Return a hash that is stable across processes, also for null."""
    return pa.array(hashes([as_array(values[0], rows)], rows).astype(np.int32))


def _database(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pa.scalar(site.context.database)


# --- rows, arrays, maps


def _row_rule(arguments: Arguments) -> Resolved:
    fields = [t.RowField(f"EXPR${i}", kind) for i, kind in enumerate(arguments.types)]
    return Resolved(t.RowType(fields, False), arguments.types)


def _row(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    kind = arrow_type(site.type)
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    count = 1 if fixed else rows
    columns = [as_array(v, count) for v in values]
    columns = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, kind, strict=True)]
    result = pa.StructArray.from_arrays(columns, fields=list(kind))
    return result[0] if fixed else result


def _array_rule(arguments: Arguments) -> Resolved | None:
    result = type_rules.least_restrictive(arguments.types)
    if result is None or not len(arguments):
        return None
    return Resolved(t.ArrayType(result, False), (result,) * len(arguments))


def interleaved(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the elements interleaved by row: those of the first row, then of the second, and so on."""
    if len(columns) == 1:
        return columns[0]
    positions = (np.arange(rows)[:, None] + np.arange(len(columns))[None, :] * rows).ravel()
    return pa.concat_arrays(columns).take(pa.array(positions))


def _array(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    kind = arrow_type(site.type)
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    count = 1 if fixed else rows
    columns = [as_array(v, count).cast(kind.value_type) for v in values]
    offsets = pa.array(np.arange(0, count * len(values) + 1, len(values), dtype=np.int32))
    result = pa.ListArray.from_arrays(offsets, interleaved(columns, count))
    return result[0] if fixed else result


def _map_rule(arguments: Arguments) -> Resolved | None:
    keys, values = arguments.types[::2], arguments.types[1::2]
    key, value = type_rules.least_restrictive(keys), type_rules.least_restrictive(values)
    if len(arguments) % 2 or key is None or value is None:
        return None
    return Resolved(t.MapType(key, value, False), (key, value) * len(keys))


def _map(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    kind = arrow_type(site.type)
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    count = 1 if fixed else rows
    columns = [as_array(v, count) for v in values]
    keys = interleaved([c.cast(kind.key_type) for c in columns[::2]], count)
    items = interleaved([c.cast(kind.item_type) for c in columns[1::2]], count)
    if keys.null_count:
        raise TableException("A key of a MAP must not be null.")
    pairs = len(values) // 2
    constant = [stored_scalar(v) for v in values[::2] if isinstance(v, pa.Scalar)]
    if pairs > 1 and (len(constant) < pairs or len({repr(c) for c in constant}) < pairs):
        return _map_of_last(keys, items, pairs, count, kind, fixed)
    offsets = pa.array(np.arange(0, count * pairs + 1, pairs, dtype=np.int32))
    result = pa.MapArray.from_arrays(offsets, keys, items)
    return result[0] if fixed else result


def _map_of_last(keys: pa.Array, items: pa.Array, pairs: int, rows: int, kind: pa.DataType, fixed: bool) -> Datum:
    """Build maps from pairs; of equal keys the last wins."""
    all_keys, all_items = stored(keys), stored(items)
    result = []
    for row in range(rows):
        entries = slice(row * pairs, (row + 1) * pairs)
        result.append(list(dict(zip(all_keys[entries], all_items[entries], strict=True)).items()))
    column = from_stored(result, kind)
    return column[0] if fixed else column


def _item_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) != 2:
        return None
    value, key = arguments.types
    if isinstance(value, t.ArrayType):
        if not isinstance(key, (t.IntegralType, t.NullType)):
            return None
        index = arguments.constant(1)
        if index is not None and index < 1:
            raise ValidationException(f"Array element access needs an index starting at 1 but was {index}.")
        return Resolved(value.element_type.nullable(), (value, t.DataTypes.INT(key.is_nullable)))
    fits = isinstance(value, t.MapType) and type_rules.common_type([value.key_type, key]) is not None
    if isinstance(value, t.MapType) and fits:
        return Resolved(value.value_type.nullable(), (value, value.key_type))
    return None


def _item(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    count = 1 if fixed else rows
    column = as_array(values[0], count)
    if pa.types.is_map(column.type):
        result = _looked_up(column, values[1], count)
        return result[0] if fixed else result
    index = as_array(values[1], count)
    ends = to_numpy(column.offsets)
    positions = ends[:-1] + to_numpy(index).astype(np.int64) - 1
    valid = (positions >= ends[:-1]) & (positions < ends[1:])
    for part in (column, index):
        if part.null_count:
            valid &= part.is_valid().to_numpy(zero_copy_only=False)
    result = column.values.take(pa.array(np.where(valid, positions, 0), mask=~valid))
    return result[0] if fixed else result


def _looked_up(column: pa.Array, key: Datum, rows: int) -> pa.Array:
    if isinstance(key, pa.Scalar) and key.is_valid and not pa.types.is_nested(key.type):
        return pc.map_lookup(column, key, "last")
    keys = stored(as_array(key, rows))
    maps = stored(column)
    result = [None if m is None or k is None else dict(m).get(k) for m, k in zip(maps, keys, strict=True)]
    return from_stored(result, column.type.item_type)


def _field_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments.types) != 1 or not arguments.options:
        return None
    (kind,) = arguments.types
    if not isinstance(kind, t.RowType) or arguments.options[0] not in kind.names:
        return None
    result = kind[arguments.options[0]].data_type
    return Resolved(result.with_nullability(result.is_nullable or kind.is_nullable), arguments.types)


def _field(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    kind = site.types[0]
    assert isinstance(kind, t.RowType)
    index = kind.names.index(site.options[0])
    if isinstance(values[0], pa.Scalar):
        return pc.struct_field(as_array(values[0], 1), [index])[0]
    return pc.struct_field(values[0], [index])


_NONE = takes(to=t.DataTypes.CHAR(36), nulls="never")

FUNCTIONS = [
    Function("IN", _in_rule, _in, api="in_"),
    Function("NULLIF", _nullif_rule, _nullif),
    Function("GREATEST", common(_if_ordered), _greatest),
    Function("LEAST", common(_if_ordered), _extreme(pc.min_element_wise)),
    Function("TYPEOF", _typeof_rule, _typeof),
    # Internal: buckets of distinct values (`optimizer/rules/aggregate_phases.py`).
    Function("$HASH_CODE", takes(any_type, to=t.IntType(False), nulls="never"), _hash_code),
    Function("UUID", _NONE, _uuid, api="uuid", deterministic=False),
    Function(
        "CURRENT_DATABASE", takes(to=STRING, nulls="never"), _database, api="current_database", deterministic=False
    ),
    Function("ROW", _row_rule, _row, api="row"),
    Function("ARRAY", _array_rule, _array, api="array"),
    Function("MAP", _map_rule, _map, api="map_", fails=True),
    Function("ITEM", _item_rule, _item, api="at"),
    Function("FIELD", _field_rule, _field, api="get"),
]
