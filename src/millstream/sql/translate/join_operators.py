"""Translation of joins."""

from __future__ import annotations

from millstream.graph.transformations import UpstreamEdge
from millstream.sql.errors import TableException
from millstream.sql.operators.batch.batch_join import BatchJoinOperator, SortMergeJoinOperator
from millstream.sql.operators.join.interval_join import IntervalJoinOperator
from millstream.sql.operators.join.lookup_join import LookupJoinOperator, MaterializedLookupJoinOperator, Retrying
from millstream.sql.operators.join.regular_join import JoinOperator, JoinSide
from millstream.sql.operators.join.temporal_join import TemporalJoinOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS, Changes
from millstream.sql.translate.translator import Translator, arrow_types

STATE_TTL = "table.exec.state.ttl"


def join(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.Join)
    keys = (node.left_keys, node.right_keys)
    # A side without a hint uses the TTL of the configuration.
    setting = None if node.state_ttl is None else to.session.milliseconds(STATE_TTL, 0)
    ttls = [setting if ttl is None else ttl for ttl in node.side_ttls]
    left, right = (
        JoinSide(tuple(arrow_types(p)), k, unique=_is_upsert(p, k), ttl=ttl)
        for p, k, ttl in zip(planned.inputs, keys, ttls, strict=True)
    )
    ends = [e for i, p in enumerate(planned.inputs) for e in to.by_key(p, keys[i], i)]
    if to.session.batch and all(p.traits.changes <= INSERTS for p in planned.inputs):
        join_in_batch = SortMergeJoinOperator if node.join_strategy is nodes.JoinStrategy.MERGE else BatchJoinOperator
        in_batch = join_in_batch(node.kind, left, right, node.null_safe, node.condition, to.session)
        return to.add_after(planned, in_batch, ends, single=not node.left_keys)
    inner = node.kind is nodes.JoinKind.INNER
    operator = JoinOperator(
        node.kind,
        left,
        right,
        node.null_safe,
        node.condition,
        to.session,
        final_only=to.session.batch and not inner,
        ttl=planned.traits.state_ttl,
    )
    return to.add_after(planned, operator, ends, single=not node.left_keys)


def interval_join(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.IntervalJoin)
    times = (node.left_time, node.right_time) if node.is_event_time else None
    left, right = _sides(to, planned)
    operator = IntervalJoinOperator(
        node.kind, left, right, times, node.lower, node.upper, node.null_safe, node.condition, to.session
    )
    return to.add_join(planned, operator)


def temporal_join(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.TemporalJoin)
    if not node.is_event_time:
        raise TableException(
            "Processing-time temporal join is not supported yet: its right side is a connector that can look up "
            "rows, or the join is FOR SYSTEM_TIME AS OF a rowtime."
        )
    if to.session.batch:
        # In batch mode a view has only one version of each key.
        raise TableException("Event-time temporal joins are for streaming mode: in batch, join by a condition on time.")
    left, right = _sides(to, planned)
    is_outer = node.kind is nodes.JoinKind.LEFT
    operator = TemporalJoinOperator(
        left,
        right,
        (node.left_time, node.right_time),
        is_outer,
        node.null_safe,
        node.condition,
        to.session,
        planned.traits.state_ttl,
    )
    return to.add_join(planned, operator)


def _sides(to: Translator, planned: Planned) -> tuple[JoinSide, JoinSide]:
    node, (left, right) = planned.node, planned.inputs
    assert isinstance(node, nodes.Join)
    return JoinSide(tuple(arrow_types(left)), node.left_keys), JoinSide(tuple(arrow_types(right)), node.right_keys)


def _is_upsert(planned: Planned, keys: tuple[int, ...]) -> bool:
    """Return whether a node emits upserts by a key, without UPDATE_BEFORE."""
    changes = planned.traits.changes
    if Changes.UPDATE_AFTER not in changes or Changes.UPDATE_BEFORE in changes:
        return False
    return frozenset(keys) in planned.traits.upsert_keys


def lookup_join(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.LookupJoin)
    scan = node.scan
    lookup = scan.source.lookup([scan.columns[k] for k in node.lookup_keys], scan.columns, node.at_once)
    assert lookup is not None
    if node.retry is not None:
        lookup = Retrying(lookup, node.retry.attempts, node.retry.seconds)
    types = before.node.fields.types
    keys = [(k, types[k]) for k in node.left_keys]
    is_outer = node.kind is nodes.JoinKind.LEFT
    projection = node.expressions, node.filter, node.condition
    if not isinstance(node, nodes.MaterializedLookupJoin):
        return to.add_forward(planned, LookupJoinOperator(lookup, keys, *projection, is_outer, to.session))
    operator = MaterializedLookupJoinOperator(
        lookup,
        keys,
        *projection,
        is_outer,
        to.session,
        kinds=arrow_types(before),
        state_key=node.state_key,
        replaces=node.replaces,
        ttl=planned.traits.state_ttl,
    )
    return to.add_after(planned, operator, to.by_key(before, node.state_key))
