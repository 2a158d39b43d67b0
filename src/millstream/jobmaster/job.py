"""The job master: carries out the instructions of the job machine on the job's thread.

`JobMaster.run` passes each event to the machine and carries out the instructions that it returns. `_HANDLERS`, at the
end of the class, has the method for each instruction; most return an event with their result.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.origin import delete_origin
from millstream.checkpoint.storage import absolute_url
from millstream.checkpoint.store import CheckpointStore, is_alive
from millstream.common.aliases import Json
from millstream.common.dispatch import MethodDispatch
from millstream.common.errors import DeposedError, JobCancelledError, JobExecutionError
from millstream.common.faults import fault_point
from millstream.common.job_execution_result import JobExecutionResult
from millstream.jobmaster import output_listeners
from millstream.jobmaster.engine import Engine, EpochOverdue, EpochRunner
from millstream.jobmaster.leases import CheckpointLeases, Lease
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.job_machine import JobMachine
from millstream.jobmaster.machine.requests import Request, RequestFailedError, SavepointRequest
from millstream.jobmaster.machine.view import JobView
from millstream.jobmaster.mailbox import JobClock, Mailbox, ThreadMailbox, timeout_until
from millstream.jobmaster.monitors import EpochWatchdog, SlotMonitor
from millstream.jobmaster.sink_committers import SinkCommitters
from millstream.jobmaster.source_coordinators import SourceCoordinators
from millstream.operators.diagnostics.logs import pass_on
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport

log = logging.getLogger("millstream")


class JobMaster:
    """Runs one job: carries out the instructions of the job machine on the job's thread and reports the results."""

    def __init__(
        self,
        machine: JobMachine,
        engine: Engine,
        store: CheckpointStore,
        *,
        replan: Callable[[int], JobPlan],
        claim: Callable[[str], None] = lambda home: None,
        delete_former: Callable[[str], None] = lambda home: None,
        is_alive: Callable[[dict[str, Json]], bool] = is_alive,
        on_end: Callable[[], None] = lambda: None,
        write_failure_report: Callable[[i.WriteFailureReport, float], None] = lambda instruction, time: None,
        clock: JobClock | None = None,
        inbox: Mailbox | None = None,
        watch: type[SlotMonitor] = SlotMonitor,
        watchdog: type[EpochWatchdog] = EpochWatchdog,
    ) -> None:
        """Create the master of a job, to be started.

        Args:
            machine: decides what to do.
            engine: runs epochs.
            store: stores checkpoints.
            replan: plans the program for another parallelism.
            claim: makes sure that no other job restores from another checkpoint, given the job's directory.
            delete_former: deletes the checkpoints of earlier drivers, given the job's directory.
            is_alive: returns whether an owner of the job's directory still runs.
            on_end: deletes the job's files on this machine.
            write_failure_report: writes a failure report.
            clock: the job's clock.
            inbox: receives external events.
            watch: counts slots where their number matters.
            watchdog: cancels epochs that do not end.
        """
        self.result: Future[JobExecutionResult] = Future()
        # Callers may stop waiting for the result, but cannot cancel it.
        self.result.set_running_or_notify_cancel()
        self._machine = machine
        self._engine = engine
        self._store = store
        self._replan = replan
        self._claim = claim
        self._delete_former = delete_former
        self._is_alive = is_alive
        self._on_end = on_end
        self._write_report = write_failure_report
        self._clock = clock or JobClock()
        self._inbox = inbox or ThreadMailbox()
        self._instructions: deque[i.Instruction] = deque()
        # The event that stopped the job.
        self._stop_event: e.CancelRequested | e.SuspendRequested | None = None
        self._is_notified = threading.Event()
        self._lock = threading.Lock()
        self._machine_failed = False
        self.leases = CheckpointLeases()
        self._sampled_until = 0.0
        self._runner: EpochRunner | None = None
        self._sources: SourceCoordinators | None = None
        self._output: SinkCommitters | None = None
        self._watchdog = watchdog(self._cancel_epoch)
        self._watch = watch(engine.slots, lambda slots: self._inbox.put(e.SlotsCounted(slots=slots)))

    # --- from other threads

    @property
    def view(self) -> JobView:
        """The current view of the job."""
        return self._machine.view

    def start(self) -> None:
        """Run the job on its own thread."""
        name = f"job-{self.view.job_id[:8]}"
        threading.Thread(target=self._main, name=name, daemon=True).start()

    def cancel(self) -> None:
        """Cancel the job; `result` completes when it has stopped. A job that is already ending keeps its outcome."""
        self._stop(e.CancelRequested())

    def suspend(self, reason: str) -> None:
        """Stop the job without changes on storage, so that the new leader can continue it."""
        self._stop(e.SuspendRequested(reason=reason))

    def leave(self) -> None:
        """Stop the job because this process exits: suspend it if other job managers can continue it."""
        if self._store.is_shared:
            self.suspend("the process of the job is ending")
        else:
            self.cancel()

    def _stop(self, event: e.CancelRequested | e.SuspendRequested) -> None:
        with self._lock:
            if self.view.outcome is not None or self._stop_event is not None:
                return
            self._stop_event = event
            runner = self._runner
        self._inbox.put(event)
        if runner is not None:
            runner.cancel()

    def ask(self, request: Request) -> None:
        """Queue a request to be served between two epochs; its future reports the result."""
        if isinstance(request, SavepointRequest):
            # Slots write there too, and have other working directories.
            request = replace(request, directory=absolute_url(request.directory))
            if (reason := self._store.unwritable(request.directory)) is not None:
                error = f"No savepoint can be written to {request.directory!r}; the job continues. Cause: {reason}"
                request.done.set_exception(RequestFailedError(error))
                return
        self._inbox.put(e.Requested(request=request))
        if self._machine.has_ended or self._machine_failed:
            self._refuse_late()

    def lease_checkpoint(self, seconds: float = math.inf) -> Lease | None:
        """Lease the last complete checkpoint, so that it is not deleted while it is read; None if there is none.

        All leases end with the job.
        """
        return self.leases.take(lambda: self.view.checkpoints.latest, seconds)

    def sample(self, seconds: float) -> None:
        """Sample the stacks of slots for the next seconds; the view has the samples."""
        self._sampled_until = time.monotonic() + seconds

    def _wake(self) -> None:
        """Wake the job: a source has input."""
        if not self._is_notified.is_set():
            self._is_notified.set()
            self._inbox.put(e.InputArrived())

    # --- the job's own thread

    def _main(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._fail_machine(error)
            raise

    def _fail_machine(self, error: BaseException) -> None:
        """Clean up after an error of the job machine itself: refuse requests and release slots."""
        self._machine_failed = True
        for request in self._machine.unanswered():
            self._refuse(i.Refuse(request=request, error=_as_exception(error)))
        self._refuse_late()
        self._watch.stop()
        self._watchdog.stop()
        try:
            self._release_slots(i.ReleaseSlots())
        finally:
            self.result.set_exception(error)

    def run(self) -> None:
        """Run the job to its end."""
        self._handle(e.JobStarted())
        while not self._machine.has_ended or self._instructions:
            if self._instructions:
                self._carry_out(self._instructions.popleft())
                continue
            event = self._inbox.take(timeout_until(self._machine.deadline, self._clock.now()))
            self._handle(e.TimePassed() if event is None else event)
        assert self.result.done()
        self._watch.stop()
        self._watchdog.stop()
        self._refuse_late()

    def _handle(self, event: e.Event) -> None:
        # Instructions of an event come before earlier ones.
        clock = self._clock
        self._instructions.extendleft(reversed(self._machine.handle(event, clock.now(), clock.ahead())))

    def _carry_out(self, instruction: i.Instruction) -> None:
        try:
            event = self._HANDLERS[instruction](self, instruction)
        except (Exception, SystemExit) as error:
            self._drop_rest()
            stopped = self._stop_event if self.view.outcome is None else None
            # A cancelled epoch has not failed.
            event = stopped or e.InstructionFailed(error=_as_exception(error))
        if event is not None:
            self._handle(event)

    def _drop_rest(self) -> None:
        """Drop the remaining instructions, except for answers to requests; fail manifests that were not begun."""
        for dropped in self._instructions:
            if isinstance(dropped, i.WriteManifest):
                self._inbox.put(e.ManifestFailed(checkpoint=dropped.manifest.id, reason="writing it had not begun"))
        self._instructions = deque(x for x in self._instructions if isinstance(x, (i.Answer, i.Refuse, i.Finish)))

    def _refuse_late(self) -> None:
        """Answer requests that arrive after the job has ended."""
        while (event := self._inbox.take(0.0)) is not None:
            if self._machine_failed:
                if isinstance(event, e.Requested):
                    text = f"The job master of '{self.view.job_name}' has failed."
                    self._refuse(i.Refuse(request=event.request, error=JobExecutionError(text)))
                continue
            for instruction in self._machine.handle(event, self._clock.now()):
                self._HANDLERS[instruction](self, instruction)

    # --- an execution

    def _take_directory(self, _: i.ClaimDirectory) -> None:
        self._store.take(self._is_alive)
        self._claim(self._store.storage.url)

    def _count_slots(self, instruction: i.CountSlots) -> e.SlotsCounted:
        return e.SlotsCounted(slots=self._watch.now(instruction.desired))

    def _open_slots(self, instruction: i.OpenSlots) -> e.SlotsOpened:
        self._close_sources(i.CloseSources())
        self._sources = SourceCoordinators(instruction.plan, instruction.positions, self._wake)
        runner = self._engine.runner(instruction.plan, instruction.attempt)
        with self._lock:
            self._runner = runner
        runner.open(partial(self._inbox.put, e.SlotsLost(attempt=instruction.attempt)))
        return e.SlotsOpened(resident=runner.resident_slots, slices=runner.slices)

    def _release_slots(self, instruction: i.ReleaseSlots) -> None:
        if self._runner is None:
            return
        try:
            self._runner.release()
        except Exception as error:
            if instruction.must:
                raise
            log.debug("the slots of the failed execution could not be ended: %s", error)

    def _poll_sources(self, instruction: i.PollSources) -> e.SourcesPolled:
        sources, now = self._opened_sources(), self._clock.now()
        # Clear before polling: later input wakes the job again.
        self._is_notified.clear()
        read = sources.poll(instruction.budgets, now, instruction.running, instruction.ahead)
        poll_again = now if read.split_ranges else sources.next_poll(now, self._clock.now(), instruction.budgets)
        return e.SourcesPolled(
            split_ranges=read.split_ranges,
            limited=read.limited,
            finished=read.finished,
            poll_again=poll_again,
            lags=read.lags,
        )

    def _read_positions(self, _: i.ReadPositions) -> e.PositionsRead:
        return e.PositionsRead(positions=self._opened_sources().positions())

    def _run_epoch(self, instruction: i.RunEpoch) -> None:
        fault_point("driver.before-epoch")
        assert self._runner is not None
        if self._stop_event is not None:
            raise JobCancelledError(f"Job '{self.view.job_name}' was cancelled.")
        tasks = instruction.tasks
        if self._sampled_until > time.monotonic():
            tasks = [replace(task, samples_stacks=True) for task in tasks]
        reports = self._run_watched(self._runner, tasks, instruction.timeout)
        output_listeners.notify(self.view.job_id, reports)
        fault_point("driver.before-ack")
        self._handle(e.EpochFinished(reports=reports))
        fault_point("driver.after-ack")

    def _run_watched(self, runner: EpochRunner, tasks: list[LevelTask], timeout: float) -> list[SlotReport]:
        self._watchdog.begin(timeout)
        try:
            return runner.run(tasks)
        except Exception as error:
            if not self._watchdog.end() or self._stop_event is not None:
                raise
            raise EpochOverdue(f"Epoch {tasks[0].epoch} has not ended within {timeout:g} s") from error
        finally:
            self._watchdog.end()

    def _cancel_epoch(self) -> None:
        """Cancel the running epoch."""
        with self._lock:
            runner = self._runner
        if runner is not None:
            runner.cancel()

    def _confirm_sources(self, instruction: i.ConfirmSources) -> None:
        if instruction.positions is None:
            self._opened_sources().confirm_all(instruction.pending)
        else:
            self._opened_sources().confirm(instruction.positions)

    def _opened_sources(self) -> SourceCoordinators:
        assert self._sources is not None
        return self._sources

    # --- output

    def _open_output(self, instruction: i.OpenOutput) -> e.OutputOpened:
        self._output = SinkCommitters(instruction.plan)
        if instruction.from_scratch:
            self._output.begin()
        return e.OutputOpened(transactional=self._output.transactional)

    def _commit_output(self, instruction: i.CommitOutput) -> e.OutputCommitted:
        self._opened_output().commit(instruction.staged)
        return self._committed(instruction.checkpoint)

    def _recover_output(self, instruction: i.RecoverOutput) -> e.OutputCommitted:
        self._opened_output().recover(instruction.named, instruction.former_job_id, instruction.operators)
        return self._committed()

    def _finish_output(self, _: i.FinishOutput) -> e.OutputCommitted:
        self._opened_output().finish()
        return self._committed()

    def _committed(self, checkpoint: int | None = None) -> e.OutputCommitted:
        output = self._opened_output()
        return e.OutputCommitted(
            checkpoint=checkpoint, unfinished=output.unfinished(), wants_checkpoints=output.wants_checkpoints
        )

    def _opened_output(self) -> SinkCommitters:
        assert self._output is not None
        return self._output

    # --- storage

    def _write_manifest(self, instruction: i.WriteManifest) -> e.Event | None:
        try:
            self._inbox.work(partial(self._write, instruction.manifest))
        except RuntimeError as error:
            # No thread is available.
            return e.ManifestFailed(checkpoint=instruction.manifest.id, reason=str(error))
        return None

    def _write(self, manifest: Manifest) -> e.Event:
        """Write a manifest in the background."""
        try:
            return e.ManifestWritten(checkpoint=manifest.id, location=self._store.write(manifest))
        except Exception as error:
            deposed = isinstance(error, DeposedError)
            return e.ManifestFailed(checkpoint=manifest.id, reason=str(error) or repr(error), deposed=deposed)

    def _write_savepoint(self, instruction: i.WriteSavepoint) -> e.SavepointWritten:
        return e.SavepointWritten(location=self._store.write_savepoint(instruction.location, instruction.manifest))

    def _discard_checkpoints(self, instruction: i.DiscardCheckpoints) -> e.CheckpointsDiscarded:
        fault_point("driver.before-clean-up")
        discarded = set()
        # Leased checkpoints are deleted with the next ones.
        for checkpoint in sorted(instruction.checkpoints - self._leased()):
            try:
                self._store.discard(checkpoint)
            except Exception as error:
                log.warning("checkpoint %d could not be deleted yet: %s", checkpoint, error)
                continue
            discarded.add(checkpoint)
            fault_point("driver.in-clean-up")
        fault_point("driver.after-clean-up")
        return e.CheckpointsDiscarded(checkpoints=frozenset(discarded))

    def _discard_others(self, instruction: i.DiscardOthers) -> None:
        # A checkpoint newer than the target of the rollback must not remain, even if it is leased.
        leased = {number for number in self._leased() if number < max(instruction.retained, default=0)}
        self._store.discard_all_but(instruction.retained | leased)

    def _leased(self) -> frozenset[int]:
        """Return the leased checkpoints; none when the job ends, since nothing would delete them later."""
        return self.leases.held() if self.view.outcome is None else frozenset()

    def _delete_state(self, instruction: i.DeleteState) -> None:
        self._try_delete("state files", partial(self._store.delete_state, instruction.names))

    def _sweep_state(self, instruction: i.SweepState) -> None:
        self._try_delete("state files", partial(self._store.sweep_state, instruction.needed))

    def _delete_origin(self, instruction: i.DeleteOrigin) -> e.OriginDeleted | None:
        origin = instruction.origin
        text = "checkpoints of earlier drivers" if origin is None else f"{origin.location}, from which the job started,"

        def delete() -> None:
            if origin is not None:
                self._store.withdraw(origin.location)
                delete_origin(origin, self._store.options)
            self._store.withdraw_former()
            self._delete_former(self._store.storage.url)

        deleted = self._try_delete(text, delete)
        return e.OriginDeleted() if deleted else None

    def _try_delete(self, label: str, delete: Callable[[], None]) -> bool:
        """Delete files that are no longer needed; return whether that succeeded. Remaining files do no harm."""
        try:
            delete()
        except Exception as error:
            log.warning("%s could not be deleted yet: %s", label, error)
            return False
        return True

    def _record_outcome(self, instruction: i.RecordOutcome) -> None:
        self._store.record(instruction.outcome.name, instruction.message)

    def _remove_directory(self, _: i.RemoveDirectory) -> None:
        self._store.remove()
        fault_point("driver.after-removal")

    def _release_directory(self, _: i.ReleaseDirectory) -> None:
        self._store.release()

    # --- requests and logs

    def _replan_job(self, instruction: i.Replan) -> e.Replanned:
        return e.Replanned(plan=self._replan(instruction.parallelism))

    def _answer(self, instruction: i.Answer) -> None:
        if not instruction.request.done.done():
            instruction.request.done.set_result(instruction.result)

    def _refuse(self, instruction: i.Refuse) -> None:
        if not instruction.request.done.done():
            instruction.request.done.set_exception(instruction.error)

    def _print(self, instruction: i.Print) -> None:
        try:
            sys.stdout.write(instruction.text)
        except (OSError, ValueError) as error:
            # Standard output is closed, or has another encoding: the epoch need not fail.
            log.warning("the output of user code could not be printed: %s", error)

    def _log(self, instruction: i.Log) -> None:
        for line in instruction.lines:
            pass_on(line)

    def _write_failure_report(self, instruction: i.WriteFailureReport) -> None:
        try:
            self._write_report(instruction, self._clock.now())
        except Exception as error:
            # The job does not depend on its failure reports.
            log.warning("failure %d of job '%s' cannot be replayed: %s", instruction.number, self.view.job_name, error)

    def _warn(self, instruction: i.Warn) -> None:
        log.warning("%s", instruction.text)

    # --- the end

    def _close_sources(self, _: i.CloseSources) -> None:
        if self._sources is not None:
            self._sources.close()
            self._sources = None

    def _close_output(self, _: i.CloseOutput) -> None:
        if self._output is not None:
            self._output.close()

    def _clean_up(self, _: i.CleanUp) -> None:
        self._on_end()

    def _finish(self, instruction: i.Finish) -> None:
        if instruction.error is not None:
            self.result.set_exception(instruction.error)
        else:
            assert instruction.result is not None
            self.result.set_result(instruction.result)

    # The handler of each instruction; it may return an event.
    _HANDLERS = (
        MethodDispatch["JobMaster", [], "e.Event | None"]()
        .on(i.ClaimDirectory, _take_directory)
        .on(i.OpenOutput, _open_output)
        .on(i.CountSlots, _count_slots)
        .on(i.OpenSlots, _open_slots)
        .on(i.ReleaseSlots, _release_slots)
        .on(i.PollSources, _poll_sources)
        .on(i.ReadPositions, _read_positions)
        .on(i.RunEpoch, _run_epoch)
        .on(i.ConfirmSources, _confirm_sources)
        .on(i.CommitOutput, _commit_output)
        .on(i.RecoverOutput, _recover_output)
        .on(i.FinishOutput, _finish_output)
        .on(i.WriteManifest, _write_manifest)
        .on(i.WriteSavepoint, _write_savepoint)
        .on(i.DiscardCheckpoints, _discard_checkpoints)
        .on(i.DiscardOthers, _discard_others)
        .on(i.DeleteState, _delete_state)
        .on(i.SweepState, _sweep_state)
        .on(i.DeleteOrigin, _delete_origin)
        .on(i.RecordOutcome, _record_outcome)
        .on(i.RemoveDirectory, _remove_directory)
        .on(i.ReleaseDirectory, _release_directory)
        .on(i.Replan, _replan_job)
        .on(i.Answer, _answer)
        .on(i.Refuse, _refuse)
        .on(i.Print, _print)
        .on(i.Log, _log)
        .on(i.Warn, _warn)
        .on(i.WriteFailureReport, _write_failure_report)
        .on(i.CloseSources, _close_sources)
        .on(i.CloseOutput, _close_output)
        .on(i.CleanUp, _clean_up)
        .on(i.Finish, _finish)
    )


def _as_exception(error: BaseException) -> Exception:
    """Return the exception that ends the job: sys.exit() in a sink or source fails the job like any other error."""
    return error if isinstance(error, Exception) else JobExecutionError(f"user code ended the program: {error!r}")
