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

from millstream.checkpoint.manifest import Manifest, decode_manifest, encode_manifest
from millstream.checkpoint.restore import Start, restore
from millstream.checkpoint.snapshot import Snapshot
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.graph.job_graph import build_job_graph
from millstream.graph.transformations import Transformation
from millstream.jobmaster.execution import Execution
from millstream.jobmaster.output import Output
from millstream.jobmaster.progress import Progress
from millstream.operators.base import Surroundings
from millstream.operators.failures import SubtaskFailed
from millstream.operators.slot import JobPlan, LevelTask, SlotReport, SlotRuntime
from millstream.operators.vertex import JobSettings
from millstream.surroundings import Requests
from millstream.testing.clock import ManualClock


class MemoryStorage:
    """State files in a dict."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes:
        return self.files[name.lstrip("/")]

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        self.files[name] = b"".join(parts)
        return len(self.files[name])

    def forget(self, names: list[str]) -> None:
        pass

    def scratch(self, name: str) -> str:
        path = tempfile.mkdtemp(prefix="millstream-scratch-")
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path


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
        snapshot: Snapshot | None = None,
        storage: MemoryStorage | None = None,
        sinks: list[Transformation] | None = None,
        job_name: str | None = None,
    ) -> None:
        """Take over the program that was built in an environment.

        Args:
            env: the environment; its pending sinks are taken.
            clock: the wall clock in milliseconds; without one it stands at 0.
            epoch_sizes: asked before every epoch how many records each source subtask may read.
            snapshot: what to go on from, see `snapshot()`; the program may have another parallelism or other operators.
            storage: the state files that belong to the snapshot.
            sinks: what to run in place of the environment's pending sinks.
            job_name: the job's name, in place of the configured one.
        """
        graph = env._stream_graph(job_name, env._take_sinks() if sinks is None else sinks)
        self._batch = env._is_batch(graph)
        vertices = build_job_graph(graph, self._batch).vertices
        config = env.get_configuration()
        backend = config.get_string("state.backend.type", "hashmap")
        parameters = {k: v for k, v in config.to_dict().items() if not k.startswith("spark.")}
        settings = JobSettings("local", graph.job_name, 0, self._batch, parameters, backend)
        self.plan = JobPlan(settings, vertices)
        self._pickled = cloudpickle.dumps(self.plan)
        self._clock = clock or ManualClock()
        self._sizes = epoch_sizes or (lambda: 1 << 30)
        self.storage = storage or MemoryStorage()
        self.progress = Progress()
        start = Start() if snapshot is None else restore(snapshot, self.plan, "")
        self.execution = Execution(self.plan, start)
        self.output = Output(self.plan)
        self.slots = self.new_slots()

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
        return self.execution.is_finished

    @property
    def next_wake(self) -> int | None:
        return self.execution.next_wake()

    def run(self, restarts: int = 0, before_epoch: Callable[[bool], None] | None = None) -> None:
        """Run to the end of a bounded program.

        Args:
            restarts: how often to go on after a failure, from the last epoch that was good.
            before_epoch: called before every epoch, with whether the one before found nothing to read.
        """
        read = 1
        while not self.is_finished:
            if before_epoch is not None:
                before_epoch(not read)
            before = self.snapshot() if restarts else None
            try:
                read = self.run_epoch()
            except SubtaskFailed:
                if before is None:
                    raise
                restarts -= 1
                self.go_on_from(before)

    def go_on_from(self, snapshot: Snapshot) -> None:
        """Start anew from an earlier cut of this job, as after a failure."""
        self.execution = Execution(self.plan, restore(snapshot, self.plan, ""))
        self.restart_slots()

    def run_epoch(self, flush: bool = False) -> int:
        """Run one epoch, with whatever the sources have; return how many shares they had.

        Sinks stage all they have when told to flush.
        """
        shares, _ = self.execution.poll(self._sizes(), self._clock() / 1000)
        running = self.execution.running_sources()
        ending = frozenset(v for v, s in running.items() if s.is_finished())
        self._acknowledge(self._run_levels(self.execution.tasks(shares, ending, flush=flush)))
        return len(shares)

    def snapshot(self) -> Snapshot:
        """Return the cut after the last epoch, as a checkpoint would have it."""
        return decode_manifest(
            "local", encode_manifest(Manifest("checkpoint", 1, 0, self.execution.snapshot(), ""))
        ).snapshot

    def close(self) -> None:
        """Close the functions that are still open."""
        for slot in self.slots:
            slot.close()

    def _run_levels(self, tasks: list[LevelTask]) -> list[SlotReport]:
        messages: dict[int, list[bytes]] = {}
        for level, task in enumerate(tasks):
            sent: list[tuple[int, bytes]] = []
            for slot in range(self.plan.slots(level)):
                sent += self.slots[slot].run(task, "0", messages.get(slot, []))
            messages = {}
            for target, message in sent:
                messages.setdefault(target, []).append(message)
        return [report for slot in sorted(messages) for m in messages[slot] for report in pickle.loads(m)]

    def _acknowledge(self, reports: list[SlotReport]) -> None:
        reports.sort(key=lambda r: (r.level, r.slot))
        self.execution.acknowledge(reports)
        self.progress.add(reports)
        staged: dict[str, list[tuple[int, Any]]] = {}
        for report in (r for slot in reports for r in slot.subtasks):
            for operator, committable in report.committables.items():
                staged.setdefault(operator, []).append((report.subtask, committable))
        self.output.commit(staged)
        if self.is_finished:
            self.output.finish()

    def state_rows(self, table: str) -> list[tuple[Any, Any]]:
        """Return what is stored in a state table, over all operators and subtasks."""
        return [row for slot in self.slots for row in slot.state_rows(table)]


def run_locally(env: StreamExecutionEnvironment, epoch_sizes: Sequence[int] = ()) -> LocalJob:
    """Run a bounded program in this process; epochs read as many records as `epoch_sizes` says, then all.

    Example:
        >>> from millstream.testing import CollectSink
        >>> env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        >>> _ = env.from_collection([1, 2, 3]).sink_to(sink)
        >>> run_locally(env, epoch_sizes=[1, 1]).progress.epochs
        3
    """
    sizes = iter(epoch_sizes)
    job = LocalJob(env, epoch_sizes=lambda: next(sizes, 1 << 30))
    job.run()
    return job
