"""Translation of table sinks."""

from __future__ import annotations

import pyarrow as pa

from millstream.graph.transformations import UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.runtime.partitioners import ForwardElse
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.io.constraints import ConstraintOperator, constraints_of
from millstream.sql.operators.io.table_io import ByKeyOperator, TableSinkOperator
from millstream.sql.operators.io.upsert_materializer import ConflictOperator, MaterializeOperator
from millstream.sql.optimizer.changelog import DETECTING
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS, Changes
from millstream.sql.translate.translator import Translator, arrow_types, copy_parallelism, preserve_order

STATE_TTL = "table.exec.state.ttl"
KEYED_SHUFFLE = "table.exec.sink.keyed-shuffle"


def sink(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Sink)
    parallelism = node.sink.parallelism()
    ends = _checked(to, planned, node, to.ends(before))
    if node.materialize is not None:
        ttl = to.session.milliseconds(STATE_TTL, 0)
        operator = _materializing(node, arrow_types(before), ttl)
        by_key = _by_columns(ends, node.materialize)
        added = to.add(planned, operator, by_key, suffix="-materialize", parallelism=parallelism)
        added.name = f"SinkMaterializer(pk=[{', '.join(node.table.primary_key)}])"
        ends = [UpstreamEdge(added)]
    elif Changes.UPDATE_BEFORE in before.traits.changes - node.sink.changes:
        added = to.add(planned, ByKeyOperator(Changes.DELETE in node.sink.changes), ends, suffix="-by-key")
        copy_parallelism(added, ends)
        ends = preserve_order([UpstreamEdge(added)], before)
    columns = [c.metadata_key or c.name for c in node.table.persisted]
    sink = (node.sink.overwriting() if node.overwrite else node.sink).sink(columns)
    if node.sink.distribution():
        ends = _by_columns(ends, tuple(columns.index(name) for name in node.sink.distribution()))
    elif node.table.primary_key and node.materialize is None:
        ends = _keyed(to, node, ends, before.traits.changes == INSERTS)
    added = to.add(planned, TableSinkOperator(sink), ends, parallelism=parallelism)
    if parallelism is None:
        copy_parallelism(added, ends)
    return [UpstreamEdge(added)]


def _materializing(node: nodes.Sink, kinds: list[pa.DataType], ttl: int) -> Operator:
    assert node.materialize is not None
    if node.conflict in DETECTING:
        fails = node.conflict == "ERROR"
        return ConflictOperator(node.materialize, node.fields.names, node.upsert_key, kinds, fails, ttl)
    return MaterializeOperator(node.materialize, kinds, ttl)


def _checked(to: Translator, planned: Planned, node: nodes.Sink, ends: list[UpstreamEdge]) -> list[UpstreamEdge]:
    constraints = constraints_of([(c.name, c.type) for c in node.table.persisted], to.session.options)
    if not constraints:
        return ends
    operator = ConstraintOperator(constraints)
    added = to.add(planned, operator, ends, suffix="-constraints")
    copy_parallelism(added, ends)
    added.name = str(operator)
    return preserve_order([UpstreamEdge(added)], planned.inputs[0])


def _keyed(to: Translator, node: nodes.Sink, ends: list[UpstreamEdge], inserts: bool) -> list[UpstreamEdge]:
    """Return edges that send rows with one primary key to one subtask of the sink."""
    persisted = [c.name for c in node.table.persisted]
    keyed = _by_columns(ends, tuple(persisted.index(name) for name in node.table.primary_key))
    mode = str(to.session.options.get(KEYED_SHUFFLE, "AUTO")).upper()
    if mode == "FORCE" or (mode == "AUTO" and len(ends) > 1 and not inserts):
        # Several inputs may change one row.
        return keyed
    if mode == "NONE":
        return ends
    # Changes of a row come from one subtask; that must hold if the sink has another parallelism.
    return [UpstreamEdge(e.source, ForwardElse(e.partitioner), e.tag) for e in keyed if e.partitioner]


def _by_columns(ends: list[UpstreamEdge], keys: tuple[int, ...]) -> list[UpstreamEdge]:
    return [UpstreamEdge(e.source, ColumnKeyPartitioner(keys), e.tag) for e in ends]
