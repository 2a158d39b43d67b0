"""The job machine, driven by events, without clock, thread, file or engine."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any

import pytest

from millstream.checkpoint.options import CheckpointOptions
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.errors import InvalidProgramError, JobCancelledError, JobExecutionError, MillstreamError
from millstream.common.execution_state import ExecutionState
from millstream.common.job_status import JobStatus
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobmaster.engine import QUICK, SHUFFLED, EpochFailed, EpochOverdue
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.coordinator import CheckpointStatus
from millstream.jobmaster.machine.job_machine import JobMachine
from millstream.jobmaster.machine.options import JobOptions, ScalingOptions
from millstream.jobmaster.machine.parallelism_bounds import Bounds
from millstream.jobmaster.machine.requests import (
    CheckpointRequest,
    Request,
    RequirementsRequest,
    RescaleRequest,
    SavepointRequest,
)
from millstream.jobmaster.machine.restart import FixedDelay
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport, SubtaskReport
from millstream.operators.runtime.runtime_snapshot import encode
from millstream.service.diagnosis import explanations
from millstream.testing import CollectSink, LocalJob

EVERY_EPOCH = CheckpointOptions(enabled=True, interval=0.0, timeout=60.0)


def plan_of(parallelism: int = 1) -> JobPlan:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    numbers = env.from_collection([1, 2, 3]).uid("numbers")
    numbers.key_by(lambda x: x).reduce(lambda a, b: a + b).uid("sum").sink_to(CollectSink()).uid("sink")
    return LocalJob(env).plan


class Told:
    """A job machine and the actions it requested since the last check."""

    def __init__(self, *, plan: JobPlan | None = None, resident_slots: bool = False, **options: Any) -> None:
        self.plan = plan or plan_of()
        self.resident_slots = resident_slots
        self.now = 100.0
        self.options = JobOptions(**{"checkpoints": EVERY_EPOCH, **options})
        self.machine = JobMachine(self.plan, self.options, self.now)
        self.asked: list[i.Instruction] = []
        self.sink = next(n.id for v in self.plan.vertices for n in v.nodes if n.uid == "sink")

    def tell(self, event: e.Event) -> list[i.Instruction]:
        """Send an event; answer actions with a single possible answer until a decision is needed."""
        todo = self.machine.handle(event, self.now)
        asked = []
        while todo:
            instruction = todo.pop(0)
            asked.append(instruction)
            answer = self._answer(instruction)
            if answer is not None:
                todo = self.machine.handle(answer, self.now) + todo
        self.asked += asked
        return asked

    def _answer(self, instruction: i.Instruction) -> e.Event | None:
        match instruction:
            case i.OpenOutput():
                return e.OutputOpened(transactional=frozenset({self.sink}))
            case i.OpenSlots():
                return e.SlotsOpened(resident=self.resident_slots, slices=QUICK)
            case i.ReadPositions():
                return e.PositionsRead(positions={self.plan.vertices[0].head.id: b"here"})
            case i.CommitOutput():
                return e.OutputCommitted(checkpoint=instruction.checkpoint, waiting={}, wants_checkpoints=False)
            case i.RecoverOutput() | i.FinishOutput():
                return e.OutputCommitted(waiting={}, wants_checkpoints=False)
            case i.DiscardCheckpoints():
                return e.CheckpointsDiscarded(checkpoints=instruction.checkpoints)
        return None

    def go_on(self) -> list[i.Instruction]:
        """Advance the clock until an action is requested, or no deadline is left."""
        for _ in range(20):
            if self.machine.deadline == math.inf or self.machine.is_over:
                return []
            self.now = max(self.now, self.machine.deadline)
            if asked := self.tell(e.TimePassed()):
                return asked
        raise AssertionError("the machine asks for nothing")

    def until(self, kind: type) -> Any:
        """Advance the clock until an action of a type is requested."""
        for _ in range(30):
            for instruction in self.go_on():
                if isinstance(instruction, kind):
                    return instruction
        raise AssertionError(f"{kind.__name__} was not asked for: {self.asked}")

    # --- ways of a job

    def start(self) -> None:
        self.tell(e.JobStarted())
        self.until(i.PollSources)

    def poll(self, finished: bool = False) -> i.RunEpoch:
        """The sources have something to read."""
        sources = frozenset({self.plan.vertices[0].id})
        found = self.tell(
            e.SourcesPolled(
                split_ranges={self.plan.vertices[0].id: {0: ["share"]}},
                limited=True,
                finished=sources if finished else frozenset(),
                poll_again=self.now,
            )
        )
        return next(x for x in found if isinstance(x, i.RunEpoch))

    def report(
        self,
        run: i.RunEpoch,
        staged: str | None = None,
        ended: bool = False,
        unread: bool = False,
        waiting: bool = False,
        **about: Any,
    ) -> None:
        """Report an epoch; `about` is what the last vertex says."""
        slot = reported(self.plan, run.tasks, self.sink, staged, ended, unread, waiting)
        if "source_carries" in about:
            slot.subtasks[0] = replace(slot.subtasks[0], runtime_snapshot=about.pop("source_carries"))
        about["ended"] = about.pop("last_ended", slot.subtasks[-1].ended)
        slot.subtasks[-1] = replace(slot.subtasks[-1], **about)
        self.tell(e.EpochFinished(reports=[slot]))

    def found_nothing(self, finished: bool = False) -> list[i.Instruction]:
        """Poll the sources, which have nothing to read."""
        ended = frozenset({self.plan.vertices[0].id} if finished else ())
        return self.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=ended, poll_again=math.inf))

    def epoch(self, staged: str | None = None, finished: bool = False) -> None:
        self.report(self.poll(finished), staged, finished)


def reported(
    plan: JobPlan,
    tasks: list[LevelTask],
    sink: str,
    staged: str | None,
    ended: bool,
    unread: bool = False,
    waiting: bool = False,
) -> SlotReport:
    """Return an epoch report; some assigned input may be unread, or pending behind the exchange."""
    left = partial(encode, watermark=0, idle=False, ended=False, channels={}, operators={}, watermarks={})
    carried = {v.id: b"" for v in plan.vertices}
    for v in plan.vertices:
        if v.is_source and unread:
            carried[v.id] = left(pending_ranges=[(None, "share", 1)])
        if v.in_edges and waiting:
            carried[v.id] = left(pending_blocks=[((v.in_edges[0].id, 0), 0, (False, False, [b"block"]))])
    subtasks = [
        SubtaskReport(
            vertex=v.id,
            subtask=0,
            records_in=1,
            records_out=1,
            bytes_out=1,
            state_files={},
            state_bytes=0,
            committables={sink: staged} if staged and any(n.id == sink for n in v.nodes) else {},
            watermark=0,
            metrics={},
            runtime_snapshot=carried[v.id],
            next_wake=None,
            aligned={},
            ended=ended and (v.is_source or not waiting),
            tables={},
            exported={},
        )
        for v in plan.vertices
    ]
    return SlotReport(level=0, slot=0, subtasks=subtasks, printed=f"epoch {tasks[0].epoch}\n")


def kinds(asked: list[i.Instruction]) -> list[str]:
    return [type(x).__name__ for x in asked]


def staged_of(told: Told) -> dict[str, Any]:
    return {told.sink: [(0, "output")]}


def test_job_machine_opens_in_order() -> None:
    told = Told()
    assert kinds(told.tell(e.JobStarted())) == ["ClaimDirectory", "OpenOutput"]
    assert told.machine.view.status is JobStatus.CREATED
    assert kinds(told.go_on()) == ["OpenSlots"]
    assert {t.state for t in told.machine.view.tasks.values()} == {ExecutionState.DEPLOYING}
    told.go_on()
    assert told.machine.view.status is JobStatus.RUNNING
    assert {t.state for t in told.machine.view.tasks.values()} == {ExecutionState.INITIALIZING}


def test_job_machine_commits_output_after_the_manifest_is_written() -> None:
    told = Told()
    told.start()
    told.epoch("output")
    write = told.until(i.WriteManifest)
    assert not [x for x in told.asked if isinstance(x, i.CommitOutput)]
    asked = told.tell(e.ManifestWritten(checkpoint=write.manifest.id, location="there"))
    assert asked[0] == i.CommitOutput(staged=staged_of(told), checkpoint=1)
    confirm = asked[1]
    assert isinstance(confirm, i.ConfirmSources) and list((confirm.positions or {}).values()) == [b"here"]
    latest = told.machine.view.checkpoints.latest
    assert latest is not None and (latest.id, latest.location) == (1, "there")


def test_job_machine_slot_loss_waits_for_the_pending_manifest() -> None:
    """The job goes back only when it is known whether the manifest is there; then its output counts."""
    told = Told(restart=FixedDelay(1, 5.0))
    told.start()
    told.epoch("output")
    told.until(i.WriteManifest)
    # The wait is short: the next epoch begins.
    told.until(i.PollSources)
    told.poll()
    asked = told.tell(e.InstructionFailed(error=EpochFailed("a slot died")))
    assert kinds(asked) == ["Warn", "ReleaseSlots"] and told.machine.view.status is JobStatus.RESTARTING
    assert told.machine.deadline == told.now + 5.0
    # The delay has passed, but there is no answer yet.
    told.now += 5.0
    assert told.tell(e.TimePassed()) == []
    assert told.machine.deadline > told.now
    asked = told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    assert asked[0] == i.CommitOutput(staged=staged_of(told), checkpoint=1)
    asked = told.go_on()
    assert kinds(asked) == ["DiscardOthers", "RecoverOutput", "OpenSlots", "SweepState"]
    discard, recover, opened = asked[:3]
    assert isinstance(discard, i.DiscardOthers) and discard.kept == {1}
    assert isinstance(recover, i.RecoverOutput) and set(recover.named) == {told.sink}
    assert isinstance(opened, i.OpenSlots) and opened.attempt == 1
    assert list(opened.positions.values()) == [b"here"]


def test_job_machine_restart_repeats_a_failed_commit() -> None:
    told = Told(restart=FixedDelay(1, 0.0))
    told.start()
    told.epoch("output")
    told.until(i.WriteManifest)
    [commit, *_] = told.machine.handle(e.ManifestWritten(checkpoint=1, location="there"), told.now)
    assert isinstance(commit, i.CommitOutput)
    told.tell(e.InstructionFailed(error=JobExecutionError("the sink is away")))
    recover = told.until(i.RecoverOutput)
    assert set(recover.named) == {told.sink}


def test_job_machine_finishes_after_all_output_is_committed() -> None:
    told = Told()
    told.start()
    told.epoch("output", finished=True)
    told.until(i.WriteManifest)
    # It is lost: another one is taken, without an epoch.
    tolerant = Told(checkpoints=CheckpointOptions(enabled=True, interval=0.0, timeout=60.0, tolerable_failures=3))
    tolerant.start()
    tolerant.epoch("output", finished=True)
    tolerant.until(i.WriteManifest)
    tolerant.tell(e.ManifestFailed(checkpoint=1, reason="the disk is full"))
    again = tolerant.until(i.WriteManifest)
    assert again.manifest.id == 2 and set(again.manifest.snapshot.committables) == {tolerant.sink}
    tolerant.tell(e.ManifestWritten(checkpoint=2, location="there"))
    finish = tolerant.until(i.Finish)
    assert finish.error is None and finish.result.records_in == 1
    view = tolerant.machine.view
    assert view.status is JobStatus.FINISHED
    assert {t.state for t in view.tasks.values()} == {ExecutionState.FINISHED}
    assert (view.checkpoints.completed, view.checkpoints.failed) == (1, 1)


def test_job_machine_fails_after_too_many_lost_checkpoints() -> None:
    told = Told()
    told.start()
    told.epoch("output")
    told.until(i.WriteManifest)
    told.tell(e.ManifestFailed(checkpoint=1, reason="the disk is full"))
    finish = told.until(i.Finish)
    assert "the disk is full" in str(finish.error) and told.machine.view.status is JobStatus.FAILED


def test_job_machine_cancel_aborts_after_the_pending_manifest() -> None:
    told = Told()
    told.start()
    told.epoch("output")
    told.until(i.WriteManifest)
    told.tell(e.CancelRequested())
    assert told.machine.view.status is JobStatus.CANCELLING
    assert kinds(told.go_on()) == ["ReleaseSlots"]
    # What goes wrong meanwhile does not end the waiting.
    assert kinds(told.tell(e.InstructionFailed(error=JobExecutionError("no")))) == ["Warn"]
    assert kinds(told.go_on()) == ["FinishOutput"]
    assert told.tell(e.TimePassed()) == []
    assert kinds(told.tell(e.InstructionFailed(error=JobExecutionError("no")))) == ["Warn"]
    assert told.machine.deadline > told.now
    commit, *_ = told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    assert isinstance(commit, i.CommitOutput)
    assert kinds(told.go_on()) == ["DiscardOthers", "RecoverOutput"]
    finish = told.until(i.Finish)
    assert isinstance(finish.error, JobCancelledError)
    assert {t.state for t in told.machine.view.tasks.values()} == {ExecutionState.CANCELED}


def test_job_machine_cancel_keeps_output_when_storage_does_not_answer() -> None:
    told = Told()
    told.start()
    told.epoch("output")
    told.until(i.WriteManifest)
    told.tell(e.CancelRequested())
    told.until(i.Finish)
    assert not [x for x in told.asked if isinstance(x, i.RecoverOutput)]
    assert [x.text for x in told.asked if isinstance(x, i.Warn)][-1].endswith("has not answered for 10 s.")
    # The answer arrives too late to commit anything.
    assert told.tell(e.ManifestWritten(checkpoint=1, location="there")) == []


def test_job_machine_attributes_a_failure_to_its_operator() -> None:
    told = Told()
    told.start()
    told.poll()
    vertex = told.plan.vertices[-1]
    error = EpochFailed("no", operator_id=vertex.head.id, subtask=0, printed="last words\n")
    told.tell(e.InstructionFailed(error=error))
    finish = told.until(i.Finish)
    assert finish.error is error
    assert i.Print(text="last words\n") in told.asked
    view = told.machine.view
    assert view.tasks[vertex.id, 0].state is ExecutionState.FAILED
    assert [(f.message, f.operator) for f in view.failures] == [("no", vertex.head.id)]


def test_job_machine_does_not_retry_program_errors() -> None:
    told = Told(restart=FixedDelay(1_000, 0.0))
    told.start()
    told.poll()
    told.tell(e.InstructionFailed(error=InvalidProgramError("no")))
    told.until(i.Finish)
    assert told.machine.view.status is JobStatus.FAILED


def test_job_machine_at_most_once_checkpoints_before_reading() -> None:
    told = Told(checkpoints=CheckpointOptions(enabled=True, interval=1.0, mode=CheckpointingMode.AT_MOST_ONCE))
    told.start()
    asked = told.tell(
        e.SourcesPolled(
            split_ranges={told.plan.vertices[0].id: {0: ["share"]}},
            limited=True,
            finished=frozenset(),
            poll_again=told.now,
        )
    )
    assert kinds(asked) == ["ReadPositions"]
    write = told.until(i.WriteManifest)
    assert list(write.manifest.snapshot.sources.values()) == [b"here"]
    told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    run = told.until(i.RunEpoch)
    assert run.tasks[0].split_ranges == {told.plan.vertices[0].id: {0: ["share"]}}


REQUESTS: list[Request] = [CheckpointRequest(), SavepointRequest("/there", name="x"), RescaleRequest(2)]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_job_machine_answers_every_request_once(request_: Request) -> None:
    told = Told()
    told.start()
    todo = told.tell(e.Requested(request=request_)) + told.tell(
        e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now + 1)
    )
    while not (answers := [x for x in told.asked if isinstance(x, (i.Answer, i.Refuse))]):
        for asked in todo or told.go_on():
            match asked:
                case i.Replan():
                    told.tell(e.Replanned(plan=plan_of(2)))
                case i.RunEpoch():
                    told.report(asked)
                case i.WriteManifest():
                    told.tell(e.ManifestWritten(checkpoint=asked.manifest.id, location=f"chk-{asked.manifest.id}"))
                case i.WriteSavepoint():
                    told.tell(e.SavepointWritten(location=asked.location))
        todo = [x for x in told.asked[-2:] if isinstance(x, i.RunEpoch)]
    [answer] = answers
    assert isinstance(answer, i.Answer) and answer.request is request_
    match request_:
        case CheckpointRequest():
            assert answer.result == "chk-1"
        case SavepointRequest():
            assert answer.result == f"/there/savepoint-{told.plan.settings.job_id[:6]}-x"
        case RescaleRequest():
            assert {v.parallelism for v in told.machine.view.plan.vertices} == {1, 2}


def test_job_machine_refuses_requests_after_the_end() -> None:
    told = Told()
    told.start()
    waiting, late = CheckpointRequest(), CheckpointRequest()
    told.tell(e.Requested(request=waiting))
    told.tell(e.CancelRequested())
    told.until(i.Finish)
    refused = [x for x in told.asked if isinstance(x, i.Refuse)] + told.tell(e.Requested(request=late))
    assert [x.request for x in refused if isinstance(x, i.Refuse)] == [waiting, late]
    assert all(isinstance(x.error, MillstreamError) for x in refused if isinstance(x, i.Refuse))


def test_job_machine_view_is_immutable() -> None:
    told = Told()
    told.start()
    before = told.machine.view
    epochs, tasks = before.progress.epochs, dict(before.tasks)
    told.epoch("output")
    told.until(i.WriteManifest)
    told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    assert (before.progress.epochs, dict(before.tasks)) == (epochs, tasks) == (0, tasks)
    assert before.checkpoints.completed == 0 and told.machine.view.checkpoints.completed == 1
    assert told.machine.view.progress.epochs == 1
    with pytest.raises(FrozenInstanceError):
        before.epoch = 7  # type: ignore[misc]


# --- input that is left to the next epoch


def test_job_machine_does_not_poll_a_source_with_pending_input() -> None:
    told = Told(checkpoints=CheckpointOptions())
    told.start()
    told.report(told.poll(finished=True), unread=True)
    asked = told.until(i.PollSources)
    assert [x.unread for x in told.asked if isinstance(x, i.ConfirmSources)] == [{told.plan.vertices[0].id}]
    assert asked.budgets == {} and asked.running == {told.plan.vertices[0].id}
    # The source has assigned all splits, but has not finished.
    found = told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=asked.running, poll_again=told.now))
    run = next(x for x in found if isinstance(x, i.RunEpoch))
    assert run.tasks[0].ending == asked.running and run.tasks[0].slice == QUICK.longest
    told.report(run, ended=True)
    told.until(i.FinishOutput)


def test_job_machine_polls_a_source_after_its_backlog_by_its_rate() -> None:
    told = Told(buffer_timeout=100.0)
    told.start()
    told.report(told.poll(), unread=True)
    asked = told.until(i.PollSources)
    found = told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=math.inf))
    # Two records took twice as long as a slice.
    before = told.now = told.now + 2 * QUICK.longest
    told.report(next(x for x in found if isinstance(x, i.RunEpoch)))
    asked = told.until(i.PollSources)
    assert told.now - before < 1 and asked.budgets == {told.plan.vertices[0].id: 1}
    told.epoch()
    assert told.until(i.PollSources).budgets == {told.plan.vertices[0].id: 2}


def test_job_machine_does_not_poll_a_source_with_input_behind_an_exchange() -> None:
    told = Told(checkpoints=CheckpointOptions())
    told.start()
    told.report(told.poll(), waiting=True)
    asked = told.until(i.PollSources)
    assert asked.budgets == {}
    assert [x.unread for x in told.asked if isinstance(x, i.ConfirmSources)] == [{told.plan.vertices[0].id}]
    # An epoch runs although there is no new input.
    found = told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=math.inf))
    told.report(next(x for x in found if isinstance(x, i.RunEpoch)))
    assert set(told.until(i.PollSources).budgets) == {told.plan.vertices[0].id}


def test_job_machine_runs_until_pending_input_is_processed() -> None:
    told = Told(checkpoints=CheckpointOptions())
    told.start()
    told.report(told.poll(finished=True), ended=True, waiting=True)
    asked = told.until(i.PollSources)
    assert (asked.budgets, asked.running) == ({}, frozenset())
    found = told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=math.inf))
    told.report(next(x for x in found if isinstance(x, i.RunEpoch)), ended=True)
    told.until(i.FinishOutput)


def test_job_machine_does_not_confirm_pending_splits() -> None:
    told = Told()
    told.start()
    told.report(told.poll(), unread=True)
    write = told.until(i.WriteManifest)
    assert list(write.manifest.snapshot.sources.values()) == [b"here"]
    found = told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    assert [x.positions for x in found if isinstance(x, i.ConfirmSources)] == [{}]
    told.until(i.PollSources)
    found = told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now))
    told.report(next(x for x in found if isinstance(x, i.RunEpoch)))
    told.until(i.WriteManifest)
    found = told.tell(e.ManifestWritten(checkpoint=2, location="there"))
    confirm = next(x for x in found if isinstance(x, i.ConfirmSources))
    assert list((confirm.positions or {}).values()) == [b"here"]


def test_job_machine_request_epoch_reads_nothing_unless_it_drains() -> None:
    for drain, seconds in ((False, QUICK.longest), (True, math.inf)):
        told = Told()
        told.start()
        told.report(told.poll(), unread=True)
        told.until(i.PollSources)
        told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now))
        told.tell(e.Requested(request=SavepointRequest("there", stop=True, drain=drain)))
        told.report(next(x for x in reversed(told.asked) if isinstance(x, i.RunEpoch)), unread=True)
        task = told.until(i.RunEpoch).tasks[0]
        assert (task.reads, task.slice) == (drain, seconds)


def test_job_machine_slice_length_follows_engine_and_options() -> None:
    def slices(**options: Any) -> list[float]:
        found = []
        for engine in (QUICK, SHUFFLED):
            told = Told(**options)
            told.start()
            told.tell(e.SlotsOpened(resident=False, slices=engine))
            found.append(told.poll().tasks[0].slice)
            # Epochs are aimed to take most of it.
            assert told.options.sizer.target_seconds == 0.75 * found[-1]
        return found

    assert slices() == [0.2, 1.0]
    assert slices(haste=0.5) == [0.1, 0.5]
    assert slices(haste=0.0) == [0.02, 0.25]
    assert slices(slice=0.3, haste=0.5) == [0.3, 0.3]


def test_job_machine_at_most_once_has_no_slices() -> None:
    once = CheckpointOptions(enabled=True, interval=0.0, mode=CheckpointingMode.AT_MOST_ONCE)
    assert JobOptions(checkpoints=once).slice == math.inf


# --- requests in flight

REQUESTS_IN_FLIGHT = encode(
    watermark=0, idle=False, ended=False, channels={}, operators={}, watermarks={}, requests=True
)


def test_job_machine_polls_async_results_without_input() -> None:
    told = Told()
    told.start()
    # A timer is due much later.
    told.report(told.poll(), poll_after_seconds=0.25, next_wake=int(told.now + 50) * 1000)
    before = told.now
    told.until(i.PollSources)
    assert not told.found_nothing()
    # The checkpoint of that epoch is not answered for, so nothing else is due.
    told.until(i.PollSources)
    assert told.now - before == pytest.approx(0.25)
    assert any(isinstance(x, i.RunEpoch) for x in told.found_nothing())


def test_job_machine_pauses_sources_under_backpressure() -> None:
    told = Told(buffer_timeout=100.0)
    source = told.plan.vertices[0].id
    told.start()
    told.report(told.poll(), unread=True, poll_after_seconds=0.25, at_capacity=True)
    before = told.now
    asked = told.until(i.PollSources)
    assert asked.budgets == {}
    # Neither what is left to read nor their end is a reason for an epoch.
    assert not told.found_nothing(finished=True)
    told.until(i.PollSources)
    assert told.now - before == pytest.approx(0.25)
    run = next(x for x in told.found_nothing(finished=True) if isinstance(x, i.RunEpoch))
    assert run.tasks[0].paused_sources == {source} and run.tasks[1].paused_sources == frozenset()
    told.report(run, unread=True)
    # Capacity is free: pending input is read at once.
    told.until(i.PollSources)
    assert told.now - before < 1
    run = next(x for x in told.found_nothing(finished=True) if isinstance(x, i.RunEpoch))
    assert run.tasks[0].paused_sources == frozenset() and run.tasks[0].slice == QUICK.longest


def test_job_machine_reads_less_at_once_under_backpressure() -> None:
    told = Told(buffer_timeout=100.0)
    told.start()
    before = told.now
    told.report(told.poll(), poll_after_seconds=0.1, at_capacity=True)
    assert told.until(i.PollSources).budgets == {}
    told.found_nothing()
    told.until(i.PollSources)
    run = next(x for x in told.found_nothing() if isinstance(x, i.RunEpoch))
    told.report(run)
    assert 0 < told.until(i.PollSources).budgets[told.plan.vertices[0].id] < told.options.sizer.budget
    # No input was gathered on purpose: it was already pending.
    assert told.now - before < 1


def test_job_machine_repeats_async_requests_after_restore_without_input() -> None:
    rarely = CheckpointOptions(enabled=True, interval=600.0, timeout=60.0)
    told = Told(restart=FixedDelay(3, 0.0), checkpoints=rarely)
    told.start()
    told.now += 600
    told.report(told.poll(), source_carries=REQUESTS_IN_FLIGHT, poll_after_seconds=50.0)
    told.until(i.WriteManifest)
    told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    told.until(i.PollSources)
    told.found_nothing()
    told.tell(e.InstructionFailed(error=EpochFailed("a slot died")))
    told.until(i.PollSources)
    assert any(isinstance(x, i.RunEpoch) for x in told.found_nothing())


def test_job_machine_finishes_with_the_last_async_request() -> None:
    told = Told(checkpoints=CheckpointOptions(enabled=True, interval=600.0, timeout=60.0))
    told.start()
    run = told.poll(finished=True)
    assert run.tasks[0].checkpoint == 1
    # The source has finished; the last vertex waits for a request.
    told.report(run, "first", ended=True, poll_after_seconds=0.5, last_ended=False)
    told.until(i.WriteManifest)
    told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    told.until(i.PollSources)
    assert not told.found_nothing()
    told.until(i.PollSources)
    run = next(x for x in told.found_nothing() if isinstance(x, i.RunEpoch))
    # It is not known to be the last epoch, so it takes no checkpoint; one follows without waiting.
    assert run.tasks[0].checkpoint is None
    before = told.now
    told.report(run, "second", ended=True)
    write = told.until(i.WriteManifest)
    assert told.now - before < 1
    told.tell(e.ManifestWritten(checkpoint=write.manifest.id, location="there"))
    told.until(i.FinishOutput)


def test_job_machine_idles_while_a_source_waits_for_async_requests() -> None:
    told = Told(checkpoints=CheckpointOptions())
    told.start()
    told.report(told.poll(finished=True), source_carries=REQUESTS_IN_FLIGHT, poll_after_seconds=0.5)
    told.until(i.PollSources)
    # The source knows that all splits are assigned; it is notified again with the next epoch.
    assert not told.found_nothing(finished=True)
    told.until(i.PollSources)
    run = next(x for x in told.found_nothing(finished=True) if isinstance(x, i.RunEpoch))
    assert run.tasks[0].ending == {told.plan.vertices[0].id}


TOLERANT = CheckpointOptions(enabled=True, interval=0.0, timeout=60.0, tolerable_failures=5, max_concurrent=4)


def ask_while_a_manifest_is_written(told: Told, request: Request) -> i.WriteManifest:
    """Ask for something while checkpoint 1 is being written; return what is written for the request."""
    told.start()
    told.epoch("first")
    told.until(i.WriteManifest)
    told.until(i.PollSources)
    told.tell(e.Requested(request=request))
    told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now + 1))
    told.report(told.until(i.RunEpoch), "second")
    write: i.WriteManifest = told.until(i.WriteManifest)
    return write


@pytest.mark.parametrize("request_", [CheckpointRequest(), SavepointRequest("/there")], ids=lambda r: type(r).__name__)
def test_job_machine_request_is_served_by_its_own_checkpoint(request_: Request) -> None:
    """Another one that was completed meanwhile does not name what the request's epoch has staged."""
    told = Told(checkpoints=TOLERANT)
    write = ask_while_a_manifest_is_written(told, request_)
    told.tell(e.ManifestWritten(checkpoint=write.manifest.id - 1, location="there"))
    told.tell(e.ManifestFailed(checkpoint=write.manifest.id, reason="the disk is full"))
    refuse = told.until(i.Refuse)
    assert refuse.request is request_ and "the disk is full" in str(refuse.error)
    assert not [x for x in told.asked if isinstance(x, (i.WriteSavepoint, i.Answer))]


