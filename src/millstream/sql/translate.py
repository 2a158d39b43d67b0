"""From what is planned to operators: adds to a program what runs a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from millstream.graph.transformations import Program, StreamEnd, Transformation
from millstream.operators.base import Operator
from millstream.operators.partitioners import GlobalPartitioner, Partitioner
from millstream.sql.changes import Changes
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.expressions import Column
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.calc import CalcOperator
from millstream.sql.operators.group_aggregate import GroupAggregateOperator
from millstream.sql.operators.join import JoinOperator, JoinSide
from millstream.sql.operators.session import Session
from millstream.sql.operators.sink import NotNullOperator, TableSinkOperator
from millstream.sql.operators.source import ScanOperator, ValuesSource, values_batch
from millstream.sql.operators.streams import StreamScanOperator, ToRowsOperator
from millstream.sql.operators.watermark import RowWatermarkOperator
from millstream.sql.operators.window_aggregate import WindowAggregateOperator, WindowTimes
from millstream.sql.operators.windowing import Windowing
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned

MINI_BATCH = "table.exec.mini-batch.enabled"
WATERMARK_INTERVAL = "pipeline.auto-watermark-interval"
IDLE_TIMEOUT = "table.exec.source.idle-timeout"
NOT_NULL = "table.exec.sink.not-null-enforcer"

_RETRACTIONS = frozenset({Changes.UPDATE_BEFORE, Changes.DELETE})


class Translator:
    """Adds planned nodes to a program, each once, however many read it.

    Example:
        A table's sink becomes a sink of the program. What is collected becomes a transformation whose records are
        batches, all in one subtask; what goes to a stream, one whose records are rows.
    """

    def __init__(self, program: Program, session: Session) -> None:
        self._program = program
        self._session = session
        self._known: dict[int, list[StreamEnd]] = {}
        # So that an id is not given to another while it is known.
        self._planned: list[Planned] = []

    def translate(self, planned: Planned) -> Transformation:
        """Add what a planned sink, collected rows or a stream needs; return its last transformation."""
        (end,) = self._ends(planned)
        return end.source

    def _ends(self, planned: Planned) -> list[StreamEnd]:
        """Return where the rows of a node come from: one transformation, or those of a union."""
        found = self._known.get(id(planned))
        if found is None:
            make = _MAKERS.get(type(planned.node))
            if make is None:
                raise TableException(f"{type(planned.node).__name__} cannot be run yet: {planned.name}.")
            found = self._known[id(planned)] = make(self, planned)
            self._planned.append(planned)
        return found

    # --- adding

    def _add(
        self,
        planned: Planned,
        operator: Operator,
        inputs: list[StreamEnd],
        suffix: str = "",
        parallelism: int | None = None,
    ) -> Transformation:
        added = self._program.add(planned.name, operator, inputs, parallelism=parallelism)
        if planned.uid:
            added.uid = planned.uid + suffix
        return added

    def _one(
        self, planned: Planned, operator: Operator, inputs: list[StreamEnd], single: bool = False
    ) -> list[StreamEnd]:
        added = self._add(planned, operator, inputs)
        added.non_parallel = single
        return [StreamEnd(added)]

    def _by_key(self, planned: Planned, keys: tuple[int, ...], input_index: int = 0) -> list[StreamEnd]:
        """Return a node's rows by key: without one, all in one subtask."""
        partitioner: Partitioner = ColumnKeyPartitioner(keys) if keys else GlobalPartitioner()
        return [StreamEnd(e.source, partitioner, e.tag, input_index) for e in self._ends(planned)]

    # --- nodes

    def _scan(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.Scan)
        source = node.source.source(node.columns, node.filters, node.limit)
        added = self._add(planned, ScanOperator(source), [], parallelism=node.source.parallelism())
        return [StreamEnd(added)]

    def _values(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.Values)
        operator = ScanOperator(ValuesSource(values_batch(node.rows, node.fields.types)))
        return self._one(planned, operator, [], single=True)

    def _calc(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        if isinstance(node, nodes.Filter):
            expressions = tuple(Column(f.type, i) for i, f in enumerate(node.fields.fields))
            condition = node.condition
        else:
            assert isinstance(node, (nodes.Calc, nodes.Project))
            expressions, condition = node.expressions, getattr(node, "condition", None)
        return self._one(planned, CalcOperator(expressions, condition, self._session), self._ends(before))

    def _union(self, planned: Planned) -> list[StreamEnd]:
        return [end for before in planned.inputs for end in self._ends(before)]

    def _aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Aggregate)
        operator = GroupAggregateOperator(
            node.keys,
            node.calls,
            kinds_of(before),
            retracts=bool(before.traits.changes & _RETRACTIONS),
            pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
            mini_batch=self._session.flag(MINI_BATCH),
            final_only=self._session.batch,
            ttl=planned.traits.state_ttl,
        )
        return self._one(planned, operator, self._by_key(before, node.keys), single=not node.keys)

    def _watermark(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Watermark)
        operator = RowWatermarkOperator(
            node.column,
            node.strategy,
            self._session,
            self._session.milliseconds(WATERMARK_INTERVAL, 200),
            self._session.milliseconds(IDLE_TIMEOUT, 0),
        )
        return self._one(planned, operator, self._ends(before))

    def _window_aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.WindowAggregate)
        kinds = kinds_of(before)
        first = len(node.keys) + len(node.calls)
        types = [arrow_type(f.type) for f in node.fields.fields[first:]]
        spec = node.window
        operator = WindowAggregateOperator(
            Windowing.of(spec),
            WindowTimes(spec.time, spec.is_event_time, self._session.time_zone, node.has_window),
            node.keys,
            node.calls,
            kinds,
            list(zip(node.properties, types, strict=True)),
            retracts=bool(before.traits.changes & _RETRACTIONS),
            batch=self._session.batch,
        )
        return self._one(planned, operator, self._by_key(before, node.keys), single=not node.keys)

    def _join(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.Join)
        keys = (node.left_keys, node.right_keys)
        sides = [
            JoinSide(tuple(kinds_of(p)), k, unique=_is_upsert(p, k)) for p, k in zip(planned.inputs, keys, strict=True)
        ]
        inner = node.kind is nodes.JoinKind.INNER
        operator = JoinOperator(
            node.kind, *sides, node.null_safe, node.condition, self._session, waits=self._session.batch and not inner
        )
        ends = [e for i, p in enumerate(planned.inputs) for e in self._by_key(p, keys[i], i)]
        return self._one(planned, operator, ends, single=not node.left_keys)

    def _sink(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Sink)
        ends = self._checked(planned, node, self._ends(before))
        columns = [c.metadata_key or c.name for c in node.table.columns if c.is_persisted]
        sink = (node.sink.overwriting() if node.overwrite else node.sink).sink(columns)
        added = self._add(planned, TableSinkOperator(sink), ends, parallelism=node.sink.parallelism())
        return [StreamEnd(added)]

    def _checked(self, planned: Planned, node: nodes.Sink, ends: list[StreamEnd]) -> list[StreamEnd]:
        persisted = [c for c in node.table.columns if c.is_persisted]
        needed = [(i, c.name) for i, c in enumerate(persisted) if not c.type.is_nullable]
        inputs = planned.inputs[0].node.fields
        needed = [(i, name) for i, name in needed if inputs[i].type.is_nullable]
        if not needed:
            return ends
        drops = str(self._session.options.get(NOT_NULL, "ERROR")).upper() == "DROP"
        added = self._add(planned, NotNullOperator(needed, drops), ends, suffix="-not-null")
        added.name = f"ConstraintEnforcer[NotNullEnforcer(fields=[{', '.join(name for _, name in needed)}])]"
        return [StreamEnd(added)]

    def _stream_scan(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.StreamScan)
        operator = StreamScanOperator(
            node.stream, node.fields, node.event_time, node.changelog, self._session.time_zone
        )
        return self._one(planned, operator, list(node.stream.ends))

    def _to_stream(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.ToStream)
        operator = ToRowsOperator(before.node.fields, node.event_time, self._session.time_zone)
        return self._one(planned, operator, self._ends(before))

    def _collected(self, planned: Planned) -> list[StreamEnd]:
        (before,) = planned.inputs
        expressions = tuple(Column(f.type, i) for i, f in enumerate(before.node.fields.fields))
        ends = [StreamEnd(e.source, GlobalPartitioner(), e.tag) for e in self._ends(before)]
        return self._one(planned, CalcOperator(expressions, None, self._session), ends, single=True)


