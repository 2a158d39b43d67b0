"""Runs a job in this process, without Spark: the same operators, blocks and state files, epochs cut where a test wants.

What Spark does between two levels is done here by a list; everything else is production code. Functions are pickled as
on the way to a worker, and state is written and read as files are, so that tests find what a cluster would.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cloudpickle

from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.graph.job_graph import build_job_graph
from millstream.graph.transformations import Transformation
from millstream.jobmaster.progress import Progress
from millstream.operators.base import Surroundings
from millstream.operators.sink import Committer, SinkOperator
from millstream.operators.slot import JobPlan, LevelTask, SlotReport, SlotRuntime
from millstream.operators.source import SourceOperator, SplitEnumerator
from millstream.operators.subtask import JobSettings
from millstream.surroundings import Requests


class MemoryStorage:
    """State files in a dict."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes:
        return self.files[name]

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        self.files[name] = b"".join(parts)
        return len(self.files[name])

    def scratch(self, name: str) -> str:
        path = tempfile.mkdtemp(prefix="millstream-scratch-")
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path


class ManualClock:
    """A wall clock that stands still until it is set."""

    def __init__(self, millis: int = 0) -> None:
        self.millis = millis

    def __call__(self) -> int:
        return self.millis


class LocalJob:
    """A program run epoch by epoch in this process.

    Example:
        >>> from millstream.testing import CollectSink
        >>> env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        >>> _ = env.from_collection([1, 2, 3]).map(lambda x: x * x).sink_to(sink)
        >>> LocalJob(env).run()
        >>> sink.results()
        [1, 4, 9]
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        clock: Callable[[], int] | None = None,
        epoch_sizes: Callable[[], int] | None = None,
    ) -> None:
        """Take over the program that was built in an environment.

        Args:
            env: the environment; its pending sinks are taken.
            clock: the wall clock in milliseconds; without one it stands at 0.
            epoch_sizes: asked before every epoch how many records each source subtask may read.
        """
        sinks: list[Transformation] = env._take_sinks()
        graph = env._stream_graph(None, sinks)
        self._batch = env._is_batch(graph)
        vertices = build_job_graph(graph, self._batch).vertices
        self.plan = JobPlan(JobSettings("local", graph.job_name, 0, self._batch), vertices)
        self._pickled = cloudpickle.dumps(self.plan)
        self._clock = clock or ManualClock()
        self._sizes = epoch_sizes or (lambda: 1 << 30)
        self.storage = MemoryStorage()
        self.progress = Progress()
        self.epoch = 0
        self._ended: frozenset[int] = frozenset()
        self._state_files: dict[tuple[int, int], dict[str, str | None]] = {}
        self._carried: dict[tuple[int, int], bytes] = {}
        self.next_wake: int | None = None
        self._sources: dict[int, SplitEnumerator] = {}
        self._committers: dict[str, Committer] = {}
        self._open()
        self.slots = self.new_slots()

    def _open(self) -> None:
        for vertex in self.plan.vertices:
            for node in vertex.nodes:
                if isinstance(node.operator, SourceOperator):
                    self._sources[vertex.id] = node.operator.source.create_enumerator(vertex.parallelism)
                if isinstance(node.operator, SinkOperator):
                    committer = node.operator.sink.create_committer()
                    if committer is not None:
                        self._committers[node.id] = committer

    def new_slots(self) -> list[SlotRuntime]:
        """Return slots as new processes would have them: nothing in memory."""
        surroundings = Surroundings(self._clock, Requests)
        count = max(self.plan.slots(level) for level in range(self.plan.levels))
        return [SlotRuntime(pickle.loads(self._pickled), i, self.storage, surroundings) for i in range(count)]

    def restart_slots(self) -> None:
        """Let all processes die and start anew, as between two epochs."""
        self.slots = self.new_slots()

    @property
    def is_finished(self) -> bool:
        return len(self._ended) == len(self._sources)

    def run(self) -> None:
        """Run to the end of a bounded program."""
        while not self.is_finished:
            self.run_epoch()

    def run_epoch(self) -> None:
        """Run one epoch, with whatever the sources have."""
        shares: dict[int, dict[int, list[Any]]] = {}
        for vertex, source in self._sources.items():
            if vertex not in self._ended:
                shares[vertex] = source.poll(self._sizes(), self._clock() / 1000).shares
        ending = frozenset(v for v, s in self._sources.items() if v not in self._ended and s.is_finished())
        self.epoch += 1
        self._acknowledge(self._run_levels(shares, ending))
        self._ended |= ending

    def _run_levels(self, shares: dict[int, dict[int, list[Any]]], ending: frozenset[int]) -> list[SlotReport]:
        messages: dict[int, list[bytes]] = {}
        for level in range(self.plan.levels):
            task = self._task(level, shares, ending)
            sent: list[tuple[int, bytes]] = []
            for slot in range(self.plan.slots(level)):
                sent += self.slots[slot].run(task, "0", messages.get(slot, []))
            messages = {}
            for target, message in sent:
                messages.setdefault(target, []).append(message)
        return [report for slot in sorted(messages) for m in messages[slot] for report in pickle.loads(m)]

    def _task(self, level: int, shares: dict[int, dict[int, list[Any]]], ending: frozenset[int]) -> LevelTask:
        here = [v for v in self.plan.vertices if v.level == level]
        ids = {v.id for v in here}
        return LevelTask(
            self.epoch,
            level,
            {v: s for v, s in shares.items() if v in ids},
            ending & ids,
            {a: f for a, f in self._state_files.items() if a[0] in ids},
            {a: c for a, c in self._carried.items() if a[0] in ids},
        )

    def _acknowledge(self, reports: list[SlotReport]) -> None:
        reports.sort(key=lambda r: (r.level, r.slot))
        staged: dict[str, list[tuple[int, Any]]] = {}
        wakes = []
        for report in (r for slot in reports for r in slot.subtasks):
            address = report.vertex, report.subtask
            if report.state_files:
                self._state_files[address] = report.state_files
            self._carried[address] = report.carried
            if report.next_wake is not None:
                wakes.append(report.next_wake)
            for operator, committable in report.committables.items():
                staged.setdefault(operator, []).append((report.subtask, committable))
        self.next_wake = min(wakes, default=None)
        self.progress.add(reports)
        for operator, committables in staged.items():
            self._committers[operator].commit(committables)

    def state_rows(self, table: str) -> list[tuple[Any, Any]]:
        """Return what is stored in a state table, over all operators and subtasks."""
        return [row for slot in self.slots for row in slot.state_rows(table)]


def run_locally(env: StreamExecutionEnvironment, epoch_sizes: Sequence[int] = ()) -> LocalJob:
    """Run a bounded program in this process; epochs read as many records as `epoch_sizes` says, then all."""
    sizes = iter(epoch_sizes)
    job = LocalJob(env, epoch_sizes=lambda: next(sizes, 1 << 30))
    job.run()
    return job