def test_job_machine_drain_without_its_savepoint_fails() -> None:
    """All input has ended and its output is committed, but the job must not report FINISHED."""
    told = Told(restart=FixedDelay(10, 0.0))
    told.start()
    told.tell(e.Requested(request=SavepointRequest("/there", stop=True, drain=True)))
    told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now + 1))
    run = told.until(i.RunEpoch)
    told.report(run, ended=True)
    write = told.until(i.WriteManifest)
    told.tell(e.ManifestWritten(checkpoint=write.manifest.id, location="there"))
    told.until(i.WriteSavepoint)
    told.tell(e.InstructionFailed(error=OSError("no space")))
    told.until(i.Finish)
    assert told.machine.view.status is JobStatus.FAILED
    assert [x for x in told.asked if isinstance(x, i.Refuse)]


def test_job_machine_repeats_a_lost_checkpoint_without_input() -> None:
    told = Told(checkpoints=TOLERANT)
    told.start()
    told.epoch("output")
    told.until(i.WriteManifest)
    told.tell(e.ManifestFailed(checkpoint=1, reason="the disk is full"))
    told.until(i.PollSources)
    asked = told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now + 1))
    run = next(x for x in asked if isinstance(x, i.RunEpoch))
    assert run.tasks[0].checkpoint == 2


