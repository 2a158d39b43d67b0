"""From what is planned to operators: adds to a program what runs a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millstream.graph.transformations import Program, StreamEnd, Transformation
from millstream.operators.base import Operator
from millstream.operators.partitioners import GlobalPartitioner, Partitioner
from millstream.sql.changes import INSERTS, Changes
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall, Column, Expression
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.calc import CalcOperator
from millstream.sql.operators.correlate import CorrelateOperator
from millstream.sql.operators.expand import ExpandOperator
from millstream.sql.operators.group_aggregate import GlobalGroupAggregateOperator, GroupAggregateOperator
from millstream.sql.operators.interval_join import IntervalJoinOperator
from millstream.sql.operators.join import JoinOperator, JoinSide
from millstream.sql.operators.last_row import EarliestRowOperator, FirstRowOperator, LastRowOperator, TopOneOperator
from millstream.sql.operators.local_aggregate import (
    MOST_ROWS,
    LocalGroupAggregateOperator,
    LocalWindowAggregateOperator,
)
from millstream.sql.operators.match import MatchOperator
from millstream.sql.operators.materialize import MaterializeOperator
from millstream.sql.operators.over import OverOperator
from millstream.sql.operators.over_batch import BatchOverOperator
from millstream.sql.operators.over_columns import ColumnOverOperator, streamed
from millstream.sql.operators.row_windows import CountWindowOperator, SessionWindowOperator
from millstream.sql.operators.session import Session
from millstream.sql.operators.set_operation import SetOperationOperator
from millstream.sql.operators.sink import ByKeyOperator, NotNullOperator, TableSinkOperator
from millstream.sql.operators.sort import LimitOperator, SortOperator
from millstream.sql.operators.source import ScanOperator, ValuesSource, values_batch
from millstream.sql.operators.streams import StreamScanOperator, ToRowsOperator
from millstream.sql.operators.table_aggregate import TableAggregateOperator
from millstream.sql.operators.temporal_join import TemporalJoinOperator
from millstream.sql.operators.top_n import TopNOperator
from millstream.sql.operators.user_aggregates import in_session
from millstream.sql.operators.watermark import RowWatermarkOperator
from millstream.sql.operators.window_aggregate import (
    GlobalWindowAggregateOperator,
    WindowAggregateOperator,
    WindowTimes,
)
from millstream.sql.operators.window_firing import FiringWindowOperator
from millstream.sql.operators.window_join import WindowJoinOperator
from millstream.sql.operators.window_rank import WindowRankOperator
from millstream.sql.operators.window_rows import KeptInput
from millstream.sql.operators.window_table import WindowTableOperator
from millstream.sql.operators.windowing import Windowing
from millstream.sql.plan import nodes
from millstream.sql.plan.changelog import RETRACT, UPDATE_FAST, is_over_time
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import TimeAttribute

MINI_BATCH = "table.exec.mini-batch.enabled"
MINI_BATCH_SIZE = "table.exec.mini-batch.size"
WATERMARK_INTERVAL = "pipeline.auto-watermark-interval"
IDLE_TIMEOUT = "table.exec.source.idle-timeout"
NOT_NULL = "table.exec.sink.not-null-enforcer"
STATE_TTL = "table.exec.state.ttl"

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

    def _behind(self, planned: Planned, operator: Operator) -> list[StreamEnd]:
        """Add an operator that takes rows as they come, in as many subtasks as they come from."""
        (before,) = planned.inputs
        ends = self._ends(before)
        added = self._add(planned, operator, ends)
        _spread_like(added, ends)
        return [StreamEnd(added)]

    def _by_key(self, planned: Planned, keys: tuple[int, ...], input_index: int = 0) -> list[StreamEnd]:
        """Return a node's rows by key: without one, all in one subtask."""
        partitioner: Partitioner = ColumnKeyPartitioner(keys) if keys else GlobalPartitioner()
        return [StreamEnd(e.source, partitioner, e.tag, input_index) for e in self._ends(planned)]

    def _calls(self, calls: Sequence[AggregateCall]) -> tuple[AggregateCall, ...]:
        """Return aggregates as operators take them."""
        return in_session(calls, self._session)

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
        return self._behind(planned, CalcOperator(expressions, condition, self._session))

    def _union(self, planned: Planned) -> list[StreamEnd]:
        return [end for before in planned.inputs for end in self._ends(before)]

    def _aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Aggregate)
        if not self._session.batch and any(c.user is not None and c.user.func_type == "pandas" for c in node.calls):
            raise TableException(
                "Pandas UDAFs are not supported in streaming mode currently: use one in a window, or a general udaf()."
            )
        operator = GroupAggregateOperator(
            node.keys,
            self._calls(node.calls),
            kinds_of(before),
            retracts=bool(before.traits.changes & _RETRACTIONS),
            pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
            mini_batch=self._session.flag(MINI_BATCH),
            final_only=self._session.batch,
            ttl=planned.traits.state_ttl,
        )
        return self._one(planned, operator, self._by_key(before, node.keys), single=not node.keys)

    def _table_aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.TableAggregate)
        (call,) = self._calls([node.call])
        operator = TableAggregateOperator(
            node.keys,
            call,
            kinds_of(before),
            final_only=self._session.batch,
            ttl=planned.traits.state_ttl,
        )
        return self._one(planned, operator, self._by_key(before, node.keys), single=not node.keys)

    def _local_aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.LocalAggregate)
        most = self._session.whole(MINI_BATCH_SIZE, MOST_ROWS)
        operator = LocalGroupAggregateOperator(node.keys, node.calls, kinds_of(before), node.retracts, most)
        return self._behind(planned, operator)

    def _global_aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (local,) = planned.node, planned.inputs
        assert isinstance(node, nodes.GlobalAggregate)
        operator = GlobalGroupAggregateOperator(
            node.local.keys,
            node.calls,
            kinds_of(local.inputs[0]),
            retracts=node.retracts,
            pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
            mini_batch=True,
            ttl=planned.traits.state_ttl,
        )
        return self._one(planned, operator, self._by_key(local, node.keys), single=not node.keys)

    def _watermark(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.Watermark)
        operator = RowWatermarkOperator(
            node.column,
            node.strategy,
            self._session,
            self._session.milliseconds(WATERMARK_INTERVAL, 200),
            self._session.milliseconds(IDLE_TIMEOUT, 0),
        )
        return self._behind(planned, operator)

    def _window_aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.WindowAggregate)
        spec, batch = node.window, self._session.batch
        kinds, calls = kinds_of(before), self._calls(node.calls)
        properties = _properties(node)
        times = WindowTimes(spec.time, spec.is_event_time, self._session.time_zone, node.has_window)
        partition = node.keys
        operator: Operator
        if node.has_window is not None:
            times.are_points = spec.are_points or not spec.is_event_time
        if node.counts is not None:
            operator = CountWindowOperator(*node.counts, times, node.keys, calls, kinds)
        elif spec.kind is nodes.WindowKind.SESSION and node.has_window is None:
            partition = spec.partition or node.keys
            operator = SessionWindowOperator(spec.size, times, partition, node.keys, calls, kinds, properties, batch)
        elif node.fires is not None:
            operator = FiringWindowOperator(
                Windowing.of(spec),
                times,
                node.keys,
                calls,
                kinds,
                properties,
                node.fires,
                retracts=bool(before.traits.changes & _RETRACTIONS),
                pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
            )
        else:
            operator = WindowAggregateOperator(
                Windowing.of(spec),
                times,
                node.keys,
                calls,
                kinds,
                properties,
                retracts=bool(before.traits.changes & _RETRACTIONS),
                batch=batch,
            )
        return self._one(planned, operator, self._by_key(before, partition), single=not partition)

    def _local_window_aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.LocalWindowAggregate)
        spec = node.window
        times = WindowTimes(spec.time, True, self._session.time_zone, node.has_window)
        operator = LocalWindowAggregateOperator(
            Windowing.of(spec), times, node.keys, node.calls, kinds_of(before), node.retracts
        )
        return self._behind(planned, operator)

    def _global_window_aggregate(self, planned: Planned) -> list[StreamEnd]:
        node, (local,) = planned.node, planned.inputs
        assert isinstance(node, nodes.GlobalWindowAggregate)
        spec = node.window
        operator = GlobalWindowAggregateOperator(
            Windowing.of(spec),
            WindowTimes(spec.time, True, self._session.time_zone, node.has_window),
            node.local.keys,
            node.calls,
            kinds_of(local.inputs[0]),
            _properties(node),
            retracts=node.retracts,
        )
        return self._one(planned, operator, self._by_key(local, node.keys), single=not node.keys)

    def _window_table(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.WindowTable)
        spec = node.window
        if spec.kind is nodes.WindowKind.SESSION:
            raise TableException(
                "The SESSION window function cannot stand alone: group by its window_start and window_end."
            )
        times = WindowTimes(spec.time, spec.is_event_time, self._session.time_zone)
        if spec.is_event_time:
            times.are_points = kinds_of(before)[spec.time].tz is not None
        return self._behind(planned, WindowTableOperator(Windowing.of(spec), times, kinds_of(planned)[-3:]))

    def _expand(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.Expand)
        return self._behind(planned, ExpandOperator(node.sets, kinds_of(planned), self._session))

    def _correlate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Correlate)
        operator = CorrelateOperator(
            node.function,
            node.arguments,
            node.fields.types[len(before.node.fields) :],
            self._session,
            keeps_all=node.kind is nodes.JoinKind.LEFT,
            condition=node.condition,
            ordinality=node.ordinality,
        )
        return self._behind(planned, operator)

    def _set_operation(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.SetOperation)
        keys = tuple(range(len(node.fields)))
        operator = SetOperationOperator(node.operator, node.all, kinds_of(planned), self._session.batch)
        ends = [e for i, p in enumerate(planned.inputs) for e in self._by_key(p, keys, i)]
        return self._one(planned, operator, ends)

    def _sort(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Sort)
        kinds, last = kinds_of(before), None if node.limit is None else node.offset + node.limit
        retracts = bool(before.traits.changes - INSERTS)
        operator: Operator
        if node.order and self._session.batch:
            operator = SortOperator(node.order, kinds, node.offset, node.limit)
        elif not node.order and not retracts:
            operator = LimitOperator(node.offset, node.limit)
        elif node.order and last is None and not node.offset:
            first = before.node.fields[node.order[0][0]].time
            if first is TimeAttribute.PROCTIME:
                return self._ends(before)
            operator = SortOperator(node.order, kinds, rowtime=node.order[0][0])
        else:
            operator = self._top_n(planned, (), node.order, node.offset + 1, last, False)
        return self._one(planned, operator, self._by_key(before, ()), single=True)

    def _rank(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Rank)
        operator = self._top_n(planned, node.partition, node.order, node.first, node.last, node.shows_rank)
        return self._one(planned, operator, self._by_key(before, node.partition), single=not node.partition)

    def _top_n(
        self,
        planned: Planned,
        partition: tuple[int, ...],
        order: tuple[tuple[int, bool, bool], ...],
        first: int,
        last: int | None,
        shows_rank: bool,
    ) -> Operator:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, (nodes.Rank, nodes.Sort))
        changes, unique = before.traits.changes, None
        pairs, ttl = Changes.UPDATE_BEFORE in planned.traits.changes, planned.traits.state_ttl
        if first == last == 1 and not shows_rank and node.strategy != RETRACT:
            batch = self._session.batch
            return TopOneOperator(partition, order, kinds_of(before), pairs=pairs, final_only=batch, ttl=ttl)
        if Changes.UPDATE_AFTER in changes and Changes.UPDATE_BEFORE not in changes:
            unique = min((sorted(key) for key in before.traits.upsert_keys), key=len, default=None)
        return TopNOperator(
            partition,
            order,
            kinds_of(before),
            first,
            last,
            shows_rank,
            retracts=bool(changes - INSERTS) and node.strategy != UPDATE_FAST,
            unique=unique,
            pairs=pairs,
            final_only=self._session.batch,
            ttl=ttl,
        )

    def _window_rank(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.WindowRank)
        operator = WindowRankOperator(
            self._given_windows(node.window, node.has_window),
            node.has_window[1],
            node.partition,
            node.order,
            kinds_of(before),
            node.first,
            node.last,
            node.shows_rank,
            last_wins=node.is_deduplicate and node.order[0][1],
        )
        return self._one(planned, operator, self._by_key(before, node.partition))

    def _window_join(self, planned: Planned) -> list[StreamEnd]:
        node, (left, right) = planned.node, planned.inputs
        assert isinstance(node, nodes.WindowJoin)
        operator = WindowJoinOperator(
            node.kind,
            self._given_windows(node.window, node.left_window),
            KeptInput(kinds_of(left), node.left_keys, node.left_window[1]),
            KeptInput(kinds_of(right), node.right_keys, node.right_window[1]),
            node.null_safe,
            node.condition,
            self._session,
        )
        return self._joined(planned, operator)

    def _given_windows(self, spec: nodes.WindowSpec, has_window: tuple[int, int]) -> WindowTimes:
        """Return when windows end that rows have been given."""
        times = WindowTimes(has_window[1], spec.is_event_time, self._session.time_zone, has_window)
        times.are_points = spec.are_points or not spec.is_event_time
        return times

    def _match(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Match)
        operator = MatchOperator(node, kinds_of(before), kinds_of(planned), self._session)
        return self._one(planned, operator, self._by_key(before, node.partition), single=not node.partition)

    def _over(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Over)
        over, kinds = replace(node.over, calls=self._calls(node.over.calls)), kinds_of(before)
        operator: Operator
        if self._session.batch:
            operator = BatchOverOperator(over, kinds)
        elif is_over_time(node):
            time = over.order[0][0]
            rowtime = time if before.node.fields[time].time is TimeAttribute.ROWTIME else None
            preceding = None if over.start is None else -over.start
            calls = streamed(over).calls
            operator = OverOperator(
                over.partition, rowtime, over.rows, preceding, calls, kinds, planned.traits.state_ttl
            )
        else:
            operator = ColumnOverOperator(streamed(over), kinds)
        return self._one(planned, operator, self._by_key(before, over.partition), single=not over.partition)

    def _deduplicate(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Deduplicate)
        kinds, batch = kinds_of(before), self._session.batch
        operator: Operator
        if node.keeps_last:
            operator = LastRowOperator(
                node.keys,
                kinds,
                pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
                says_equal=node.is_event_time or planned.traits.state_ttl > 0,
                rowtime=node.time if node.is_event_time else None,
                final_only=batch,
                ttl=planned.traits.state_ttl,
            )
        elif node.is_event_time:
            operator = EarliestRowOperator(node.keys, kinds, node.time)
        else:
            operator = FirstRowOperator(node.keys, kinds, planned.traits.state_ttl)
        return self._one(planned, operator, self._by_key(before, node.keys), single=not node.keys)

    def _normalize(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.ChangelogNormalize)
        operator = LastRowOperator(
            node.keys,
            kinds_of(before),
            pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
            says_equal=planned.traits.state_ttl > 0,
            final_only=self._session.batch,
            ttl=planned.traits.state_ttl,
        )
        return self._one(planned, operator, self._by_key(before, node.keys))

    def _join(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.Join)
        keys = (node.left_keys, node.right_keys)
        # A side that no hint is about lives as long as the setting says.
        setting = None if node.state_ttl is None else self._session.milliseconds(STATE_TTL, 0)
        ttls = [setting if ttl is None else ttl for ttl in node.side_ttls]
        left, right = (
            JoinSide(tuple(kinds_of(p)), k, unique=_is_upsert(p, k), ttl=ttl)
            for p, k, ttl in zip(planned.inputs, keys, ttls, strict=True)
        )
        inner = node.kind is nodes.JoinKind.INNER
        operator = JoinOperator(
            node.kind,
            left,
            right,
            node.null_safe,
            node.condition,
            self._session,
            waits=self._session.batch and not inner,
            ttl=planned.traits.state_ttl,
        )
        ends = [e for i, p in enumerate(planned.inputs) for e in self._by_key(p, keys[i], i)]
        return self._one(planned, operator, ends, single=not node.left_keys)

    def _sides(self, planned: Planned) -> tuple[JoinSide, JoinSide]:
        node, (left, right) = planned.node, planned.inputs
        assert isinstance(node, nodes.Join)
        return JoinSide(tuple(kinds_of(left)), node.left_keys), JoinSide(tuple(kinds_of(right)), node.right_keys)

    def _joined(self, planned: Planned, operator: Operator) -> list[StreamEnd]:
        """Add a join whose inputs come by its keys."""
        node, (left, right) = planned.node, planned.inputs
        assert isinstance(node, nodes.Join)
        ends = [*self._by_key(left, node.left_keys), *self._by_key(right, node.right_keys, 1)]
        return self._one(planned, operator, ends, single=not node.left_keys)

    def _interval_join(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.IntervalJoin)
        times = (node.left_time, node.right_time) if node.is_event_time else None
        left, right = self._sides(planned)
        operator = IntervalJoinOperator(
            node.kind, left, right, times, node.lower, node.upper, node.null_safe, node.condition, self._session
        )
        return self._joined(planned, operator)

    def _temporal_join(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.TemporalJoin)
        if not node.is_event_time:
            raise TableException(
                "Processing-time temporal join is not supported yet: its right side is a connector that can look up "
                "rows, or the join is FOR SYSTEM_TIME AS OF a rowtime."
            )
        if self._session.batch:
            # What is left of a view in BATCH is one version of each key.
            raise TableException(
                "Event-time temporal joins are for streaming mode: in batch, join by a condition on time."
            )
        left, right = self._sides(planned)
        keeps_all = node.kind is nodes.JoinKind.LEFT
        operator = TemporalJoinOperator(
            left,
            right,
            (node.left_time, node.right_time),
            keeps_all,
            node.null_safe,
            node.condition,
            self._session,
        )
        return self._joined(planned, operator)

    def _sink(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.Sink)
        ends = self._checked(planned, node, self._ends(before))
        if node.materialize is not None:
            ttl = self._session.milliseconds(STATE_TTL, 0)
            operator = MaterializeOperator(node.materialize, kinds_of(before), ttl)
            added = self._add(planned, operator, _by_columns(ends, node.materialize), suffix="-materialize")
            added.name = f"SinkMaterializer(pk=[{', '.join(node.table.primary_key)}])"
            ends = [StreamEnd(added)]
        elif Changes.UPDATE_BEFORE in before.traits.changes - node.sink.changes:
            added = self._add(planned, ByKeyOperator(Changes.DELETE in node.sink.changes), ends, suffix="-by-key")
            _spread_like(added, ends)
            ends = [StreamEnd(added)]
        columns = [c.metadata_key or c.name for c in node.table.columns if c.is_persisted]
        sink = (node.sink.overwriting() if node.overwrite else node.sink).sink(columns)
        parallelism = node.sink.parallelism()
        if parallelism is not None and before.traits.changes != INSERTS and node.table.primary_key:
            # So that changes of one row stay in their order.
            persisted = [c.name for c in node.table.columns if c.is_persisted]
            ends = _by_columns(ends, tuple(persisted.index(name) for name in node.table.primary_key))
        elif node.sink.distribution():
            ends = _by_columns(ends, tuple(columns.index(name) for name in node.sink.distribution()))
        added = self._add(planned, TableSinkOperator(sink), ends, parallelism=parallelism)
        if parallelism is None:
            _spread_like(added, ends)
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
        _spread_like(added, ends)
        added.name = f"ConstraintEnforcer[NotNullEnforcer(fields=[{', '.join(name for _, name in needed)}])]"
        return [StreamEnd(added)]

    def _stream_scan(self, planned: Planned) -> list[StreamEnd]:
        node = planned.node
        assert isinstance(node, nodes.StreamScan)
        operator = StreamScanOperator(
            node.stream, node.fields, node.event_time, node.changelog, self._session.time_zone
        )
        ends = list(node.stream.ends)
        added = self._add(planned, operator, ends)
        _spread_like(added, ends)
        return [StreamEnd(added)]

    def _to_stream(self, planned: Planned) -> list[StreamEnd]:
        node, (before,) = planned.node, planned.inputs
        assert isinstance(node, nodes.ToStream)
        return self._behind(planned, ToRowsOperator(before.node.fields, node.event_time, self._session.time_zone))

    def _collected(self, planned: Planned) -> list[StreamEnd]:
        (before,) = planned.inputs
        expressions = tuple(Column(f.type, i) for i, f in enumerate(before.node.fields.fields))
        ends = [StreamEnd(e.source, GlobalPartitioner(), e.tag) for e in self._ends(before)]
        return self._one(planned, CalcOperator(expressions, None, self._session), ends, single=True)


