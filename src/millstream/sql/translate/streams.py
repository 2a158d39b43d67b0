"""Streams of a DataStream program, in and out."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.operators.runtime.partitioners import ForwardElse, OrderedPartitioner
from millstream.sql.operators.io.datastream_io import StreamScanOperator, ToRowsOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator, spread_like


def stream_scan(to: Translator, planned: Planned) -> list[StreamEnd]:
    node = planned.node
    assert isinstance(node, nodes.StreamScan)
    operator = StreamScanOperator(node.stream, node.fields, node.event_time, node.changelog, to.session.time_zone)
    ends = list(node.stream.ends)
    if node.changelog:
        way = ForwardElse(OrderedPartitioner())
        ends = [e if e.partitioner else StreamEnd(e.source, way, e.tag) for e in ends]
    added = to.add(planned, operator, ends)
    spread_like(added, ends)
    return [StreamEnd(added)]


def to_stream(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.ToStream)
    return to.behind(planned, ToRowsOperator(before.node.fields, node.event_time))
