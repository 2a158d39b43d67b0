"""Translation of scans, VALUES, calcs, unions, watermarks, DataStreams, collected results and table sinks."""

from __future__ import annotations

import pyarrow as pa

from millstream.graph.transformations import UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.runtime.partitioners import ForwardElse, GlobalPartitioner, OrderedPartitioner
from millstream.sql.connectors import TableSource
from millstream.sql.expressions import Column, Expression
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.io.calc import CalcOperator
from millstream.sql.operators.io.constraints import ConstraintOperator, constraints_of
from millstream.sql.operators.io.datastream_io import StreamScanOperator, ToRowsOperator
from millstream.sql.operators.io.table_io import (
    ByKeyOperator,
    ScanOperator,
    TableSinkOperator,
    ValuesSource,
    values_batch,
)
from millstream.sql.operators.io.upsert_materializer import ConflictOperator, MaterializeOperator
from millstream.sql.operators.io.watermark_assigner import (
    OnEventWatermarkOperator,
    RowWatermarkOperator,
    SplitWatermarkOperator,
)
from millstream.sql.optimizer.changelog import DETECTING
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS, Changes
from millstream.sql.translate.translator import Translator, arrow_types, copy_parallelism, preserve_order

WATERMARK_INTERVAL = "pipeline.auto-watermark-interval"
IDLE_TIMEOUT = "table.exec.source.idle-timeout"


def scan(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.Scan)
    source = node.source.source(node.columns, node.filters, node.limit)
    added = to.add(planned, ScanOperator(source), [], parallelism=node.source.parallelism())
    return [UpstreamEdge(added)]


def values(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.Values)
    operator = ScanOperator(ValuesSource(values_batch(node.rows, node.fields.types)))
    return to.add_after(planned, operator, [], single=True)


def calc(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    expressions: tuple[Expression, ...]
    condition: Expression | None = None
    if isinstance(node, nodes.Filter):
        expressions = tuple(Column(f.type, i) for i, f in enumerate(node.fields.fields))
        condition = node.condition
    else:
        assert isinstance(node, (nodes.Calc, nodes.Project))
        expressions = node.expressions
        condition = node.condition if isinstance(node, nodes.Calc) else None
    return to.add_forward(planned, CalcOperator(expressions, condition, to.session))


def union(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    return [end for before in planned.inputs for end in to.ends(before)]


def watermark(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.Watermark)
    source = _source_of(planned)
    if source is not None and source.watermarks_by_split and not to.session.batch:
        idle = to.session.milliseconds(IDLE_TIMEOUT, 0)
        return to.add_forward(planned, SplitWatermarkOperator(node.column, node.strategy, to.session, idle))
    on_event = source is not None and source.watermarks_on_event
    operator = (OnEventWatermarkOperator if on_event else RowWatermarkOperator)(
        node.column,
        node.strategy,
        to.session,
        to.session.milliseconds(WATERMARK_INTERVAL, 200),
        to.session.milliseconds(IDLE_TIMEOUT, 0),
    )
    return to.add_forward(planned, operator)


def _source_of(planned: Planned) -> TableSource | None:
    """Return the source of a node's rows, or None if stateful operators or exchanges are in between."""
    while isinstance(planned.node, (nodes.Watermark, nodes.Calc, nodes.Project, nodes.Filter)):
        (planned,) = planned.inputs
    return planned.node.source if isinstance(planned.node, nodes.Scan) else None


def collected(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    (before,) = planned.inputs
    expressions = tuple(Column(f.type, i) for i, f in enumerate(before.node.fields.fields))
    ends = [UpstreamEdge(e.source, GlobalPartitioner(), e.tag) for e in to.ends(before)]
    return to.add_after(planned, CalcOperator(expressions, None, to.session), ends, single=True)


def stream_scan(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.StreamScan)
    operator = StreamScanOperator(node.stream, node.fields, node.event_time, node.changelog, to.session.time_zone)
    ends = list(node.stream.ends)
    if node.changelog:
        way = ForwardElse(OrderedPartitioner())
        ends = [e if e.partitioner else UpstreamEdge(e.source, way, e.tag) for e in ends]
    added = to.add(planned, operator, ends)
    copy_parallelism(added, ends)
    return [UpstreamEdge(added)]


def to_stream(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.ToStream)
    return to.add_forward(planned, ToRowsOperator(before.node.fields, node.event_time))


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