def test_job_machine_rescale_without_slots_keeps_the_old_plan() -> None:
    told = Told()
    told.start()
    told.tell(e.Requested(request=RescaleRequest(2)))
    told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now + 1))
    told.until(i.Replan)
    asked = told.tell(e.Replanned(plan=plan_of(2)))
    told.report(next(x for x in asked if isinstance(x, i.RunEpoch)))
    opened = told.until(i.OpenSlots)
    assert opened.plan is not told.plan
    asked = told.tell(e.InstructionFailed(error=JobExecutionError("there is no room")))
    assert kinds(asked) == ["Refuse", "ReleaseSlots", "OpenSlots"]
    again = asked[-1]
    assert isinstance(again, i.OpenSlots) and again.plan is told.plan and again.attempt == opened.attempt + 1
    told.go_on()
    assert told.machine.view.status is JobStatus.RUNNING and told.machine.view.restarts == 0


# --- state that slots hold in memory

RARELY = CheckpointOptions(enabled=True, interval=10.0, timeout=60.0)


def keeps(told: Told, run: i.RunEpoch) -> bool:
    """Return whether an epoch writes state, which all its levels do or none; let it end."""
    (found,) = {task.writes_state for task in run.tasks}
    told.report(run)
    return found


def test_job_machine_writes_state_when_a_checkpoint_needs_it() -> None:
    told = Told(resident_slots=True, checkpoints=RARELY)
    told.start()
    first = told.poll()
    assert first.tasks[0].held_epoch is None
    assert not keeps(told, first)
    told.until(i.PollSources)
    second = told.poll()
    assert second.tasks[0].held_epoch == 1
    assert not keeps(told, second)
    told.until(i.PollSources)
    told.now += 10
    third = told.poll()
    assert (third.tasks[0].held_epoch, third.tasks[0].checkpoint) == (2, 1)
    assert keeps(told, third)
    told.until(i.PollSources)
    fourth = told.poll()
    assert fourth.tasks[0].held_epoch is None
    assert not keeps(told, fourth)