def _properties(node: nodes.WindowAggregate) -> list[tuple[str, pa.DataType]]:
    """Return the properties of windows that are its last columns, with their types."""
    types = [arrow_type(f.type) for f in node.fields.fields[len(node.keys) + len(node.calls) :]]
    return list(zip(node.properties, types, strict=True))


def _spread_like(added: Transformation, ends: list[StreamEnd]) -> None:
    """Have an operator run in as many subtasks as its rows come from, where that is one operator's."""
    if len(ends) == 1:
        before = ends[0].source
        added.parallelism, added.non_parallel = before.parallelism, before.non_parallel


def _by_columns(ends: list[StreamEnd], keys: tuple[int, ...]) -> list[StreamEnd]:
    return [StreamEnd(e.source, ColumnKeyPartitioner(keys), e.tag) for e in ends]


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
    nodes.TableAggregate: Translator._table_aggregate,
    nodes.MiniBatch: Translator._union,
    nodes.LocalAggregate: Translator._local_aggregate,
    nodes.GlobalAggregate: Translator._global_aggregate,
    nodes.LocalWindowAggregate: Translator._local_window_aggregate,
    nodes.GlobalWindowAggregate: Translator._global_window_aggregate,
    nodes.Watermark: Translator._watermark,
    nodes.WindowAggregate: Translator._window_aggregate,
    nodes.Join: Translator._join,
    nodes.IntervalJoin: Translator._interval_join,
    nodes.TemporalJoin: Translator._temporal_join,
    nodes.WindowTable: Translator._window_table,
    nodes.Expand: Translator._expand,
    nodes.Correlate: Translator._correlate,
    nodes.SetOperation: Translator._set_operation,
    nodes.Sort: Translator._sort,
    nodes.Rank: Translator._rank,
    nodes.WindowRank: Translator._window_rank,
    nodes.WindowJoin: Translator._window_join,
    nodes.Over: Translator._over,
    nodes.Match: Translator._match,
    nodes.Deduplicate: Translator._deduplicate,
    nodes.ChangelogNormalize: Translator._normalize,
    nodes.Sink: Translator._sink,
    nodes.Collected: Translator._collected,
    nodes.StreamScan: Translator._stream_scan,
    nodes.ToStream: Translator._to_stream,
}


def translate(planned: Planned, program: Program, session: Session) -> Transformation:
    """Add to a program what one planned node needs; return its last transformation."""
    return Translator(program, session).translate(planned)
