"""Splits aggregates into a local and a global phase, and distinct aggregates in two; places mini-batches.

Distinct aggregates are split so that the values of one group are spread over subtasks, like Flink's SplitAggregateRule:
a partial aggregate by the group and by buckets of the distinct values, then a final one by the group. Where calls
aggregate different columns, an Expand makes a row for each set of buckets, and each call counts the rows of its own
set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millstream.common.configuration import parse_duration_ms
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall, Call, Column, Constant, Expression, conjunction
from millstream.sql.functions.table import call as resolved
from millstream.sql.functions.table import cast
from millstream.sql.optimizer.changelog import is_over_time
from millstream.sql.optimizer.rules.windows import windowed
from millstream.sql.optimizer.upsert_keys import is_distributed_by
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import BigIntType, BooleanType, DataType, DecimalType, DoubleType, FloatType, IntType

_VARIANCES = frozenset(["VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"])
# Aggregates whose accumulators can be merged.
_MERGEABLE = frozenset(["COUNT", "SUM", "$SUM0", "AVG", "MIN", "MAX", *_VARIANCES])
# The same, except for input with retractions, which may belong to the other phase.
_MERGEABLE_APPEND_ONLY = frozenset(["COLLECT", "ARRAY_AGG"])


def can_be_split(call: AggregateCall, retracts: bool) -> bool:
    """Return whether an aggregate can be computed in two phases."""
    if call.user is not None or call.order:
        return False
    return call.function in _MERGEABLE or (call.function in _MERGEABLE_APPEND_ONLY and not retracts)


class Accumulated:
    """Names of accumulators.

    Attributes:
        names: per aggregate.
        distinct: per distinct aggregate the name of its set of values; None for others.
        tables: the names of all sets of values, with the first aggregate that uses each.
        rows: the name of the row count, if it is needed and no aggregate provides it; None otherwise.
    """

    def __init__(self, calls: Sequence[AggregateCall], retracts: bool) -> None:
        self.names: list[tuple[str, ...]] = []
        self.distinct: list[str | None] = []
        self.tables: dict[str, AggregateCall] = {}
        known: dict[tuple[int, ...], str] = {}
        number = 0
        for call in calls:
            accumulators = _accumulator_names(call, retracts)
            self.names.append(tuple(f"{name}${number + i}" for i, name in enumerate(accumulators)))
            number += len(accumulators)
            if call.distinct and call.arguments not in known:
                known[call.arguments] = f"distinct${len(known)}"
                self.tables[known[call.arguments]] = call
            self.distinct.append(known[call.arguments] if call.distinct else None)
        counts_rows = any(c.function == "COUNT" and not c.arguments and c.condition is None for c in calls)
        self.rows = f"count1${number}" if retracts and not counts_rows else None


def _accumulator_names(call: AggregateCall, retracts: bool) -> tuple[str, ...]:
    function = call.function
    if function == "COUNT":
        return ("count",) if call.arguments else ("count1",)
    if function == "AVG" or (function == "SUM" and retracts):
        return ("sum", "count")
    if function in _VARIANCES:
        return ("sum", "squares", "count")
    return ("sum",) if function == "$SUM0" else (function.lower(),)


MINI_BATCH = "table.exec.mini-batch.enabled"
STRATEGY = "table.optimizer.agg-phase-strategy"


def split_aggregate(node: n.Node, retracts: bool, settings: Mapping[str, str]) -> n.Node:
    """Split an aggregate into two phases as Flink does: groups only with mini-batch, windows always.

    Args:
        node: any node; other nodes are returned unchanged.
        retracts: whether its input contains retractions.
        settings: the session's configuration.
    """
    if settings.get(STRATEGY, "AUTO").strip().upper() == "ONE_PHASE":
        return node
    if isinstance(node, n.WindowAggregate):
        return _window_phases(node, retracts) if _has_slices(node) and _can_be_split(node, retracts) else node
    if not isinstance(node, n.Aggregate) or settings.get(MINI_BATCH, "false").strip().lower() != "true":
        return node
    if is_distributed_by(node.input, node.keys) or not _can_be_split(node, retracts):
        return node
    fields = _accumulator_fields(node, retracts)
    local = n.LocalAggregate(Fields(fields), node.input, node.keys, node.calls, retracts, node.part)
    keys = tuple(range(len(node.keys)))
    return n.GlobalAggregate(node.fields, local, keys, node.calls, node.state_ttl, node.part, retracts)


def _can_be_split(node: n.Aggregate | n.WindowAggregate, retracts: bool) -> bool:
    return all(can_be_split(call, retracts) for call in node.calls)


def _has_slices(node: n.WindowAggregate) -> bool:
    is_sliced = node.window.kind is not n.WindowKind.SESSION and node.counts is None and node.fires is None
    return node.window.is_event_time and is_sliced


def _window_phases(node: n.WindowAggregate, retracts: bool) -> n.Node:
    end = Field("$slice_end" if node.has_window is None else "$window_end", BigIntType(False))
    fields = Fields((*_accumulator_fields(node, retracts), end))
    local = n.LocalWindowAggregate(fields, node.input, node.window, node.keys, node.calls, retracts, node.has_window)
    keys = tuple(range(len(node.keys)))
    return n.GlobalWindowAggregate(
        node.fields,
        local,
        node.window,
        keys,
        node.calls,
        node.properties,
        has_window=node.has_window,
        of_function=node.of_function,
        retracts=retracts,
    )


def _accumulator_fields(node: n.Aggregate | n.WindowAggregate, retracts: bool) -> tuple[Field, ...]:
    accumulators, big = Accumulated(node.calls, retracts), BigIntType(False)
    fields = [node.input.fields[k] for k in node.keys]
    for names, call in zip(accumulators.names, node.calls, strict=True):
        fields += [Field(name, call.type) for name in names]
    fields += [] if accumulators.rows is None else [Field(accumulators.rows, big)]
    return (*fields, *(Field(name, call.type) for name, call in accumulators.tables.items()))


LATENCY = "table.exec.mini-batch.allow-latency"


def assign_mini_batches(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Put a MiniBatch behind each source or its watermarks, if mini-batch is enabled."""
    if settings.get(MINI_BATCH, "false").strip().lower() != "true":
        return node
    interval = parse_duration_ms(settings.get(LATENCY, "0"))
    done: dict[tuple[int, bool], n.Node] = {}

    def visit(one: n.Node, by_event_time: bool) -> n.Node:
        by_event_time = by_event_time or _follows_event_time(one)
        result = done.get((id(one), by_event_time))
        if result is None:
            if isinstance(one, (n.Watermark, n.Scan, n.StreamScan)):
                result = n.MiniBatch(one.fields, one, interval, by_event_time and isinstance(one, n.Watermark))
            else:
                inputs = [visit(i, by_event_time) for i in one.inputs]
                result = one.with_inputs(inputs) if inputs else one
            done[id(one), by_event_time] = result
        return result

    return visit(node, False)