def test_job_machine_writes_state_for_requests_and_the_final_checkpoint() -> None:
    told = Told(resident_slots=True, checkpoints=CheckpointOptions())
    told.start()
    for request in (RescaleRequest(1), SavepointRequest("there", stop=False, drain=False)):
        run = told.poll()
        told.tell(e.Requested(request=request))
        assert not keeps(told, run)
        if isinstance(request, RescaleRequest):
            told.until(i.Replan)
            run = next(x for x in told.tell(e.Replanned(plan=told.plan)) if isinstance(x, i.RunEpoch))
        else:
            run = told.until(i.RunEpoch)
        assert keeps(told, run)
        if isinstance(request, SavepointRequest):
            told.until(i.WriteSavepoint)
            told.tell(e.SavepointWritten(location="there"))
        told.until(i.PollSources)
    assert not told.poll(finished=True).tasks[0].writes_state
    told = Told(resident_slots=True, checkpoints=RARELY)
    told.start()
    assert told.poll(finished=True).tasks[0].writes_state


def test_job_machine_writes_state_in_every_epoch_with_several_regions() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    for uid in ("sink", "other"):
        env.from_collection([1, 2, 3]).key_by(lambda x: x).reduce(lambda a, b: a + b).sink_to(CollectSink()).uid(uid)
    two_regions = LocalJob(env).plan
    once = CheckpointOptions(enabled=True, interval=10.0, timeout=60.0, mode=CheckpointingMode.AT_MOST_ONCE)
    for told in (Told(checkpoints=RARELY), Told(resident_slots=True, plan=two_regions, checkpoints=RARELY)):
        told.start()
        assert keeps(told, told.poll())
    told = Told(resident_slots=True, checkpoints=once)
    told.start()
    told.tell(
        e.SourcesPolled(
            split_ranges={told.plan.vertices[0].id: {0: ["share"]}},
            limited=True,
            finished=frozenset(),
            poll_again=told.now,
        )
    )
    told.until(i.WriteManifest)
    told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    assert told.until(i.RunEpoch).tasks[0].writes_state


