"""MATCH_RECOGNIZE on the CEP automaton, which gets the rows of a key in time order.

Conditions on the current row alone are evaluated in vectors beforehand. Those that refer to earlier rows are evaluated
per run. Measures are computed for all matches of a watermark together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.cep.automaton import Automaton, Runs, match_of
from millstream.cep.compiler import compile_pattern
from millstream.cep.conditions import ConditionContext
from millstream.cep.matcher import Matcher
from millstream.cep.pattern import Pattern
from millstream.cep.skip import AfterMatchSkipStrategy
from millstream.common.aliases import Value
from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, Mask, from_python, plain, python_values
from millstream.sql.columns.row_order import sorted_rows
from millstream.sql.errors import null_rowtime
from millstream.sql.expressions import AggregateCall, Column, replaced
from millstream.sql.functions.evaluate import compiled, condition
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler
from millstream.sql.operators.base import EvaluatingOperator, KeyedBatchOperator, split_batches
from millstream.sql.operators.query_context import Session
from millstream.sql.plan.specs import Definition, MatchSpec, MatchStep, Reference

# A row: its values, and the results of the conditions on the row alone.
Event = tuple[tuple[Value, ...], tuple[bool, ...]]
Rows = dict[str, list[Event]]
_RUNS, _TIMER = "runs", "timer"


class MatchOperator(EvaluatingOperator, KeyedBatchOperator):
    """Emits the partition columns, then the measures of each match."""

    emits_later = True

    def __init__(
        self, match: MatchSpec, kinds: Sequence[pa.DataType], out: Sequence[pa.DataType], session: Session
    ) -> None:
        """Create the operator.

        Args:
            match: the pattern, its conditions and measures.
            kinds: the Arrow types of the input's columns.
            out: the Arrow types of the output columns.
            session: the session settings.
        """
        self.match = match
        self.kinds = list(kinds)
        self.out = list(out)
        self.session = session

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._pending: KeyedRows = self.state_table("rows", KeyedRows(self.kinds, self.match.partition))
        state_columns = [StateColumn(_RUNS, object, lambda: None), StateColumn(_TIMER, np.int64, MAX_WATERMARK)]
        keys = [self.kinds[k] for k in self.match.partition]
        self._keys: KeyedColumns = self.state_table("runs", KeyedColumns(keys, state_columns))
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def open(self) -> None:
        super().open()
        self._of_row: list[Callable[[Batch], Mask]] = []
        definitions = {d.variable: d for d in self.match.definitions}
        pattern = _pattern(self.match, lambda variable: self._condition(definitions.get(variable)))
        automaton = Automaton(compile_pattern(pattern), self.setup.clock)
        self._matcher = Matcher(automaton, processing_time=not self.match.is_event_time)
        self._measures = [compiled(m, self.context) for m in self.match.measures]

    # --- conditions

    def _condition(self, definition: Definition | None) -> Callable[..., bool] | None:
        if definition is None:
            return None
        if all(_is_of_row(definition, r) for r in definition.references):
            index = len(self._of_row)
            columns = {i: r.column for i, r in enumerate(definition.references)}
            moved = replaced(
                definition.condition, lambda e: Column(e.type, columns[e.index]) if isinstance(e, Column) else None
            )
            self._of_row.append(condition(moved, self.context))
            return lambda event: event[1][index]
        holds = condition(definition.condition, self.context)
        return _ReferringCondition(definition, [s.variable for s in self.match.steps], self.kinds, holds).holds

    # --- rows

    def process(self, batch: Batch) -> Iterable[Batch]:
        if not self.match.is_event_time:
            return self._at_once(batch)
        column = batch.columns[self.match.order[0][0]]
        if column.null_count:
            raise null_rowtime()
        times = plain(column.cast(pa.timestamp("ms", column.type.tz), safe=False)).astype(np.int64)
        in_time = times > self.watermark
        if not in_time.all():
            self._late.inc(int((~in_time).sum()))
            batch, times = batch.filter(in_time), times[in_time]
        if len(batch):
            self._pending.compact()
            keys = self._pending.find_or_add([batch.columns[k] for k in self.match.partition], len(batch))
            self._pending.add(keys, batch.columns, times)
            self._next = min(self._next, int(times.min()))
        return ()

    def _events(self, batch: Batch) -> list[Event]:
        values = zip(*map(python_values, batch.columns), strict=True)
        flags = [of_row(batch).tolist() for of_row in self._of_row]
        flag_rows = zip(*flags, strict=True) if flags else [()] * len(batch)
        return list(zip(values, flag_rows, strict=True))

    def _at_once(self, batch: Batch) -> Iterator[Batch]:
        now, matches = self.setup.clock(), list[tuple[int, Rows, int]]()
        self._keys.compact()
        key_ids, _ = self._keys.find_or_add([batch.columns[k] for k in self.match.partition], len(batch))
        for key_id, event in zip(key_ids.tolist(), self._events(batch), strict=True):
            runs = self._runs_of(key_id)
            matches += [(key_id, match_of(c), t) for c, t, timed in self._matcher.event(runs, event, now) if not timed]
        yield from self._emitted(matches)
        self._update_timers(np.unique(key_ids))

    def _runs_of(self, key_id: int) -> Runs:
        runs = self._keys.column(_RUNS)
        if runs[key_id] is None:
            runs[key_id] = Runs()
        state: Runs = runs[key_id]
        return state

    def _update_timers(self, key_ids: Ints) -> None:
        """Schedule the next timers of keys; discard keys without partial matches."""
        runs, timers = self._keys.column(_RUNS), self._keys.column(_TIMER)
        for key_id in key_ids.tolist():
            timers[key_id] = min(runs[key_id].timers, default=MAX_WATERMARK)
        self._keys.changed(key_ids)
        is_idle = np.fromiter((runs[s].is_idle for s in key_ids.tolist()), np.bool_, len(key_ids))
        self._keys.remove(key_ids[is_idle])
        self._schedule_timer()

    # --- time

    def _schedule_timer(self) -> None:
        self._next = MAX_WATERMARK
        rows, key_ids = self._pending.all_rows(), self._keys.key_ids()
        if len(rows):
            self._next = int(self._pending.marks[rows].min())
        if len(key_ids):
            self._next = min(self._next, int(self._keys.column(_TIMER)[key_ids].min()))

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        return self.rows_until(self._next, self._pending) if self.match.is_event_time else ()

    def on_watermark(self, watermark: int) -> int | None:
        if self.match.is_event_time and watermark >= self._next:
            self._fire(watermark)
        self.watermark = watermark
        return watermark

    @property
    def follows_clock(self) -> bool:
        return not self.match.is_event_time

    def on_processing_time(self) -> None:
        if self.follows_clock and self.setup.clock() > self._next:
            self._fire(self.setup.clock())

    def next_wake(self) -> int | None:
        return self._next + 1 if self.follows_clock and self._next < MAX_WATERMARK else None

    def finish(self) -> None:
        """Process all rows in batch mode, which has no watermark."""
        if self.session.batch:
            self._fire(MAX_WATERMARK)

    def _fire(self, time: int) -> None:
        """Advance time: pass rows up to it to the automaton, and time out partial matches."""
        pending = self._pending
        rows = pending.all_rows()
        rows = rows[pending.marks[rows] <= time]
        columns = [pending.take(i, rows) for i in range(len(self.kinds))]
        levels = [pa.array(pending.marks[rows]), *columns]
        sort_order = [(0, False, True), *((c + 1, d, n) for c, d, n in self.match.order[1:])]
        order = sorted_rows(levels, sort_order, len(rows))
        batch, times = Batch(columns, None, len(rows)).take(order), pending.marks[rows][order]
        pending.remove(rows)
        self._keys.compact()
        key_ids, _ = self._keys.find_or_add([batch.columns[k] for k in self.match.partition], len(batch))
        by_key: dict[int, list[tuple[int, Event]]] = {}
        for key_id, stamp, event in zip(key_ids.tolist(), times.tolist(), self._events(batch), strict=True):
            by_key.setdefault(key_id, []).append((stamp, event))
        all_key_ids = self._keys.key_ids()
        for key_id in all_key_ids[self._keys.column(_TIMER)[all_key_ids] <= time].tolist():
            by_key.setdefault(key_id, [])
        completed = []
        for key_id, events in by_key.items():
            matches = self._matcher.fire(self._runs_of(key_id), events, time)
            completed += [(key_id, match_of(cell), stamp) for cell, stamp, timed_out in matches if not timed_out]
        self.emit(self._emitted(sorted(completed, key=lambda c: c[2])))
        self._update_timers(np.array(list(by_key), np.int64))

    # --- output

    def _emitted(self, completed: list[tuple[int, Rows, int]]) -> Iterator[Batch]:
        if not completed:
            return
        keys = self._keys.keys_at(np.array([key_id for key_id, _, _ in completed], np.int64))
        matches = [match for _, match, _ in completed]
        variables = [s.variable for s in self.match.steps]
        columns = []
        for reference in self.match.references:
            rows = [_rows_of(match, variables, reference.variable) for match in matches]
            columns.append(_values(reference, rows, self.kinds))
        probe = Batch(columns, None, len(completed))
        yield from split_batches([*keys, *(m(probe) for m in self._measures)], len(completed))


class _ReferringCondition:
    """A condition that refers to earlier rows."""

    def __init__(
        self,
        definition: Definition,
        variables: Sequence[str],
        kinds: Sequence[pa.DataType],
        holds: Callable[[Batch], Mask],
    ) -> None:
        self._definition = definition
        self._variables = variables
        self._kinds = kinds
        self._holds = holds

    def holds(self, event: Event, ctx: ConditionContext) -> bool:
        """Return whether the variable accepts a row."""
        columns = []
        for reference in self._definition.references:
            rows = self._rows(reference.variable, event, ctx)
            columns.append(_values(reference, [rows], self._kinds))
        return bool(self._holds(Batch(columns, None, 1))[0])

    def _rows(self, variable: str | None, event: Event, ctx: ConditionContext) -> list[Event]:
        if variable is None:
            return [*(e for v in self._variables for e in ctx.get_events_for_pattern(v)), event]
        rows = ctx.get_events_for_pattern(variable)
        return [*rows, event] if variable == self._definition.variable else rows


def _rows_of(match: Rows, variables: Sequence[str], variable: str | None) -> list[Event]:
    if variable is not None:
        return match.get(variable, [])
    return [event for v in variables for event in match.get(v, [])]


def _values(reference: Reference, rows: list[list[Event]], kinds: Sequence[pa.DataType]) -> pa.Array:
    """Return the referenced values of each list of rows."""
    if reference.call is not None:
        return _aggregated(reference.call, rows, kinds)
    column, offset = reference.column, reference.offset
    values: list[Value] = []
    for events in rows:
        index = offset if reference.function == "FIRST" else len(events) - 1 - offset
        values.append(events[index][0][column] if 0 <= index < len(events) else None)
    return from_python(values, arrow_type(reference.type))


def _aggregated(call: AggregateCall, rows: list[list[Event]], kinds: Sequence[pa.DataType]) -> pa.Array:
    columns = [pa.nulls(sum(map(len, rows)))] * len(kinds)
    for c in call.arguments:
        columns[c] = from_python([e[0][c] for events in rows for e in events], kinds[c])
    group = np.repeat(np.arange(len(rows)), [len(events) for events in rows])
    aggregates = AggregateHandler([call], kinds, retracts=False)
    state = KeyedColumns([pa.int64()], aggregates.state_columns)
    aggregates.open([pa.int64()], lambda name, table: table)
    state.find_or_add([pa.array(np.arange(len(rows)))], len(rows))
    if len(group):
        aggregates.fold(Batch(columns, None, len(group)), [pa.array(group)], group, state)
    (results,) = aggregates.results(state, np.arange(len(rows)))
    return results


def _is_of_row(definition: Definition, reference: Reference) -> bool:
    """Return whether a reference is to the current row."""
    is_last = reference.function == "LAST" and reference.offset == 0
    return is_last and reference.variable in (None, definition.variable)


def _pattern(match: MatchSpec, condition_of: Callable[[str], Callable[..., bool] | None]) -> Pattern:
    pattern: Pattern | None = None
    for step in match.steps:
        next_pattern = (
            Pattern.begin(step.variable, _skip(match.skip)) if pattern is None else pattern.next(step.variable)
        )
        pattern = _quantified(next_pattern, step)
        holds = condition_of(step.variable)
        if holds is not None:
            pattern = pattern.where(holds)
    assert pattern is not None
    return pattern if match.within is None else pattern.within(match.within)


def _quantified(pattern: Pattern, step: MatchStep) -> Pattern:
    if step.min_times == step.max_times == 1:
        return pattern
    is_optional = step.min_times == 0 and step.max_times == 1
    if is_optional:
        return pattern.optional()
    if step.max_times is None and step.min_times <= 1:
        matches = pattern.one_or_more()
        matches = matches.optional() if step.min_times == 0 else matches
    elif step.max_times is None:
        matches = pattern.times_or_more(step.min_times)
    else:
        matches = pattern.times(step.min_times, step.max_times)
    matches = matches.consecutive()
    return matches if step.reluctant or step.min_times == step.max_times else matches.greedy()


def _skip(skip: tuple[str, ...]) -> AfterMatchSkipStrategy:
    match skip:
        case ("PAST LAST ROW",):
            return AfterMatchSkipStrategy.skip_past_last_event()
        case ("TO FIRST", variable):
            return AfterMatchSkipStrategy.skip_to_first(variable).throw_exception_on_miss()
        case ("TO LAST", variable):
            return AfterMatchSkipStrategy.skip_to_last(variable).throw_exception_on_miss()
    return AfterMatchSkipStrategy.skip_to_next()
