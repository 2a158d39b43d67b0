"""The job master: runs one job's epochs from its start to its end, on a thread of its own."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from millstream.checkpoint.coordinator import Checkpoint, Coordinator
from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.origin import Origin
from millstream.checkpoint.owner import is_alive
from millstream.checkpoint.restore import Start, restore
from millstream.checkpoint.snapshot import Snapshot
from millstream.checkpoint.store import CheckpointStore
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.errors import (
    DamagedStateError,
    InvalidProgramError,
    JobCancelledError,
    MillstreamError,
)
from millstream.common.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from millstream.common.faults import fault_point
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.jobmaster.background import Background, Threads
from millstream.jobmaster.checkpoints import Answer, Checkpoints
from millstream.jobmaster.engine import Engine, EpochRunner
from millstream.jobmaster.execution import Execution, Shares
from millstream.jobmaster.flow import EpochSizer
from millstream.jobmaster.output import Output
from millstream.jobmaster.progress import Progress
from millstream.jobmaster.regions import combine, operators_in, region_of
from millstream.jobmaster.requests import (
    CheckpointRequest,
    Inbox,
    Request,
    RequestFailedError,
    RescaleRequest,
    SavepointRequest,
    refuse,
)
from millstream.jobmaster.restart import NoRestart, RestartStrategy
from millstream.operators.slot import JobPlan, SlotReport

log = logging.getLogger("millstream")

# So long a job that ends before its time waits for the manifests that are being written.
_LAST_PATIENCE = 10.0


@dataclass
class JobOptions:
    """How a job is run."""

    buffer_timeout: float = 0.1
    sizer: EpochSizer = field(default_factory=EpochSizer)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    restart: RestartStrategy = field(default_factory=NoRestart)
    restore: Origin | None = None
    # Given the job's directory, makes sure that nobody goes on from another checkpoint.
    claim: Callable[[str], None] = lambda home: None


class JobMaster:
    """One job."""

    def __init__(
        self,
        plan: JobPlan,
        engine: Engine,
        store: CheckpointStore,
        options: JobOptions,
        on_end: Callable[[], None],
        replan: Callable[[int], JobPlan],
        clock: Callable[[], float] = time.time,
        background: Callable[[Callable[[], None]], Background[Answer]] = Threads,
    ) -> None:
        self.plan = plan
        self.result: Future[JobExecutionResult] = Future()
        self.progress = Progress()
        self.restarts = 0
        self._status = JobStatus.INITIALIZING
        self._status_lock = threading.Lock()
        # How the job will have ended, once that is decided.
        self._outcome: JobStatus | None = None
        self._engine = engine
        self._store = store
        self._options = options
        self._on_end = on_end
        self._replan = replan
        self._clock = clock
        self._background = background
        self._cancel = threading.Event()
        # Set when the job's thread shall look up: a request, a cancellation, a manifest that was written.
        self._woken = threading.Event()
        self._requests = Inbox()
        self._stopped = False
        # Numbers the executions, so that no two ever write under the same name.
        self._attempt = -1
        self._runner: EpochRunner | None = None
        self._last_cut: Snapshot | None = None
        self._thread = threading.Thread(target=self._main, name=f"job-{plan.settings.job_id[:8]}", daemon=True)

    # --- from other threads

    def start(self) -> None:
        self._thread.start()

    @property
    def status(self) -> JobStatus:
        return self._status

    @property
    def is_cancelled(self) -> bool:
        return self._cancel.is_set()

    def cancel(self) -> None:
        """Ask the job to stop; `result` is done when it has. A job that is already ending ends as it would."""
        with self._status_lock:
            if self._outcome is not None or self._cancel.is_set():
                return
            self._cancel.set()
            runner = self._runner
        self._woken.set()
        if runner is not None:
            runner.cancel()

    def checkpoint_statistics(self) -> dict[str, Any]:
        """Return how many checkpoints there were, and what is known of the last ones."""
        return self._checkpoints.statistics() if hasattr(self, "_checkpoints") else {"counts": {}, "history": []}

    def last_checkpoint(self) -> tuple[int, float] | None:
        """Return the number of the last complete checkpoint, and when it was complete."""
        latest = self._checkpoints.coordinator.latest() if hasattr(self, "_checkpoints") else None
        return None if latest is None or latest.completed_at is None else (latest.id, latest.completed_at)

    @property
    def savepoint_directory(self) -> str | None:
        return self._options.checkpoints.savepoint_directory

    def ask(self, request: Request) -> None:
        """Have something done between two epochs; the request's future tells when it is."""
        self._requests.put(request)
        self._woken.set()
        if self.result.done():
            self._refuse_requests()

    # --- the job's own thread

    def _main(self) -> None:
        started = self._clock()
        error: BaseException | None = None
        try:
            self._become(JobStatus.CREATED)
            self._open()
            self._become(JobStatus.RUNNING)
            self._run_and_restart()
        except BaseException as e:
            error = e
        with self._status_lock:
            cancelled = self._cancel.is_set()
            outcome = JobStatus.CANCELED if cancelled else JobStatus.FAILED if error else JobStatus.FINISHED
            self._outcome = outcome
        self._shut_down(outcome)
        self._finish(outcome, error, started)
        self._refuse_requests()

    def _open(self) -> None:
        self._store.take(is_alive)
        self._output = Output(self.plan)
        now = self._clock()
        origin, restored, start = self._options.restore, None, Start()
        if origin is not None:
            restored = Checkpoint(origin.manifest.id, now, snapshot=origin.manifest.snapshot)
            start = restore(restored.cut, self.plan, origin.state_url, origin.allow_non_restored)
        # Before any output is aborted, or counts.
        self._options.claim(self._store.storage.url)
        if restored is not None:
            self._output.recover(restored.cut.committables, restored.cut.job_id)
        coordinator = Coordinator(self._options.checkpoints, now, restored)
        coordinator.wait(self._output.waiting())
        self._checkpoints = Checkpoints(
            coordinator,
            self._options.checkpoints,
            self._store,
            self._output,
            self._clock,
            self._background(self._woken.set),
        )
        if origin is not None:
            self._checkpoints.timestamp = origin.manifest.timestamp
            self._checkpoints.claimed = origin if origin.claimed else None
        self._execute(self.plan, start)

    def _execute(self, plan: JobPlan, start: Start) -> None:
        """Begin a new execution, with slots of its own."""
        self._attempt += 1
        self.plan = plan
        self._execution = self._checkpoints.execution = Execution(plan, start)
        # Whether anything has happened since the last checkpoint.
        self._changed = start.epoch > 0
        self._has_regions = region_of(plan, plan.vertices[0].head.id) is not None
        self._remember_cut()
        with self._status_lock:
            self._runner = self._engine.runner(plan, self._attempt)
        self._runner.open()

    # --- failure

    def _run_and_restart(self) -> None:
        error: Exception | None = None
        while True:
            try:
                if error is not None:
                    self._restart_after(error)
                error = None
                self._run()
                return
            except Exception as e:
                if self._cancel.is_set() or e is error:
                    raise
                error = e

    def _restart_after(self, error: Exception) -> None:
        """Go back to the last checkpoint, if the restart strategy allows."""
        delay = self._options.restart.failed(self._clock())
        if delay is None or isinstance(error, InvalidProgramError):
            # The caller knows by this that there is no restart.
            raise error
        self._become(JobStatus.RESTARTING)
        self.restarts += 1
        sys.stdout.write(getattr(error, "printed", ""))
        log.warning(
            "job '%s' has failed and restarts in %g s (restart %d):\n%s",
            self.plan.settings.job_name,
            delay,
            self.restarts,
            error,
        )
        assert self._runner is not None
        try:
            self._runner.release()
        except Exception as e:
            # No harm: whatever is left of the failed execution writes under names that nobody reads.
            log.debug("the slots of the failed execution could not be ended: %s", e)
        if self._cancel.wait(delay):
            raise error
        self._checkpoints.settle_all()
        self._go_back(error)
        self._become(JobStatus.RUNNING)

    def _go_back(self, error: Exception) -> None:
        region = None
        if self._last_cut is not None:
            region = region_of(self.plan, getattr(error, "operator_id", None))
        operators = None if region is None else operators_in(self.plan, region)
        coordinator = self._checkpoints.coordinator
        target = coordinator.failed(self._clock(), operators).checkpoint
        if target is not None and _is_damaged(error):
            damaged, target = target, coordinator.give_up(target)
            log.warning(
                "checkpoint %d cannot be read; the job goes back to %s. Output that counted since then comes again.",
                damaged.id,
                f"checkpoint {target.id}" if target else "its beginning",
            )
        if self._options.checkpoints.mode is CheckpointingMode.AT_MOST_ONCE and target is not None:
            region = operators = None
        back = self._start_from(target)
        if region is not None and self._last_cut is not None:
            # The others only run the epoch again that failed for all.
            others = restore(self._last_cut, self.plan, None)
            back = combine(self.plan, region, back, others)
        # Before any output is aborted that one of them names.
        self._store.discard_all_but({c.id for c in coordinator.retained()})
        self._recover(target, operators)
        self._execute(self.plan, back)
        self._store.sweep_all(self._checkpoints.needed_files())

    def _recover(self, checkpoint: Checkpoint | None, operators: Collection[str] | None) -> None:
        """Commit the output that a checkpoint names, and abort all other; of all sinks, or of some."""
        if checkpoint is None:
            self._output.recover({}, self.plan.settings.job_id, operators)
        else:
            self._output.recover(checkpoint.cut.committables, checkpoint.cut.job_id, operators)
        self._checkpoints.coordinator.wait(self._output.waiting())

    def _start_from(self, checkpoint: Checkpoint | None) -> Start:
        if checkpoint is None:
            return Start(self._execution.epoch)
        origin = self._options.restore
        if origin is not None and checkpoint.cut is origin.manifest.snapshot:
            return restore(checkpoint.cut, self.plan, origin.state_url, origin.allow_non_restored)
        return restore(checkpoint.cut, self.plan, None)

    # --- epochs

    def _run(self) -> None:
        while not self._cancel.is_set() and not self._execution.is_finished and not self._stopped:
            self._serve_requests()
            if self._stopped:
                break
            self._checkpoints.settle()
            started = self._clock()
            shares, limited = self._execution.poll(self._options.sizer.budget, started)
            running = self._execution.running_sources()
            ending = frozenset(v for v, s in running.items() if s.is_finished())
            due = self._checkpoints.coordinator.next_due() <= started and (self._has_news or bool(shares))
            if not shares and not ending and not due and self._next_wake() > started:
                self._wait_for_input()
                continue
            last = len(ending) == len(running) and self._options.checkpoints.enabled
            reports = self._run_epoch(shares, ending, checkpoint=due or last)
            seconds = self._clock() - started
            self._learn(seconds, limited, reports)
            if not limited and not self._execution.is_finished:
                # Nothing waits: let input gather for the rest of the buffer timeout.
                self._wait(max(0.0, self._options.buffer_timeout - seconds))
        if not self._cancel.is_set():
            self._checkpoints.settle_all()
            self._commit_rest()
            self._finish_output()

    @property
    def _has_news(self) -> bool:
        """Whether there is a reason to take a checkpoint."""
        return self._changed or self._output.wants_checkpoints

    def _run_epoch(
        self,
        shares: Shares,
        ending: frozenset[int],
        checkpoint: bool,
        flush: bool = False,
        savepoint: str | None = None,
    ) -> list[SlotReport]:
        """Run one epoch; when it comes back, all it did counts."""
        fault_point("driver.before-epoch")
        assert self._runner is not None
        options, coordinator = self._options.checkpoints, self._checkpoints.coordinator
        taken = None
        if options.enabled and options.mode is CheckpointingMode.AT_MOST_ONCE:
            self._note_position()
        elif checkpoint:
            taken = coordinator.trigger(self._clock())
        latest = coordinator.latest()
        tasks = self._execution.tasks(
            shares,
            ending,
            checkpoint=taken.id if taken is not None else self._execution.epoch if savepoint else None,
            flush=flush or taken is not None,
            complete=taken is not None and options.incremental is False,
            savepoint=savepoint,
            completed=latest.id if latest is not None else 0,
        )
        reports = self._runner.run(tasks)
        fault_point("driver.before-ack")
        self._take_reports(reports)
        fault_point("driver.after-ack")
        if taken is not None:
            self._changed = False
            self._checkpoints.taken(taken)
        elif not options.enabled:
            for source in self._execution.sources.values():
                source.committed(source.snapshot())
        self._remember_cut()
        return reports

    def _remember_cut(self) -> None:
        """Where parts of the job can fail alone, know what the others go on from."""
        whole = self._has_regions and self._execution.owns_its_state
        self._last_cut = self._execution.snapshot() if whole else None

    def _note_position(self) -> None:
        """At most once: what is about to be processed counts as processed from here on."""
        if not self._execution.owns_its_state:
            # A snapshot would be without the state: an epoch without input makes it the job's own.
            assert self._runner is not None
            self._take_reports(self._runner.run(self._execution.tasks({}, frozenset())))
        coordinator = self._checkpoints.coordinator
        before = coordinator.latest()
        self._checkpoint_at_once()
        while coordinator.latest() is before:
            self._checkpoint_again()

    def _commit_rest(self) -> None:
        """The last checkpoint may have failed: all output must count all the same."""
        while self._checkpoints.coordinator.has_staged():
            self._checkpoint_again()

    def _finish_output(self) -> None:
        """Let no output wait that has been committed."""
        self._output.finish()
        self._checkpoints.coordinator.wait(self._output.waiting())

    def _checkpoint_again(self) -> None:
        """Take another checkpoint of where the job stands, as soon as one is due."""
        while not self._cancel.is_set() and (left := self._checkpoints.coordinator.next_due() - self._clock()) > 0:
            self._wait(left)
        if self._cancel.is_set():
            raise JobCancelledError(f"Job '{self.plan.settings.job_name}' was cancelled.")
        self._checkpoint_at_once()

    def _checkpoint_at_once(self) -> None:
        """Take a checkpoint of where the job stands, without an epoch."""
        self._checkpoints.taken(self._checkpoints.coordinator.trigger(self._clock()))
        self._checkpoints.settle_all()

    def _take_reports(self, reports: list[SlotReport]) -> None:
        """Everything the epoch did counts from here on."""
        reports.sort(key=lambda r: (r.level, r.slot))
        for slot_report in reports:
            if slot_report.printed:
                sys.stdout.write(slot_report.printed)
        written, replaced = self._execution.acknowledge(reports)
        self._changed = True
        self._store.wrote(written)
        self.progress.add(reports)
        at_once: dict[str, list[tuple[int, Any]]] = {}
        options = self._options.checkpoints
        waits = options.enabled and options.mode is CheckpointingMode.EXACTLY_ONCE
        for report in (r for slot in reports for r in slot.subtasks):
            for operator, committable in report.committables.items():
                if waits and self._output.waits(operator):
                    self._checkpoints.coordinator.stage(operator, report.subtask, committable)
                else:
                    at_once.setdefault(operator, []).append((report.subtask, committable))
        if at_once:
            self._output.commit(at_once)
            self._checkpoints.coordinator.wait(self._output.waiting())
        if replaced:
            self._checkpoints.sweep()

    def _learn(self, seconds: float, limited: bool, reports: list[SlotReport]) -> None:
        subtasks = [r for slot in reports for r in slot.subtasks]
        read = max((r.records_in for r in subtasks if r.vertex in self._execution.sources), default=0)
        sent = max((r.bytes_out for r in subtasks), default=0)
        self._options.sizer.finished(seconds, limited, read, sent)
        self.progress.epoch_took(seconds)

    # --- waiting

    def _wait(self, seconds: float) -> None:
        """Wait, but no longer than until somebody wants something."""
        if seconds > 0:
            self._woken.wait(seconds)
        self._woken.clear()

    def _wait_for_input(self) -> None:
        now = self._clock()
        waking = min((s.next_poll(now) for s in self._execution.running_sources().values()), default=math.inf)
        due = self._checkpoints.coordinator.next_due() if self._has_news else math.inf
        self._wait(max(0.0, min(waking, due, self._next_wake()) - now))

    def _next_wake(self) -> float:
        wake = self._execution.next_wake()
        return math.inf if wake is None else wake / 1000

    # --- requests

    def _serve_requests(self) -> None:
        while not self._cancel.is_set() and not self._stopped and (request := self._requests.take()) is not None:
            try:
                self._serve(request)
            except BaseException as e:
                refuse(request, e)
                if not isinstance(e, (InvalidProgramError, RequestFailedError)):
                    raise

    def _serve(self, request: Request) -> None:
        if isinstance(request, RescaleRequest):
            self._rescale(request.parallelism)
            request.done.set_result(None)
        elif isinstance(request, CheckpointRequest):
            request.done.set_result(self._checkpoint_now())
        else:
            request.done.set_result(self._take_savepoint(request))
            self._stopped = request.stop

    def _checkpoint_now(self) -> str:
        if not self._options.checkpoints.enabled:
            raise InvalidProgramError(
                "The job takes no checkpoints: set execution.checkpointing.interval, or take a savepoint."
            )
        return self._checkpoints.locations[self._run_checkpoint(frozenset()).id]

    def _run_checkpoint(self, ending: frozenset[int], savepoint: str | None = None) -> Checkpoint:
        """Run an epoch without input and wait until its checkpoint is complete."""
        coordinator = self._checkpoints.coordinator
        before = coordinator.latest()
        self._run_epoch({}, ending, checkpoint=True, flush=True, savepoint=savepoint)
        self._checkpoints.settle_all()
        latest = coordinator.latest()
        if latest is None or latest is before:
            raise RequestFailedError(f"The checkpoint failed: {coordinator.history[-1].reason}")
        return latest

    def _take_savepoint(self, request: SavepointRequest) -> str:
        settings = self.plan.settings
        location = f"{request.directory.rstrip('/')}/savepoint-{settings.job_id[:6]}-{uuid.uuid4().hex[:12]}"
        ending = frozenset(self._execution.running_sources()) if request.drain else frozenset()
        # What was staged counts before the savepoint is complete, so that the savepoint need not name it.
        if self._options.checkpoints.enabled:
            self._run_checkpoint(ending, location)
        else:
            self._run_epoch({}, ending, checkpoint=False, flush=True, savepoint=location)
        self._finish_output()
        snapshot = self._execution.savepoint()
        manifest = Manifest("savepoint", snapshot.epoch, int(self._clock() * 1000), snapshot, "")
        return self._store.write_savepoint(location, manifest)

    def _rescale(self, parallelism: int) -> None:
        plan = self._replan(parallelism)
        self._run_epoch({}, frozenset(), self._options.checkpoints.enabled, flush=True)
        start = restore(self._execution.snapshot(), plan, None)
        before = self._runner
        self._execute(plan, start)
        assert before is not None
        before.release()
        # Releasing may need Spark's settings of this thread, which the new slots must have.
        assert self._runner is not None
        self._runner.open()

    def _refuse_requests(self) -> None:
        name = self.plan.settings.job_name
        while (request := self._requests.take()) is not None:
            refuse(request, MillstreamError(f"Job '{name}' is not running: it is {self._status.name}."))

    # --- the end

    def _shut_down(self, outcome: JobStatus) -> None:
        """Leave nothing behind: slots, sources, sinks, files."""
        if outcome is not JobStatus.FINISHED:
            self._become(JobStatus.CANCELLING if outcome is JobStatus.CANCELED else JobStatus.FAILING)
        steps: list[Callable[[], None]] = []
        if self._runner is not None:
            steps.append(self._runner.release)
        if hasattr(self, "_execution"):
            if outcome is not JobStatus.FINISHED:
                # What was committed counts, and shall not wait for somebody who may never come.
                steps += [self._output.finish, self._abort_staged]
            steps += [s.close for s in self._execution.sources.values()]
            steps += self._output.closers()
            steps.append(lambda: self._leave_checkpoints(outcome))
        steps.append(self._on_end)
        for step in steps:
            try:
                step()
            except Exception as e:
                # The job's own outcome is what the user must hear; this is only what was left behind.
                log.warning("while ending job '%s': %s", self.plan.settings.job_name, e)

    def _abort_staged(self) -> None:
        """The job ends before its time: output that no checkpoint names will never count."""
        coordinator = self._checkpoints.coordinator
        # Nobody must start from a checkpoint whose output is aborted. Where that is not sure, the output is left to
        # whoever goes on with the job.
        self._checkpoints.settle_all(_LAST_PATIENCE)
        target = coordinator.failed(self._clock()).checkpoint
        self._store.discard_all_but({c.id for c in coordinator.retained()})
        self._recover(target, None)

    def _leave_checkpoints(self, outcome: JobStatus) -> None:
        """Delete the job's checkpoints, or leave those that are wanted."""
        if outcome is JobStatus.FINISHED:
            self._checkpoints.drop_claimed()
        if not _outlive(self._options.checkpoints.retention, outcome):
            self._store.remove()
            return
        self._checkpoints.clean_up()
        self._store.sweep_all(self._checkpoints.stored_files())
        self._store.release()

    def _finish(self, outcome: JobStatus, error: BaseException | None, started: float) -> None:
        settings = self.plan.settings
        self._become(outcome)
        if outcome is JobStatus.CANCELED:
            self.result.set_exception(
                JobCancelledError(f"Job '{settings.job_name}' ({settings.job_id}) was cancelled.")
            )
            return
        if error is not None:
            sys.stdout.write(getattr(error, "printed", ""))
            self.result.set_exception(error)
            return
        self.result.set_result(
            JobExecutionResult(
                settings.job_id,
                settings.job_name,
                int((self._clock() - started) * 1000),
                self.progress.records_in(v.id for v in self.plan.vertices if v.is_source),
                self.progress.epochs,
                self.progress.metrics(),
            )
        )

    def _become(self, status: JobStatus) -> None:
        with self._status_lock:
            if self._status is status:
                return
            if not self._status.may_become(status):
                raise AssertionError(f"a job cannot go from {self._status.name} to {status.name}")
            self._status = status


def _outlive(retention: ExternalizedCheckpointRetention, outcome: JobStatus) -> bool:
    """Tell whether checkpoints stay when a job ends so."""
    if outcome is JobStatus.CANCELED:
        return retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    return outcome is JobStatus.FAILED and retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS


def _is_damaged(error: Exception) -> bool:
    return isinstance(error, DamagedStateError) or bool(getattr(error, "damaged", False))