# --- events that wake an idle job


def waiting(**options: Any) -> Told:
    """Return a job with no input now or soon."""
    told = Told(**options)
    told.start()
    told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now + 1_000))
    return told


def test_job_machine_input_event_polls_at_once() -> None:
    told = waiting()
    before = told.now
    told.tell(e.InputArrived())
    told.until(i.PollSources)
    assert told.now == before


def test_job_machine_detects_slot_loss_without_input() -> None:
    told = waiting(restart=FixedDelay(1, 2.0), checkpoints=CheckpointOptions())
    before = told.now
    told.tell(e.SlotsLost(attempt=0))
    run = told.until(i.RunEpoch)
    assert told.now == before and run.tasks[0].split_ranges == {}
    told.tell(e.InstructionFailed(error=EpochFailed("a slot is gone")))
    assert told.until(i.OpenSlots).attempt == 1
    # Events of released slots are ignored.
    told.until(i.PollSources)
    told.tell(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=told.now + 1_000))
    told.tell(e.SlotsLost(attempt=0))
    told.until(i.PollSources)
    assert told.now > before + 1_000


def test_job_machine_handles_slot_loss_after_the_running_instruction() -> None:
    told = Told()
    told.start()
    run = told.poll()
    told.tell(e.SlotsLost(attempt=0))
    told.report(run)
    told.until(i.WriteManifest)
    told.tell(e.ManifestWritten(checkpoint=1, location="there"))
    found = told.until(i.RunEpoch)
    assert found.tasks[0].split_ranges == {} and found.tasks[0].epoch == 2


