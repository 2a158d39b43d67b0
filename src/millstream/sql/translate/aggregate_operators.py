"""Translation of group aggregates."""

from __future__ import annotations

import pyarrow as pa

from millstream.graph.transformations import UpstreamEdge
from millstream.operators.runtime.partitioners import GlobalPartitioner, Partitioner
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler
from millstream.sql.operators.aggregate.group_aggregate import (
    BatchGlobalGroupAggregateOperator,
    BatchGroupAggregateOperator,
    GlobalGroupAggregateOperator,
    GroupAggregateOperator,
    TableAggregateOperator,
)
from millstream.sql.operators.aggregate.local_aggregate import MAX_ROWS, LocalGroupAggregateOperator
from millstream.sql.operators.aggregate.object_accumulators import in_session
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.optimizer.rules.aggregate_phases import can_be_split
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import Changes
from millstream.sql.translate.translator import Translator, arrow_types, copy_parallelism

MINI_BATCH = "table.exec.mini-batch.enabled"
MINI_BATCH_SIZE = "table.exec.mini-batch.size"
_RETRACTIONS = frozenset({Changes.UPDATE_BEFORE, Changes.DELETE})


def aggregate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Aggregate)
    if not to.session.batch and any(c.user is not None and c.user.func_type == "pandas" for c in node.calls):
        raise TableException(
            "Pandas UDAFs are not supported in streaming mode currently: use one in a window, or a general udaf()."
        )
    calls, retracts = in_session(node.calls, to.session), bool(before.traits.changes & _RETRACTIONS)
    if to.session.batch and not retracts:
        return _in_batch(to, planned, calls)
    operator = GroupAggregateOperator(
        node.keys,
        calls,
        arrow_types(before),
        retracts=retracts,
        pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
        mini_batch=to.session.flag(MINI_BATCH),
        final_only=to.session.batch,
        ttl=planned.traits.state_ttl,
    )
    return to.add_after(planned, operator, to.by_key(before, node.keys), single=not node.keys)


def _in_batch(to: Translator, planned: Planned, calls: tuple[AggregateCall, ...]) -> list[UpstreamEdge]:
    """Add a batch aggregate, in two phases if the result is the same."""
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Aggregate)
    kinds = arrow_types(before)
    if not _can_be_split(calls, kinds):
        operator = BatchGroupAggregateOperator(node.keys, calls, kinds)
        return to.add_after(planned, operator, to.by_key(before, node.keys), single=not node.keys)
    ends = to.ends(before)
    local = to.add(planned, LocalGroupAggregateOperator(node.keys, calls, kinds, False), ends, suffix="-local")
    copy_parallelism(local, ends)
    local.name = f"Local{planned.name}"
    keys = tuple(range(len(node.keys)))
    partitioner: Partitioner = ColumnKeyPartitioner(keys) if keys else GlobalPartitioner()
    second = BatchGlobalGroupAggregateOperator(node.keys, calls, kinds)
    return to.add_after(planned, second, [UpstreamEdge(local, partitioner)], single=not node.keys)


def _can_be_split(calls: tuple[AggregateCall, ...], kinds: list[pa.DataType]) -> bool:
    is_known = all(can_be_split(call, False) and not call.distinct for call in calls)
    return is_known and AggregateHandler(calls, kinds, False).is_exact


def table_aggregate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.TableAggregate)
    (call,) = in_session([node.call], to.session)
    operator = TableAggregateOperator(
        node.keys,
        call,
        arrow_types(before),
        final_only=to.session.batch,
        ttl=planned.traits.state_ttl,
    )
    return to.add_after(planned, operator, to.by_key(before, node.keys), single=not node.keys)


def local_aggregate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.LocalAggregate)
    max_rows = to.session.integer(MINI_BATCH_SIZE, MAX_ROWS)
    operator = LocalGroupAggregateOperator(node.keys, node.calls, arrow_types(before), node.retracts, max_rows)
    return to.add_forward(planned, operator)


def global_aggregate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (local,) = planned.node, planned.inputs
    assert isinstance(node, nodes.GlobalAggregate)
    operator = GlobalGroupAggregateOperator(
        node.local.keys,
        node.calls,
        arrow_types(local.inputs[0]),
        retracts=node.retracts,
        pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
        mini_batch=True,
        ttl=planned.traits.state_ttl,
    )
    return to.add_after(planned, operator, to.by_key(local, node.keys), single=not node.keys)
