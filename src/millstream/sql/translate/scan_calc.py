"""Translation of scans, VALUES, calcs, unions, watermarks, DataStreams and collected results."""

from __future__ import annotations

from millstream.graph.transformations import UpstreamEdge
from millstream.operators.runtime.partitioners import ForwardElse, GlobalPartitioner, OrderedPartitioner
from millstream.sql.connector_contract import TableSource
from millstream.sql.expressions import Column, Expression
from millstream.sql.operators.io.calc import CalcOperator
from millstream.sql.operators.io.datastream_io import StreamScanOperator, ToRowsOperator
from millstream.sql.operators.io.table_io import ScanOperator, ValuesSource, values_batch
from millstream.sql.operators.io.watermark_assigner import (
    OnEventWatermarkOperator,
    RowWatermarkOperator,
    SplitWatermarkOperator,
)
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator, copy_parallelism

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
        partitioner = ForwardElse(OrderedPartitioner())
        ends = [e if e.partitioner else UpstreamEdge(e.source, partitioner, e.tag) for e in ends]
    added = to.add(planned, operator, ends)
    copy_parallelism(added, ends)
    return [UpstreamEdge(added)]


def to_stream(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.ToStream)
    return to.add_forward(planned, ToRowsOperator(before.node.fields, node.event_time))
