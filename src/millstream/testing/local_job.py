"""Runs jobs in this process, without Spark: step by step, with epoch boundaries set by the test, or as a whole."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from millstream.checkpoint.manifest import Manifest, decode_manifest, encode_manifest
from millstream.checkpoint.restore import InitialState, restore
from millstream.checkpoint.snapshot import Snapshot
from millstream.common.aliases import Key, Value
from millstream.common.configuration import Configuration
from millstream.datastream.program_builder import Launcher, ProgramBuilder
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment, pending_job_graph
from millstream.graph.transformations import Transformation
from millstream.jobmaster.engine import QUICK
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.job_launcher import JobSpec, configured_slice, job_settings, prepare
from millstream.jobmaster.local import LocalSlots, start_locally
from millstream.jobmaster.machine.execution import Execution, merged
from millstream.jobmaster.machine.flow import EpochSizer
from millstream.jobmaster.machine.progress import JobProgress
from millstream.jobmaster.machine.restart import FixedDelay
from millstream.jobmaster.sink_committers import SinkCommitters
from millstream.jobmaster.source_coordinators import SourceCoordinators
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.operators.runtime.messages import JobPlan, LevelTask
from millstream.operators.runtime.slot_runner import SlotRunner
from millstream.operators.sink import Committable
from millstream.testing.clock import ManualClock

# How long to wait for requests in flight when nothing else is pending.
_MOMENT = 0.001


class MemoryStorage:
    """Holds state files in a dict."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        return self.files[name.lstrip("/")]

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        """Write a file and return its size."""
        self.files[name] = b"".join(parts)
        return len(self.files[name])

    def drop_local_copies(self, names: list[str]) -> None:
        """Do nothing: there is one copy."""

    def scratch(self, name: str) -> str:
        """Return a directory for temporary files."""
        path = tempfile.mkdtemp(prefix="millstream-scratch-")
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path


class LocalJob:
    """Runs a program epoch by epoch in this process.

    Example:
        >>> from millstream.testing import CollectSink
        >>> sink = CollectSink()
        >>> _ = env.from_collection([1, 2, 3]).map(lambda x: x * x).sink_to(sink)
        >>> job = LocalJob(env, epoch_sizes=lambda: 1)
        >>> _ = job.run_epoch()
        >>> sink.results()
        [1]
        >>> job.run()
        >>> sink.results(), job.is_finished
        ([1, 4, 9], True)
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
        """Create a job of the program in an environment.

        Args:
            env: the environment; its pending sinks are taken.
            clock: the wall clock in milliseconds; by default it stays at 0.
            epoch_sizes: returns the maximum records per source subtask, called before every epoch.
            snapshot: the snapshot to restore, see `snapshot()`; the program may have another parallelism or operators.
            storage: the state files that belong to the snapshot.
            sinks: the sinks to run instead of the environment's pending ones.
            job_name: the job's name, in place of the configured one.
        """
        job_graph, batch = pending_job_graph(env, job_name, sinks)
        settings = job_settings(env.get_configuration(), job_graph, "local", batch)
        self.plan = JobPlan(settings=settings, vertices=job_graph.vertices)
        self._slice = configured_slice(env.get_configuration(), batch) or QUICK.longest
        self._clock = clock or ManualClock()
        self._sizes = epoch_sizes or (lambda: 1 << 30)
        self.storage = storage or MemoryStorage()
        self.progress = JobProgress()
        self._slots = LocalSlots(self.plan, self.storage, self._clock)
        self._begin(snapshot)
        self.output = SinkCommitters(self.plan)

    def _begin(self, snapshot: Snapshot | None) -> None:
        # The latest snapshot, until an epoch completes.
        self._restored = snapshot
        start = InitialState() if snapshot is None else restore(snapshot, self.plan, "")
        self.execution = Execution(self.plan, start)
        self._sources = SourceCoordinators(self.plan, start.sources)
        self.restart_slots()

    @property
    def slots(self) -> list[SlotRunner]:
        """The slots, as processes have them on Spark."""
        return self._slots.slots

    def restart_slots(self) -> None:
        """Restart all processes between two epochs."""
        self._slots.start()

    @property
    def is_finished(self) -> bool:
        """Whether the job has finished."""
        return self.execution.is_finished

    @property
    def has_requests(self) -> bool:
        """Whether async requests are in flight; they continue between epochs."""
        return self.execution.has_requests

    @property
    def next_wake(self) -> int | None:
        """The next time in milliseconds at which work is due without input; None for never."""
        return self.execution.next_wake()

    def run(self, restarts: int = 0) -> None:
        """Run to the end of a bounded program.

        Args:
            restarts: the number of failures to recover from, each from the last completed epoch; by default none.
        """
        while not self.is_finished:
            before = self.snapshot() if restarts else None
            try:
                if not self.run_epoch() and self.has_requests:
                    time.sleep(_MOMENT)
            except SubtaskFailed:
                if before is None:
                    raise
                restarts -= 1
                self.restore(before)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore an earlier snapshot of this job, as after a failure.

        Example:
            >>> from millstream.testing import CollectSink
            >>> sink = CollectSink()
            >>> _ = env.from_collection([1, 2, 3]).sink_to(sink)
            >>> job = LocalJob(env, epoch_sizes=lambda: 1)
            >>> _ = job.run_epoch()
            >>> snapshot = job.snapshot()
            >>> _ = job.run_epoch()
            >>> job.restore(snapshot)
            >>> job.run()
            >>> sink.results()
            [1, 2, 3]
        """
        self._begin(snapshot)

    def run_epoch(self, flush: bool = False, writes_state: bool = True) -> int:
        """Run one epoch with the available input; return the number of split ranges.

        Sinks stage all records on flush. Unanswered async requests are in flight at the end.
        Without `writes_state`, slots may hold state changes in memory: then there is no snapshot of this epoch.
        """
        execution = self.execution
        now = self._clock() / 1000
        with_pending_input = execution.sources_with_pending_input()
        budgets = dict.fromkeys(execution.readable_sources(), self._sizes())
        read = self._sources.poll(budgets, now, execution.running_sources(), execution.splits_ahead())
        self.run_tasks(execution.tasks(read.split_ranges, read.finished, writes_state, flush=flush, slice=self._slice))
        return len(read.split_ranges) + len(with_pending_input - execution.backpressured_sources())

    def finish_requests(self) -> None:
        """Run epochs without input until no async request is in flight."""
        while self.has_requests:
            time.sleep(_MOMENT)
            self.run_tasks(self.execution.tasks({}, frozenset(), slice=0.0))

    def run_tasks(self, tasks: list[LevelTask]) -> None:
        """Run an epoch of these tasks and commit its output."""
        reports = merged(self._slots.run(tasks, "0"))
        self.execution.acknowledge(reports)
        self._restored = None
        self.progress = self.progress.after(reports)
        staged: dict[str, list[tuple[int, Committable]]] = {}
        for report in (r for slot in reports for r in slot.subtasks):
            for operator, committable in report.committables.items():
                staged.setdefault(operator, []).append((report.subtask, committable))
        self.output.commit(staged)
        if self.is_finished:
            self.output.finish()

    def live_snapshot(self) -> Snapshot:
        """Return the snapshot after the last epoch, without encoding it."""
        return self.execution.snapshot(self._sources.positions())

    def savepoint(self) -> Snapshot:
        """Return the snapshot after the last epoch, which took a savepoint."""
        return self.execution.savepoint(self._sources.positions())

    def snapshot(self) -> Snapshot:
        """Return the snapshot after the last epoch, as in a checkpoint; before one, the restored snapshot."""
        if self._restored is not None:
            return self._restored
        return decode_manifest(
            "local", encode_manifest(Manifest("checkpoint", 1, 0, self.live_snapshot(), ""))
        ).snapshot

    def close(self) -> None:
        """Close the functions that are still open."""
        self._slots.close()

    def state_rows(self, table: str) -> list[tuple[Key, Value]]:
        """Return the contents of a state table, over all operators and subtasks."""
        return [row for slot in self.slots for row in slot.state_rows(table)]