# --- how long input gathers


def gathered(seconds: float, **options: Any) -> float:
    """Return the time between two epochs of given durations with little input."""
    told = Told(checkpoints=CheckpointOptions(), **options)
    told.start()
    for _ in range(3):
        began = told.now
        shares = {told.plan.vertices[0].id: {0: ["share"]}}
        polled = e.SourcesPolled(split_ranges=shares, limited=False, finished=frozenset(), poll_again=told.now)
        run = next(x for x in told.tell(polled) if isinstance(x, i.RunEpoch))
        told.now += seconds
        told.report(run)
        told.until(i.PollSources)
    return told.now - began


@pytest.mark.parametrize(
    ("timeout", "epoch", "gap"),
    [
        (0.1, 0.02, 0.1),
        (0.1, 0.002, 0.04),
        (0.1, 0.3, 0.3),
        (0.001, 0.0005, 0.001),
        (0.001, 0.002, 0.002),
        (0.0, 0.002, 0.002),
    ],
)
def test_job_machine_gathers_input_up_to_the_buffer_timeout(timeout: float, epoch: float, gap: float) -> None:
    assert gathered(epoch, buffer_timeout=timeout) == pytest.approx(gap)


def test_job_machine_gathers_always_for_large_epochs() -> None:
    assert gathered(0.002, buffer_timeout=1.0, gathers_always=True) == pytest.approx(1.0)


