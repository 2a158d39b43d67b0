"""The automaton: runs of a compiled pattern over events and time.

Nothing here has a clock, a state backend or an engine: the inputs are the runs of one key with an event or a step of
time, the outputs matches and timeouts. A run is

    (first event, state, history)

where the first event is identified by its timestamp and number, a state by its name, and the history is a chain of
cells (previous cell, pattern, event, timestamp, number). Cells are immutable, so runs with a common prefix share them,
and cells that no run references are garbage-collected.

The one run in the start state begins a match with every event it can. If it is the only run, no state is stored.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from millstream.cep.conditions import Atom
from millstream.cep.states import StateGraph, StateKind
from millstream.cep.transition_codegen import Decision, Outcome, atoms_of, decision_of
from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.common.tags import tagged

# A priority queue with the array layout of java.util.PriorityQueue: a list of tuples, ordered by their first member.
# Runs with the same first event are equal, and the position of equal elements in the heap decides the order of matches,
# and with a skip strategy which matches there are. `heapq` sifts differently.
#
# The first member, comparable with that of every other element in the queue.
Order: TypeAlias = Any
Element = TypeVar("Element", bound=tuple[Order, ...])
_order = itemgetter(0)


def add(heap: list[Element], element: Element) -> None:
    """Add an element: it rises past the ones that are greater."""
    at = len(heap)
    heap.append(element)
    order = element[0]
    while at > 0:
        above = (at - 1) >> 1
        parent = heap[above]
        if order >= parent[0]:
            break
        heap[at] = parent
        at = above
    heap[at] = element


def poll(heap: list[Element]) -> Element:
    """Remove and return the minimum element."""
    minimum = heap[0]
    last = heap.pop()
    if heap:
        _sift_down(heap, 0, last)
    return minimum


def keep(heap: list[Element], bound: Order) -> list[Element]:
    """Return the queue without the elements below a bound; the same list if there are none.

    The rest keeps its order in the array, and the heap is rebuilt from it.
    """
    if not heap or heap[0][0] >= bound:
        return heap
    remaining = [element for element in heap if element[0] >= bound]
    for at in range((len(remaining) >> 1) - 1, -1, -1):
        _sift_down(remaining, at, remaining[at])
    return remaining


class Shrinking:
    """A queue for repeated removal of elements below a bound, as after many simultaneous matches.

    If the array is sorted, as is common, these are its first elements, and rebuilding the heap changes nothing.

    Example:
        >>> queue = Shrinking([(1, "a"), (2, "b"), (3, "c")])
        >>> queue.keep(2)
        >>> queue.keep(3)
        >>> queue.least(), queue.rest()
        (3, [(3, 'c')])
    """

    __slots__ = ("_at", "_heap", "_is_sorted")

    def __init__(self, heap: list[Run]) -> None:
        self._heap = heap
        self._at = 0
        self._is_sorted: bool | None = None

    def least(self) -> First | None:
        """Return the key of the minimum element, or None."""
        return self._heap[self._at][0] if self._at < len(self._heap) else None

    def keep(self, bound: Order) -> None:
        """Remove the elements below a bound."""
        heap, at = self._heap, self._at
        if at == len(heap) or heap[at][0] >= bound:
            return
        if self._is_sorted is None:
            self._is_sorted = all(a[0] <= b[0] for a, b in pairwise(heap))
        if self._is_sorted:
            self._at = bisect_left(heap, bound, at, key=_order)
        else:
            self._heap = keep(heap, bound)

    def rest(self) -> list[Run]:
        """Return the current queue."""
        return self._heap[self._at :] if self._at else self._heap


def _sift_down(heap: list[Element], at: int, element: Element) -> None:
    size = len(heap)
    half = size >> 1
    order = element[0]
    while at < half:
        child = 2 * at + 1
        smaller = heap[child]
        right = child + 1
        if right < size and smaller[0] > heap[right][0]:
            child = right
            smaller = heap[child]
        if order <= smaller[0]:
            break
        heap[at] = smaller
        at = child
    heap[at] = element


# (previous, pattern, event, timestamp, number)
Cell: TypeAlias = tuple["History", str, Value, int, int]
# The last cell of a chain; None for the start's run, which has taken no event.
History: TypeAlias = Cell | None
# The first event: timestamp and number.
First = tuple[int, int]
Run = tuple[First, str, History]
# A match, or a partial one: the events by pattern, in order.
Match = dict[str, list[Value]]

# Cells and runs in state: a cell is its index, -1 for none. The start's run is (None, state), all others are
# (timestamp, number, state, cell).
StoredCell = tuple[int, str, Value, int, int]
StoredRun = tuple[None, str] | tuple[int, int, str, int]
# The queue, completed runs, their cells, stamp, count and timers.
StoredRuns = tuple[list[StoredRun] | None, list[StoredRun], list[StoredCell], int, int, list[int]]

_MAX = 2**63 - 1
# The start's run sorts after all others.
_LAST: First = (_MAX, 2**31 - 1)


# A key with more runs than this is logged once.
MANY_RUNS = 10_000

# Most keys have no pending match and no timer; they share these lists, which are never modified.
_NO_RUNS: list[Run] = []
_NO_TIMERS: list[int] = []


class PatternChangedError(MillstreamError):
    """The state holds a run in a state that the pattern does not have."""


def _written(runs: Runs) -> StoredRuns:
    # As flat lists with every shared cell once: chains of cells may be too deep to nest.
    cells: dict[int, int] = {}
    flat: list[StoredCell] = []
    queue = None if runs.queue is None else [_flat(run, cells, flat) for run in runs.queue]
    completed = [_flat(run, cells, flat) for run in runs.completed]
    return queue, completed, flat, runs.stamp, runs.count, runs.timers


def _read(
    queue: list[StoredRun] | None,
    completed: list[StoredRun],
    flat: list[StoredCell],
    stamp: int,
    count: int,
    timers: list[int],
) -> Runs:
    cells: list[Cell] = []
    for previous, pattern, event, timestamp, number in flat:
        cells.append((None if previous < 0 else cells[previous], pattern, event, timestamp, number))

    def run(stored: StoredRun) -> Run:
        if stored[0] is None:
            return _LAST, stored[1], None
        first, number, state, cell = stored
        return (first, number), state, cells[cell]

    runs = Runs()
    runs.queue = None if queue is None else [run(r) for r in queue]
    runs.completed = [run(r) for r in completed] or _NO_RUNS
    runs.stamp, runs.count, runs.timers = stamp, count, timers or _NO_TIMERS
    return runs


@tagged("cep-runs", write=_written, read=_read)
class Runs:
    """The runs of one key: the complete state of the automaton.

    Attributes:
        queue: the runs, the start's among them, as a heap by first event; None if only the start's run exists.
        completed: matches that wait for runs that began earlier, as a similar heap.
        stamp: the timestamp whose taken events are being counted.
        count: their number.
        began: whether a run has begun since this was last set to False, with a timestamp above 0.
        timers: the times at which to advance without an event, for a caller with a clock.
    """

    __slots__ = ("began", "completed", "count", "queue", "stamp", "timers")

    def __init__(self) -> None:
        self.queue: list[Run] | None = None
        self.completed: list[Run] = _NO_RUNS
        self.stamp = -(2**63)
        self.count = 0
        self.began = False
        self.timers: list[int] = _NO_TIMERS

    def set_timer(self, due: int) -> None:
        """Register a timer."""
        if not self.timers:
            self.timers = [due]
        elif self.timers[-1] != due:
            self.timers.append(due)

    def keep_timers(self, timers: list[int]) -> None:
        """Replace all timers by one."""
        self.timers = timers or _NO_TIMERS

    @property
    def is_idle(self) -> bool:
        """Whether the runs are the initial state, which need not be stored."""
        return self.queue is None and not self.completed and not self.timers

    def __repr__(self) -> str:
        """Show runs and histories, for readers of state."""
        shown = [f"{run[1]} after {_shown(run[2])}" for run in self.queue or () if run[2] is not None]
        shown += [f"waiting match {_shown(run[2])}" for run in self.completed]
        timers = f", timers at {self.timers}" if self.timers else ""
        return f"<runs: {'; '.join(shown) or 'none'}{timers}>"


def _shown(cell: History) -> str:
    return ", ".join(f"{name}={events!r}" for name, events in match_of(cell).items())


def _flat(run: Run, cells: dict[int, int], flat: list[StoredCell]) -> StoredRun:
    (stamp, number), state, cell = run
    if cell is None:
        return None, state
    chain = []
    at: History = cell
    while at is not None and id(at) not in cells:
        chain.append(at)
        at = at[0]
    for c in reversed(chain):
        previous = -1 if c[0] is None else cells[id(c[0])]
        cells[id(c)] = len(flat)
        flat.append((previous, *c[1:]))
    return stamp, number, state, cells[id(cell)]


def match_of(cell: History) -> Match:
    """Return the events of a history by pattern."""
    chain = []
    while cell is not None:
        chain.append(cell)
        cell = cell[0]
    match: Match = {}
    for at in reversed(chain):
        name = at[1]
        events = match.get(name)
        if events is None:
            match[name] = [at[2]]
        else:
            events.append(at[2])
    return match


def _ids(cell: History) -> list[tuple[str, First]]:
    ids = []
    while cell is not None:
        ids.append((cell[1], (cell[3], cell[4])))
        cell = cell[0]
    return ids[::-1]


class Context:
    """The context of conditions; one per automaton, set to the current run."""

    __slots__ = ("_cell", "_clock", "_match", "_timestamp")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._cell: History = None
        self._match: Match | None = None
        self._timestamp = 0

    def get_events_for_pattern(self, name: str) -> list[Value]:
        """Return the events that a pattern has taken in this partial match, in order."""
        if self._match is None:
            self._match = match_of(self._cell)
        return self._match.get(name, [])

    def timestamp(self) -> int:
        """Return the event's timestamp; in processing time, its arrival time."""
        return self._timestamp

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._clock()

    def for_run(self, cell: History, timestamp: int) -> Context:
        """Set the current run."""
        self._cell, self._timestamp, self._match = cell, timestamp, None
        return self