def _is_upsert(planned: Planned, keys: tuple[int, ...]) -> bool:
    """Tell whether a node's rows replace each other by a key, without being taken back before."""
    changes = planned.traits.changes
    if Changes.UPDATE_AFTER not in changes or Changes.UPDATE_BEFORE in changes:
        return False
    return any(key <= frozenset(keys) for key in planned.traits.upsert_keys)


def kinds_of(planned: Planned) -> list[pa.DataType]:
    """Return the Arrow types of a node's columns."""
    return [arrow_type(f.type) for f in planned.node.fields.fields]


_Make = Callable[[Any, Planned], list[StreamEnd]]
_MAKERS: Mapping[type, _Make] = {
    nodes.Scan: Translator._scan,
    nodes.Values: Translator._values,
    nodes.Calc: Translator._calc,
    nodes.Project: Translator._calc,
    nodes.Filter: Translator._calc,
    nodes.Union: Translator._union,
    nodes.Aggregate: Translator._aggregate,
    nodes.Watermark: Translator._watermark,
    nodes.WindowAggregate: Translator._window_aggregate,
    nodes.Join: Translator._join,
    nodes.Sink: Translator._sink,
    nodes.Collected: Translator._collected,
    nodes.StreamScan: Translator._stream_scan,
    nodes.ToStream: Translator._to_stream,
}


def translate(planned: Planned, program: Program, session: Session) -> Transformation:
    """Add to a program what one planned node needs; return its last transformation."""
    return Translator(program, session).translate(planned)
