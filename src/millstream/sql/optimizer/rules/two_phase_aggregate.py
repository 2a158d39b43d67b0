"""Splits aggregates into a local and a global phase, and places mini-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.common.configuration import parse_duration_ms
from millstream.sql.expressions import AggregateCall
from millstream.sql.optimizer.changelog import is_over_time
from millstream.sql.optimizer.upsert_keys import lies_so
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import BigIntType

_VARIANCES = frozenset(["VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"])
# Aggregates whose accumulators can be merged.
_TOGETHER = frozenset(["COUNT", "SUM", "$SUM0", "AVG", "MIN", "MAX", *_VARIANCES])
# The same, except for input with retractions, which may belong to the other phase.
_TOGETHER_UNLESS_TAKEN_BACK = frozenset(["COLLECT", "ARRAY_AGG"])


def can_be_split(call: AggregateCall, retracts: bool) -> bool:
    """Return whether an aggregate can be computed in two phases."""
    if call.user is not None or call.order:
        return False
    return call.function in _TOGETHER or (call.function in _TOGETHER_UNLESS_TAKEN_BACK and not retracts)


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
    if lies_so(node.input, node.keys) or not _can_be_split(node, retracts):
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