def _follows_event_time(node: n.Node) -> bool:
    if isinstance(node, (n.WindowAggregate, n.WindowTable)):
        return node.window.is_event_time
    if isinstance(node, (n.IntervalJoin, n.TemporalJoin)):
        return node.is_event_time
    if isinstance(node, n.Over):
        return is_over_time(node) and node.fields[node.over.order[0][0]].time is TimeAttribute.ROWTIME
    return False


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
    if not any(c.distinct and not _is_extreme(c) for c in node.calls) or not all(_is_splittable(c) for c in node.calls):
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


def _is_splittable(call: AggregateCall) -> bool:
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
    below, mapping = _with_buckets(node, buckets)
    of_calls = [
        tuple(sorted({*node.keys, *(mapping.get(a, a) for a in c.arguments)})) if _has_buckets(c) else node.keys
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
    mapping: dict[tuple[int, int | None], int] = {}
    for columns, call in zip(sets.of_calls, calls, strict=True):
        number = sets.number(columns)
        if (number, call.condition) in mapping:
            continue
        mapping[number, call.condition] = len(expressions)
        own: Expression = Call(BooleanType(False), "=", (identity, Constant(_COUNT, number)))
        if call.condition is not None:
            own = conjunction([own, expressions[call.condition]])
        expressions.append(own)
        fields.append(Field(f"$g_{number}", own.type))
    conditions = [mapping[sets.number(c), call.condition] for c, call in zip(sets.of_calls, calls, strict=True)]
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
