"""Sinks of tables."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.sql.changes import INSERTS, Changes
from millstream.sql.errors import TableException
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.materialize import MaterializeOperator
from millstream.sql.operators.sink import ByKeyOperator, NotNullOperator, TableSinkOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator, kinds_of, spread_like

LENGTHS = "table.exec.sink.type-length-enforcer"
NOT_NULL = "table.exec.sink.not-null-enforcer"
STATE_TTL = "table.exec.state.ttl"


def sink(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Sink)
    ends = _fitted(to, planned, node, _checked(to, planned, node, to.ends(before)))
    if node.materialize is not None:
        ttl = to.session.milliseconds(STATE_TTL, 0)
        operator = MaterializeOperator(node.materialize, kinds_of(before), ttl)
        added = to.add(planned, operator, _by_columns(ends, node.materialize), suffix="-materialize")
        added.name = f"SinkMaterializer(pk=[{', '.join(node.table.primary_key)}])"
        ends = [StreamEnd(added)]
    elif Changes.UPDATE_BEFORE in before.traits.changes - node.sink.changes:
        added = to.add(planned, ByKeyOperator(Changes.DELETE in node.sink.changes), ends, suffix="-by-key")
        spread_like(added, ends)
        ends = [StreamEnd(added)]
    columns = [c.metadata_key or c.name for c in node.table.persisted]
    sink = (node.sink.overwriting() if node.overwrite else node.sink).sink(columns)
    parallelism = node.sink.parallelism()
    if parallelism is not None and before.traits.changes != INSERTS and node.table.primary_key:
        # So that changes of one row stay in their order.
        persisted = [c.name for c in node.table.persisted]
        ends = _by_columns(ends, tuple(persisted.index(name) for name in node.table.primary_key))
    elif node.sink.distribution():
        ends = _by_columns(ends, tuple(columns.index(name) for name in node.sink.distribution()))
    added = to.add(planned, TableSinkOperator(sink), ends, parallelism=parallelism)
    if parallelism is None:
        spread_like(added, ends)
    return [StreamEnd(added)]


def _checked(to: Translator, planned: Planned, node: nodes.Sink, ends: list[StreamEnd]) -> list[StreamEnd]:
    persisted = node.table.persisted
    needed = [(i, c.name) for i, c in enumerate(persisted) if not c.type.is_nullable]
    inputs = planned.inputs[0].node.fields
    needed = [(i, name) for i, name in needed if inputs[i].type.is_nullable]
    if not needed:
        return ends
    drops = str(to.session.options.get(NOT_NULL, "ERROR")).upper() == "DROP"
    added = to.add(planned, NotNullOperator(needed, drops), ends, suffix="-not-null")
    spread_like(added, ends)
    added.name = f"ConstraintEnforcer[NotNullEnforcer(fields=[{', '.join(name for _, name in needed)}])]"
    return [StreamEnd(added)]


def _fitted(to: Translator, planned: Planned, node: nodes.Sink, ends: list[StreamEnd]) -> list[StreamEnd]:
    mode = str(to.session.options.get(LENGTHS, "IGNORE")).upper()
    if mode not in ("IGNORE", "TRIM_PAD", "ERROR"):
        raise TableException(f"'{LENGTHS}' is IGNORE, TRIM_PAD or ERROR, not {mode!r}.")
    if mode == "IGNORE":
        return ends
    from millstream.sql.operators.lengths import LengthOperator, limited

    columns = limited([(c.name, c.type) for c in node.table.persisted])
    if not columns:
        return ends
    added = to.add(planned, LengthOperator(columns, mode == "ERROR"), ends, suffix="-lengths")
    spread_like(added, ends)
    added.name = f"ConstraintEnforcer[LengthEnforcer(fields=[{', '.join(c.name for c in columns)}])]"
    return [StreamEnd(added)]


def _by_columns(ends: list[StreamEnd], keys: tuple[int, ...]) -> list[StreamEnd]:
    return [StreamEnd(e.source, ColumnKeyPartitioner(keys), e.tag) for e in ends]