def test_job_machine_short_buffer_timeout_does_not_wait_for_a_manifest() -> None:
    told = Told(buffer_timeout=0.0)
    told.start()
    told.epoch()
    told.until(i.WriteManifest)
    before = told.now
    told.until(i.PollSources)
    assert told.now == before


# --- added and lost slots


def adaptive(**about: Any) -> Told:
    """Return a job of parallelism 4 that adapts to the available slots without waiting."""
    options: dict[str, Any] = {"wait": 60.0, "settle_at_start": 0.0, "cooldown": 0.0, "settle": 0.0, **about}
    told = Told(plan=plan_of(4), restart=FixedDelay(5, 1.0), scaling=ScalingOptions(**options))
    told.tell(e.JobStarted())
    return told


def counted(told: Told, slots: int) -> list[i.Instruction]:
    return told.tell(e.SlotsCounted(slots=slots))


def widths(opened: i.OpenSlots) -> list[int]:
    return [v.parallelism for v in opened.plan.vertices]


def test_adaptive_job_starts_with_available_slots() -> None:
    told = adaptive()
    assert told.until(i.CountSlots).desired == 4
    counted(told, 0)
    assert told.machine.view.status is JobStatus.CREATED
    counted(told, 2)
    assert widths(told.until(i.OpenSlots)) == [1, 2]


