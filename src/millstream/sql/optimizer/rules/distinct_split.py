"""Splits distinct aggregates in two, so that the values of one group are spread over subtasks.

Flink's SplitAggregateRule: a partial aggregate by the group and by buckets of the distinct values, then a final one by
the group. Where calls aggregate different columns, an Expand makes a row for each set of buckets, and each call counts
the rows of its own set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall, Call, Column, Constant, Expression, conjunction
from millstream.sql.functions.table import call as resolved
from millstream.sql.functions.table import cast
from millstream.sql.optimizer.rules.windows import windowed
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Field, Fields
from millstream.sql.types import BigIntType, BooleanType, DataType, DecimalType, DoubleType, FloatType, IntType

ENABLED = "table.optimizer.distinct-agg.split.enabled"
BUCKETS = "table.optimizer.distinct-agg.split.bucket-num"

_COUNT = BigIntType(False)
# These are bucketed too: with retractions they store all values, as distinct aggregates do.
_BY_BUCKET = frozenset(["MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"])
_SPLIT = frozenset(["COUNT", "AVG", "SUM", "$SUM0", "SINGLE_VALUE", "LISTAGG", *_BY_BUCKET])


def split_distinct(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Split a distinct aggregate into a partial and a final one, if configured."""
    if type(node) is not n.Aggregate or settings.get(ENABLED, "false").strip().lower() != "true":
        return node
    if not any(c.distinct and not _is_extreme(c) for c in node.calls) or not all(_can_be_split(c) for c in node.calls):
        return node
    return node if _is_in_moving_window(node) else _split(node, _bucket_number(settings))


def _is_in_moving_window(node: n.Aggregate) -> bool:
    """Return whether a group key is a window that would differ for the final aggregate."""
    window = windowed(node.input)
    if window is None or not {window.start, window.end} <= set(node.keys):
        return False
    return not window.spec.is_event_time or window.spec.kind is n.WindowKind.SESSION


def _bucket_number(settings: Mapping[str, str]) -> int:
    written = settings.get(BUCKETS, "1024").strip()
    if not written.isdecimal() or int(written) == 0:
        raise TableException(f"Could not parse value '{written}' for key '{BUCKETS}'. It is a number above 0.")
    return int(written)


def _can_be_split(call: AggregateCall) -> bool:
    if call.user is not None or call.order or call.function not in _SPLIT:
        return False
    return call.function not in ("FIRST_VALUE", "LAST_VALUE", "LISTAGG") or (
        len(call.arguments) == 1 and not call.options
    )


@fast_dataclass
class _Sets:
    """The columns by which calls are partially aggregated.

    Attributes:
        of_calls: the columns per call.
        every: all columns.
    """

    of_calls: list[tuple[int, ...]]
    every: tuple[int, ...]

    def number(self, columns: tuple[int, ...]) -> int:
        """Return the id of a set: a bit for each column that it does not have, the last one lowest."""
        return sum((c not in columns) << i for i, c in enumerate(reversed(self.every)))


def _split(node: n.Aggregate, buckets: int) -> n.Node:
    # MIN and MAX of distinct values equal those of all values, so no values need to be stored.
    node = replace(node, calls=tuple(replace(c, distinct=False) if _is_extreme(c) else c for c in node.calls))
    below, places = _with_buckets(node, buckets)
    of_calls = [
        tuple(sorted({*node.keys, *(places.get(a, a) for a in c.arguments)})) if _has_buckets(c) else node.keys
        for c in node.calls
    ]
    sets = _Sets(of_calls, tuple(sorted({column for columns in of_calls for column in columns})))
    conditions = [c.condition for c in node.calls]
    if len({columns for columns, c in zip(of_calls, node.calls, strict=True) if _has_buckets(c)}) > 1:
        below, conditions = _expanded(below, sets, node.calls)
    partial = _partial(node, below, sets, conditions)
    return _final(node, partial, sets)


def _is_extreme(call: AggregateCall) -> bool:
    return call.function in ("MIN", "MAX")


def _has_buckets(call: AggregateCall) -> bool:
    return call.distinct or call.function in _BY_BUCKET


def _with_buckets(node: n.Aggregate, buckets: int) -> tuple[n.Node, dict[int, int]]:
    """Return the input with the buckets of the calls' arguments appended, and their columns by argument."""
    fields = node.input.fields.fields
    hashed = sorted({a for c in node.calls if _has_buckets(c) for a in c.arguments} - set(node.keys))
    if not hashed:
        return node.input, {}
    columns = [Column(f.type, i) for i, f in enumerate(fields)]
    number = Constant(IntType(False), buckets)
    result = [resolved("MOD", [resolved("$HASH_CODE", [columns[i]]), number]) for i in hashed]
    first = len(fields)
    named = [Field(f"$f{first + i}", e.type) for i, e in enumerate(result)]
    below = n.Project(Fields((*fields, *named)), node.input, (*columns, *result))
    return below, {column: first + i for i, column in enumerate(hashed)}