def run_locally(env: StreamExecutionEnvironment, epoch_sizes: Sequence[int] = ()) -> LocalJob:
    """Run a bounded program in this process; `epoch_sizes` limits the records of the first epochs.

    Example:
        >>> from millstream.testing import CollectSink
        >>> sink = CollectSink()
        >>> _ = env.from_collection([1, 2, 3]).sink_to(sink)
        >>> run_locally(env, epoch_sizes=[1, 1]).progress.epochs
        3
    """
    sizes = iter(epoch_sizes)
    job = LocalJob(env, epoch_sizes=lambda: next(sizes, 1 << 30))
    job.run()
    return job


# A bounded source is read completely.
_EVERYTHING = 1 << 30


class _ThreadLauncher(Launcher):
    """Launches jobs in a thread of this process.

    Args:
        restarts: the number of failures that a job survives.
    """

    def __init__(self, restarts: int) -> None:
        self._restarts = restarts

    def start_ahead(self, config: Configuration) -> None:
        """Do nothing: there is no Spark to start."""

    def launch(self, job: JobSpec) -> JobMaster:
        prepared = prepare(job)
        options = prepared.options
        options.sizer = EpochSizer(max_records=_EVERYTHING, budget=_EVERYTHING)
        options.buffer_timeout = 0.0
        if self._restarts:
            options.restart = FixedDelay(self._restarts, 0.0)
            # With every epoch.
            options.checkpoints = replace(options.checkpoints, enabled=True, interval=0.0)
        return start_locally(prepared)


class LocalEnvironment(StreamExecutionEnvironment):
    """Runs programs in a thread of this process, in milliseconds; only the processes differ from a job on Spark.

    For tests of complete programs: `execute()` and `execute_and_collect()` work as usual, and so do configured
    checkpoints, savepoints and restarts.

    Args:
        configuration: settings.
        clock: a wall clock in milliseconds, for example a `ManualClock`; by default the real one.
        restarts: the number of failures that a job survives, by default none; it restores the last completed epoch.

    Example:
        >>> env = LocalEnvironment()
        >>> list(env.from_collection([1, 2, 3]).map(lambda x: x * x).execute_and_collect())
        [1, 4, 9]
    """

    def __init__(
        self,
        configuration: Configuration | None = None,
        clock: Callable[[], int] | None = None,
        restarts: int = 0,
    ) -> None:
        super().__init__(configuration)
        self._builder = ProgramBuilder(self._config, _ThreadLauncher(restarts), clock)
        if not self._config.contains_key("parallelism.default"):
            self.set_parallelism(1)