def test_adaptive_job_without_slots_fails_after_the_timeout() -> None:
    told = adaptive()
    told.until(i.CountSlots)
    counted(told, 0)
    finish = told.until(i.Finish)
    assert told.now == 160.0 and "needs 1 slots and there are 0, after 60 s" in str(finish.error)


def test_adaptive_job_rescales_when_slots_arrive() -> None:
    told = adaptive()
    told.until(i.CountSlots)
    counted(told, 1)
    assert widths(told.until(i.OpenSlots)) == [1, 1]
    told.until(i.PollSources)
    # The job waits for input; new slots wake it.
    told.found_nothing()
    counted(told, 3)
    run = told.until(i.RunEpoch)
    # The cut has all state and a checkpoint of its own, and sources read nothing in it.
    assert run.tasks[0].writes_state and run.tasks[0].checkpoint is not None and not run.tasks[0].reads
    told.report(run)
    opened = told.until(i.OpenSlots)
    assert widths(opened) == [1, 3]
    assert [type(x) for x in told.asked if isinstance(x, (i.ReleaseSlots, i.OpenSlots))] == [
        i.OpenSlots,
        i.ReleaseSlots,
        i.OpenSlots,
    ]
    assert [v.parallelism for v in told.machine.view.plan.vertices] == [1, 3]


def test_adaptive_job_continues_with_remaining_slots_after_a_failure() -> None:
    told = adaptive()
    told.until(i.CountSlots)
    counted(told, 4)
    assert widths(told.until(i.OpenSlots)) == [1, 4]
    told.until(i.PollSources)
    run = told.poll()
    told.tell(e.InstructionFailed(error=EpochFailed("a machine is gone")))
    counted(told, 2)
    assert told.until(i.CountSlots).desired == 4
    opened = told.until(i.OpenSlots)
    assert widths(opened) == [1, 2] and run is not None
    assert told.machine.view.restarts == 1


def test_adaptive_job_accepts_new_bounds_and_refuses_manual_rescaling() -> None:
    told = adaptive()
    told.until(i.CountSlots)
    counted(told, 4)
    told.until(i.PollSources)
    source, sums = (v.head.id for v in told.plan.vertices)
    smaller = RequirementsRequest({source: Bounds(1, 1), sums: Bounds(1, 2)})
    told.found_nothing()
    asked = told.tell(e.Requested(request=smaller))
    assert asked == [i.CountSlots(desired=2), i.Answer(request=smaller, result=None)]
    bounds = told.machine.view.bounds
    assert bounds is not None and [b.upper for b in bounds.values()] == [1, 2]
    told.report(told.until(i.RunEpoch))
    assert widths(told.until(i.OpenSlots)) == [1, 2]
    told.until(i.PollSources)
    told.found_nothing()
    by_hand, wrong = RescaleRequest(3), RequirementsRequest({sums: Bounds(1, 2)})
    told.tell(e.Requested(request=by_hand))
    assert "follows the slots there are" in str(told.until(i.Refuse).error)
    refused = told.tell(e.Requested(request=wrong))
    assert isinstance(refused[0], i.Refuse) and "name every vertex" in str(refused[0].error)


def test_job_machine_hanging_epoch_fails_with_the_checkpoint_timeout() -> None:
    told = Told()
    told.start()
    told.epoch("output")
    told.until(i.PollSources)
    told.now += 1000.0
    run = told.poll()
    timeout = told.machine._options.checkpoints.timeout
    assert run.patience == timeout
    told.now += timeout
    [hanging] = [x for x in explanations(told.machine.view, {}, told.now) if x.kind == "hanging epoch"]
    assert hanging.title == f"Epoch 2 has been running for {timeout:.0f} s"
    told.tell(e.InstructionFailed(error=EpochOverdue("Epoch 2 has not ended within a while")))
    finish = told.until(i.Finish)
    assert "so checkpoints exceed execution.checkpointing.timeout" in str(finish.error)
    last = told.machine.view.checkpoints.history[-1]
    assert last.status is CheckpointStatus.FAILED and "it took longer than" in str(last.failure)
    assert not [x for x in explanations(told.machine.view, {}, told.now) if x.kind == "hanging epoch"]
