"""The split enumerators of a running job's sources: they assign split ranges to subtasks, epoch by epoch.

A split range is opaque here: only the source's own enumerator and reader (`operators/source.py`) know its contents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial
from typing import TypeVar

from millstream.checkpoint.snapshot import pack, unpack
from millstream.common.errors import InvalidProgramError, JobExecutionError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.jobmaster.machine.execution import Positions
from millstream.jobmaster.machine.flow import PollBackoff, RateLimit
from millstream.operators.runtime.messages import JobPlan, SplitRanges
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.source import Lags, Source, SourceOperator, SplitEnumerator

log = logging.getLogger("millstream")

T = TypeVar("T")

# Poll interval when alignment holds back all sources.
_HELD_BACK = 0.1
_NONE_AHEAD: Mapping[int, Collection[Hashable]] = {}


@fast_dataclass(kw_only=True)
class Read:
    """The result of polling sources.

    Attributes:
        limited: whether there was more input than the budget.
        finished: the sources that have assigned all their splits.
        lags: the unassigned input of sources that report it.
    """

    split_ranges: SplitRanges
    lags: Lags
    limited: bool
    finished: frozenset[int]


class SourceCoordinators:
    """The split enumerators of one execution, by source vertex."""

    def __init__(self, plan: JobPlan, positions: Positions, wake: Callable[[], None] = lambda: None) -> None:
        """Open the sources of a plan.

        Args:
            plan: the plan.
            positions: the restored position of each source.
            wake: called by sources from any thread when they have input.
        """
        self._back_off: dict[int, PollBackoff] = {}
        self._limits: dict[int, RateLimit] = {}
        self._enumerators: dict[int, SplitEnumerator] = {}
        self._operators: dict[int, str] = {}
        self._labels: dict[int, str] = {}
        # Sources that can hold back single splits.
        self._aligned: set[int] = set()
        try:
            for vertex in plan.vertices:
                if isinstance(operator := vertex.head.operator, SourceOperator):
                    self._open(vertex, operator.source, positions.get(vertex.head.id), wake)
        except BaseException:
            # Sources that were opened before the failed one hold connections.
            self.close()
            raise

    def _open(self, vertex: Vertex, source: Source, packed: bytes | None, wake: Callable[[], None]) -> None:
        restored = None if packed is None else unpack(packed)
        self._operators[vertex.id], self._labels[vertex.id] = vertex.head.id, vertex.head.label
        make = partial(source.create_enumerator, vertex.parallelism, restored)
        enumerator = self._enumerators[vertex.id] = self._guarded(vertex.id, make)
        _check_end(source, enumerator)
        enumerator.listen(wake)
        self._back_off[vertex.id] = PollBackoff()
        if source.aligns_splits:
            self._aligned.add(vertex.id)
        rate = source.rate_per_second
        if rate is not None:
            self._limits[vertex.id] = RateLimit(rate, vertex.parallelism)

    def poll(
        self,
        budgets: Mapping[int, int],
        now: float,
        running: Collection[int],
        ahead: Mapping[int, Collection[Hashable]] = _NONE_AHEAD,
    ) -> Read:
        """Assign the next input of readable sources, up to a budget of records per subtask.

        Splits that alignment holds back get no input.
        """
        for vertex in self._aligned & budgets.keys():
            self._enumerators[vertex].pause_splits(ahead.get(vertex, ()))
        allowed = {v: self._within_rate(v, budget, now) for v, budget in sorted(budgets.items())}
        assigned = {
            v: self._guarded(v, partial(self._enumerators[v].poll, budget, now))
            for v, budget in allowed.items()
            if budget
        }
        for vertex, assignment in assigned.items():
            if assignment.split_ranges:
                self._back_off[vertex].reset()
        return Read(
            split_ranges={v: d.split_ranges for v, d in assigned.items() if d.split_ranges},
            limited=any(d.limited for d in assigned.values()),
            finished=frozenset(v for v in running if self._enumerators[v].is_finished()),
            lags={v: lag for v, d in assigned.items() if (lag := d.lag)},
        )

    def _within_rate(self, vertex: int, budget: int, now: float) -> int:
        limit = self._limits.get(vertex)
        return budget if limit is None else limit.allowed(budget, now)

    def next_poll(self, requested: float, answered: float, readable: Collection[int]) -> float:
        """Return when to poll again after a poll without input."""
        return min((self._next_poll(v, requested, answered) for v in readable), default=answered + _HELD_BACK)

    def _next_poll(self, vertex: int, requested: float, answered: float) -> float:
        fixed = self._enumerators[vertex].next_poll(answered)
        poll_at = self._back_off[vertex].next(requested, answered) if fixed is None else fixed
        limit = self._limits.get(vertex)
        return poll_at if limit is None else max(poll_at, limit.next())

    def positions(self) -> Positions:
        """Return the position of each source."""
        return {self._operators[v]: pack(e.snapshot()) for v, e in self._enumerators.items()}

    def confirm(self, positions: Positions) -> None:
        """Notify sources of processed positions."""
        for vertex, enumerator in self._enumerators.items():
            packed = positions.get(self._operators[vertex])
            if packed is not None:
                enumerator.committed(unpack(packed))

    def confirm_all(self, pending: Collection[int]) -> None:
        """Notify sources that all assigned input is processed, except for sources with pending input."""
        for vertex, enumerator in self._enumerators.items():
            if vertex not in pending:
                enumerator.committed(enumerator.snapshot())

    def _guarded(self, vertex: int, act: Callable[[], T]) -> T:
        try:
            return act()
        except MillstreamError:
            raise
        except Exception as e:
            raise JobExecutionError(f"Source {self._labels[vertex]} failed to assign splits: {e!r}") from e

    def close(self) -> None:
        for vertex, enumerator in self._enumerators.items():
            try:
                enumerator.close()
            except Exception as e:
                log.warning("source %s could not be closed: %s", self._labels[vertex], e)


def _check_end(source: Source, enumerator: SplitEnumerator) -> None:
    if source.is_bounded and type(enumerator).is_finished is SplitEnumerator.is_finished:
        raise InvalidProgramError(
            f"Source {source.name} is bounded, but {type(enumerator).__name__} does not report its end: "
            "implement is_finished()."
        )
