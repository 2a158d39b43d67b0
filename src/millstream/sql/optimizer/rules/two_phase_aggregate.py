"""Splits aggregates into two phases: before rows are exchanged, and behind."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.sql.optimizer.distribution import lies_so
from millstream.sql.optimizer.partial_aggregates import Accumulated, can_be_split
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Field, Fields
from millstream.sql.types import BigIntType

MINI_BATCH = "table.exec.mini-batch.enabled"
STRATEGY = "table.optimizer.agg-phase-strategy"


def split_aggregate(node: n.Node, retracts: bool, settings: Mapping[str, str]) -> n.Node:
    """Make two phases of an aggregate, as Flink does: of groups only with mini-batch, of windows always.

    Args:
        node: any node; others stay as they are.
        retracts: whether its input may take rows back.
        settings: the session's.
    """
    if settings.get(STRATEGY, "AUTO").strip().upper() == "ONE_PHASE":
        return node
    if isinstance(node, n.WindowAggregate):
        return _window_phases(node, retracts) if _has_slices(node) and _can_be_split(node, retracts) else node
    if not isinstance(node, n.Aggregate) or settings.get(MINI_BATCH, "false").strip().lower() != "true":
        return node
    if lies_so(node.input, node.keys) or not _can_be_split(node, retracts):
        return node
    fields = _kept_fields(node, retracts)
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
    fields = Fields((*_kept_fields(node, retracts), end))
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


def _kept_fields(node: n.Aggregate | n.WindowAggregate, retracts: bool) -> tuple[Field, ...]:
    kept, big = Accumulated(node.calls, retracts), BigIntType(False)
    fields = [node.input.fields[k] for k in node.keys]
    for names, call in zip(kept.names, node.calls, strict=True):
        fields += [Field(name, call.type) for name in names]
    fields += [] if kept.rows is None else [Field(kept.rows, big)]
    return (*fields, *(Field(name, call.type) for name, call in kept.tables.items()))