class Automaton:
    """Runs a compiled pattern over events.

    Example:
        >>> from millstream.cep.compiler import compile_pattern
        >>> from millstream.cep.pattern import Pattern
        >>> pattern = Pattern.begin("a").where(lambda e: e == "a").next("b").where(lambda e: e == "b")
        >>> automaton, runs = Automaton(compile_pattern(pattern)), Runs()
        >>> [match_of(m) for m in automaton.event(runs, "a", 1)], [match_of(m) for m in automaton.event(runs, "b", 2)]
        ([], [{'a': ['a'], 'b': ['b']}])
    """

    def __init__(
        self,
        graph: StateGraph,
        clock: Callable[[], int] = lambda: 0,
        on_many_runs: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Create an automaton.

        Args:
            graph: the pattern's states.
            clock: the wall clock in milliseconds, for conditions.
            on_many_runs: called once with the number of runs if a key has more than MANY_RUNS.
        """
        self.graph = graph
        self._on_many_runs = on_many_runs
        self._run_limit = MANY_RUNS
        self.window = graph.window
        self._decisions: dict[str, Decision] = {
            s.name: decision_of(s) for s in graph.states if s.kind not in (StateKind.FINAL, StateKind.STOP)
        }
        self._start = graph.start.name
        self._start_run: Run = (_LAST, self._start, None)
        first = self._decisions[self._start]
        self._begin = first.decide
        # The outcome of an event for the start's run, if it depends on nothing else; None if it does.
        self.begin = None if first.iterative else first.decide
        # The maximum time of a run in a state since its last event.
        self._guards = {s.name: s.window for s in graph.states if s.window is not None and s.window > 0}
        self._pending = frozenset(s.name for s in graph.states if s.kind is StateKind.PENDING)
        self._skip = graph.skip_strategy
        self._context = Context(clock)

    @property
    def has_guards(self) -> bool:
        """Whether a run may end because of the time since its last event."""
        return bool(self._guards)

    def conditions(self) -> list[Atom]:
        """Return the distinct conditions, for the caller to open and close."""
        return atoms_of(self.graph.states)

    def state_names(self) -> list[str]:
        return list(self._decisions)

    def failed_condition(self, error: BaseException) -> tuple[str, Value] | None:
        """Return the pattern and event of a condition that raised an error, or None."""
        tb = error.__traceback__
        failed = None
        while tb is not None:
            for decision in self._decisions.values():
                pattern = decision.failed_pattern(tb)
                if pattern is not None:
                    failed = pattern, tb.tb_frame.f_locals["event"]
            tb = tb.tb_next
        return failed

    # --- events

    def outcome(self, run: Run, event: Value, timestamp: int) -> Outcome:
        """Return the outcome of an event for a run, for explanations."""
        decision = self._decisions.get(run[1])
        if decision is None:
            raise self._changed(run[1])
        return decision.decide(event, self._context.for_run(run[2], timestamp))

    def event(self, runs: Runs, event: Value, timestamp: int) -> Sequence[History]:
        """Process an event with all runs; return the completed matches as histories, in order."""
        queue = runs.queue
        if queue is None:
            outcome = self._begin(event, self._context.for_run(None, timestamp) if self.begin is None else None)
            return () if outcome.unchanged else self.start(runs, outcome, event, timestamp)
        return self._events(runs, queue, event, timestamp)

    def start(self, runs: Runs, outcome: Outcome, event: Value, timestamp: int) -> Sequence[History]:
        """Process an event with the start's run, the only one, and the outcome of `begin`."""
        if outcome.begins is not None and not runs.completed:
            # In most cases one run begins and only has to be stored.
            pattern, target = outcome.begins
            if runs.stamp != timestamp:
                runs.stamp, runs.count = timestamp, 0
            first = timestamp, runs.count
            runs.count += 1
            runs.began |= timestamp > 0
            runs.queue = [(first, target, (None, pattern, event, *first)), self._start_run]
            return ()
        remaining: list[Run] = []
        completed: list[Run] = []
        self._move(runs, outcome, self._start_run, event, timestamp, remaining, completed, -1)
        return self._finish_event(runs, remaining, completed)

    def _events(self, runs: Runs, queue: list[Run], event: Value, timestamp: int) -> Sequence[History]:
        completed: list[Run] = []
        changed: list[Run] | None = None
        # Outcomes that are equal for all runs in a state are computed once.
        answers: dict[str, Outcome] = {}
        decisions = self._decisions
        number = -1
        for at, run in enumerate(queue):
            state = run[1]
            outcome = answers.get(state)
            if outcome is None:
                decision = decisions.get(state)
                if decision is None:
                    raise self._changed(state)
                if decision.iterative:
                    outcome = decision.decide(event, self._context.for_run(run[2], timestamp))
                else:
                    outcome = answers[state] = decision.decide(event, None)
            if outcome.unchanged:
                if changed is None:
                    continue
                # In most cases it stays below its parent in the heap.
                if changed and run[0] >= changed[(len(changed) - 1) >> 1][0]:
                    changed.append(run)
                else:
                    add(changed, run)
                continue
            if changed is None:
                # All runs so far stay in place.
                changed = queue[:at]
            if outcome.ends_run:
                continue
            number = self._move(runs, outcome, run, event, timestamp, changed, completed, number)
        if changed is None:
            return ()
        return self._finish_event(runs, changed, completed)

    def _move(
        self,
        runs: Runs,
        outcome: Outcome,
        run: Run,
        event: Value,
        timestamp: int,
        remaining: list[Run],
        completed: list[Run],
        number: int,
    ) -> int:
        """Add the outcome of a run to the remaining runs and matches; return the event's number, -1 for none yet."""
        first, _, cell = run
        if outcome.takes and number < 0:
            if runs.stamp != timestamp:
                runs.stamp, runs.count = timestamp, 0
            number = runs.count
            runs.count = number + 1
        if cell is None and outcome.takes:
            runs.began |= timestamp > 0
            first = (timestamp, number)
        # A pattern takes an event into one cell, shared by all next states.
        last, new = None, cell
        for pattern, target in outcome.runs:
            if pattern is None:
                add(remaining, (first, target, cell))
                continue
            if pattern != last:
                last, new = pattern, (cell, pattern, event, timestamp, number)
            add(remaining, (first, target, new))
        for pattern in outcome.matches:
            if pattern is None:
                add(completed, (first, "", cell))
                continue
            if pattern != last:
                last, new = pattern, (cell, pattern, event, timestamp, number)
            add(completed, (first, "", new))
        if cell is None and not outcome.stopped:
            add(remaining, run)
        return number

    # --- time

    def advance(self, runs: Runs, timestamp: int) -> tuple[list[History], list[tuple[Cell, int]]]:
        """Advance time; return completed matches, and timed-out histories with their times."""
        queue, window = runs.queue, self.window
        if queue is None or (not self._guards and (window <= 0 or timestamp - queue[0][0][0] < window)):
            # The first run is the earliest; if it is within its window, all are.
            return [], []
        remaining: list[Run] = []
        completed: list[Run] = []
        timed_out: list[tuple[Cell, int]] = []
        guards, pending = self._guards, self._pending
        for run in queue:
            first, state, cell = run
            if cell is None:
                add(remaining, run)
                continue
            if state not in self._decisions:
                raise self._changed(state)
            guard = guards.get(state, 0)
            # A distance that overflows Java's long, from before 1970 to the end of time, counts as none.
            by_guard = guard > 0 and guard <= timestamp - cell[3] <= _MAX
            if not by_guard and not (window > 0 and window <= timestamp - first[0] <= _MAX):
                add(remaining, run)
            elif state in pending:
                add(completed, run)
            else:
                timed_out.append((cell, cell[3] + guard if by_guard else first[0] + window))
        if len(remaining) == len(queue):
            return [], []
        return self._finish_event(runs, remaining, completed), timed_out

    # --- matches

    def _finish_event(self, runs: Runs, queue: list[Run], completed: list[Run]) -> list[History]:
        """Replace the runs, and return the matches that may be emitted now."""
        matches: list[History] = []
        if not self._skip.skips:
            while completed:
                matches.append(poll(completed)[2])
        else:
            pending = runs.completed or []
            for run in completed:
                add(pending, run)
            if pending:
                queue, pending = self._emit(queue, pending, matches)
            runs.completed = pending or _NO_RUNS
        runs.queue = None if len(queue) == 1 and queue[0][2] is None else queue
        if len(queue) > self._run_limit:
            # Raise at once: there may be too many matches to process.
            self._run_limit = sys.maxsize
            self._on_many_runs(len(queue))
        return matches

    def _emit(self, queue: list[Run], pending: list[Run], matches: list[History]) -> tuple[list[Run], list[Run]]:
        """Select matches that no earlier run delays, and drop skipped ones; return the remaining runs."""
        remaining = Shrinking(queue)
        while pending:
            first = remaining.least()
            if first is not None and pending[0][0] > first:
                break
            cell = poll(pending)[2]
            bound = self._skip.bound(_ids(cell))
            if bound is not None:
                remaining.keep(bound)
                pending = keep(pending, bound)
            matches.append(cell)
        return remaining.rest(), pending

    def _changed(self, state: str) -> PatternChangedError:
        return PatternChangedError(
            f"State {state} does not exist in the NFA. The pattern has {', '.join(self.state_names())}: it was changed "
            "since this state was written. Give the operator another uid to begin anew, or change the pattern back."
        )