def _expanded(below: n.Node, sets: _Sets, calls: tuple[AggregateCall, ...]) -> tuple[n.Node, list[int | None]]:
    """Return the rows expanded by set of columns, and per call the column that selects its rows."""
    every = sorted(dict.fromkeys(sets.of_calls), key=sets.number)
    absent = {c for c in sets.every if any(c not in columns for columns in every)}
    fields = [replace(f, type=f.type.nullable()) if i in absent else f for i, f in enumerate(below.fields.fields)]
    rows = []
    for columns in every:
        row: list[Expression] = [
            Constant(f.type, None) if i in absent and i not in columns else Column(f.type, i)
            for i, f in enumerate(fields)
        ]
        rows.append((*row, Constant(_COUNT, sets.number(columns))))
    identity = Column(_COUNT, len(fields))
    expand = n.Expand(Fields((*fields, Field("$e", _COUNT))), below, tuple(rows))
    expressions: list[Expression] = [Column(f.type, i) for i, f in enumerate(fields)]
    places: dict[tuple[int, int | None], int] = {}
    for columns, call in zip(sets.of_calls, calls, strict=True):
        number = sets.number(columns)
        if (number, call.condition) in places:
            continue
        places[number, call.condition] = len(expressions)
        own: Expression = Call(BooleanType(False), "=", (identity, Constant(_COUNT, number)))
        if call.condition is not None:
            own = conjunction([own, expressions[call.condition]])
        expressions.append(own)
        fields.append(Field(f"$g_{number}", own.type))
    conditions = [places[sets.number(c), call.condition] for c, call in zip(sets.of_calls, calls, strict=True)]
    return n.Project(Fields(tuple(fields)), expand, tuple(expressions)), list(conditions)


def _partial(node: n.Aggregate, below: n.Node, sets: _Sets, conditions: list[int | None]) -> n.Node:
    fields = [below.fields[k] for k in sets.every]
    calls = []
    for call, condition in zip(node.calls, conditions, strict=True):
        for function, kind in _partial_functions(call, node.input.fields):
            calls.append(replace(call, function=function, type=kind, condition=condition))
            fields.append(Field(_new_name(f"$f{len(fields)}", fields), kind))
    return n.Aggregate(Fields(tuple(fields)), below, sets.every, tuple(calls), node.state_ttl, "PARTIAL")


def _new_name(name: str, fields: Sequence[Field]) -> str:
    taken = {f.name for f in fields}
    names = (name, *(f"{name}_{i}" for i in range(len(fields))))
    return next(free for free in names if free not in taken)


def _partial_functions(call: AggregateCall, fields: Fields) -> list[tuple[str, DataType]]:
    if call.function == "COUNT":
        return [("COUNT", _COUNT)]
    if call.function == "AVG":
        return [("$SUM0", _summed(fields[call.arguments[0]].type)), ("COUNT", _COUNT)]
    # Null in a bucket without matching rows.
    return [(call.function, call.type if call.function == "$SUM0" else call.type.nullable())]


def _summed(kind: DataType) -> DataType:
    """Return the sum type of AVG."""
    if isinstance(kind, DecimalType):
        return DecimalType(38, kind.scale, False)
    return DoubleType(False) if isinstance(kind, (FloatType, DoubleType)) else _COUNT


def _final(node: n.Aggregate, partial: n.Node, sets: _Sets) -> n.Node:
    keys = tuple(sets.every.index(k) for k in node.keys)
    fields = [replace(partial.fields[k], time=node.fields[i].time) for i, k in enumerate(keys)]
    calls: list[AggregateCall] = []
    results: list[Expression] = [Column(f.type, i) for i, f in enumerate(fields)]
    column = len(sets.every)
    for call in node.calls:
        result = []
        for function, kind in _partial_functions(call, node.input.fields):
            sums = "$SUM0" if function == "COUNT" else function
            kind = kind if sums == "$SUM0" else call.type
            calls.append(AggregateCall(sums, (column,), kind))
            result.append(Column(kind, len(fields)))
            fields.append(Field(f"$f{len(fields)}", kind))
            column += 1
        results.append(result[0] if len(result) == 1 else _mean(result[0], result[1], call.type))
    final = n.Aggregate(Fields(tuple(fields)), partial, keys, tuple(calls), node.state_ttl, "FINAL")
    return n.Project(node.fields, final, tuple(results))


def _mean(total: Expression, count: Expression, kind: DataType) -> Expression:
    none = Call(BooleanType(False), "=", (count, Constant(_COUNT, 0)))
    quotient: Expression = resolved("/", [total, count])
    if not quotient.type.is_same_but_null(kind):
        quotient = cast(quotient, kind.nullable())
    return Call(kind, "CASE", (none, Constant(kind.nullable(), None), quotient))
