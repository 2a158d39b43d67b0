"""The job machine, driven by events, without clock, thread, file or engine."""

from __future__ import annotations

import math
import re
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
from millstream.jobmaster.machine import job_machine
from millstream.jobmaster.machine.coordinator import CheckpointStatus
from millstream.jobmaster.machine.job_machine import JobMachine
from millstream.jobmaster.machine.job_phases import JobPhase
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


class MachineHarness:
    """A job machine and the actions it requested since the last check."""

    def __init__(self, *, plan: JobPlan | None = None, resident_slots: bool = False, **options: Any) -> None:
        self.plan = plan or plan_of()
        self.resident_slots = resident_slots
        self.now = 100.0
        self.options = JobOptions(**{"checkpoints": EVERY_EPOCH, **options})
        self.machine = JobMachine(self.plan, self.options, self.now)
        self.instructions: list[i.Instruction] = []
        self.sink = next(n.id for v in self.plan.vertices for n in v.nodes if n.uid == "sink")

    def send(self, event: e.Event) -> list[i.Instruction]:
        """Send an event; answer actions with a single possible answer until a decision is needed."""
        todo = self.machine.handle(event, self.now)
        instructions = []
        while todo:
            instruction = todo.pop(0)
            instructions.append(instruction)
            answer = self._answer(instruction)
            if answer is not None:
                todo = self.machine.handle(answer, self.now) + todo
        self.instructions += instructions
        return instructions

    def _answer(self, instruction: i.Instruction) -> e.Event | None:
        match instruction:
            case i.OpenOutput():
                return e.OutputOpened(transactional=frozenset({self.sink}))
            case i.OpenSlots():
                return e.SlotsOpened(resident=self.resident_slots, slices=QUICK)
            case i.ReadPositions():
                return e.PositionsRead(positions={self.plan.vertices[0].head.id: b"here"})
            case i.CommitOutput():
                return e.OutputCommitted(checkpoint=instruction.checkpoint, unfinished={}, wants_checkpoints=False)
            case i.RecoverOutput() | i.FinishOutput():
                return e.OutputCommitted(unfinished={}, wants_checkpoints=False)
            case i.DiscardCheckpoints():
                return e.CheckpointsDiscarded(checkpoints=instruction.checkpoints)
        return None

    def proceed(self) -> list[i.Instruction]:
        """Advance the clock until an action is requested, or no deadline is left."""
        for _ in range(20):
            if self.machine.deadline == math.inf or self.machine.has_ended:
                return []
            self.now = max(self.now, self.machine.deadline)
            if instructions := self.send(e.TimePassed()):
                return instructions
        raise AssertionError("the machine requests nothing")

    def until(self, kind: type) -> Any:
        """Advance the clock until an action of a type is requested."""
        for _ in range(30):
            for instruction in self.proceed():
                if isinstance(instruction, kind):
                    return instruction
        raise AssertionError(f"{kind.__name__} was not requested: {self.instructions}")

    # --- steps of a job

    def start(self) -> None:
        self.send(e.JobStarted())
        self.until(i.PollSources)

    def poll(self, finished: bool = False) -> i.RunEpoch:
        """Poll the sources, which have input."""
        sources = frozenset({self.plan.vertices[0].id})
        instructions = self.send(
            e.SourcesPolled(
                split_ranges={self.plan.vertices[0].id: {0: ["range"]}},
                limited=True,
                finished=sources if finished else frozenset(),
                poll_again=self.now,
            )
        )
        return next(x for x in instructions if isinstance(x, i.RunEpoch))

    def report(
        self,
        run: i.RunEpoch,
        staged: str | None = None,
        ended: bool = False,
        has_pending_splits: bool = False,
        has_pending_blocks: bool = False,
        **about: Any,
    ) -> None:
        """Report an epoch; `about` overrides fields of the last subtask's report."""
        slot = reported(self.plan, run.tasks, self.sink, staged, ended, has_pending_splits, has_pending_blocks)
        if "source_carries" in about:
            slot.subtasks[0] = replace(slot.subtasks[0], runtime_snapshot=about.pop("source_carries"))
        about["ended"] = about.pop("last_ended", slot.subtasks[-1].ended)
        slot.subtasks[-1] = replace(slot.subtasks[-1], **about)
        self.send(e.EpochFinished(reports=[slot]))

    def found_nothing(self, finished: bool = False) -> list[i.Instruction]:
        """Poll the sources, which have nothing to read."""
        ended = frozenset({self.plan.vertices[0].id} if finished else ())
        return self.send(e.SourcesPolled(split_ranges={}, limited=False, finished=ended, poll_again=math.inf))

    def epoch(self, staged: str | None = None, finished: bool = False) -> None:
        self.report(self.poll(finished), staged, finished)


def reported(
    plan: JobPlan,
    tasks: list[LevelTask],
    sink: str,
    staged: str | None,
    ended: bool,
    has_pending_splits: bool = False,
    has_pending_blocks: bool = False,
) -> SlotReport:
    """Return an epoch report; some assigned input may remain unread, or pending behind the exchange."""
    left = partial(encode, watermark=0, idle=False, ended=False, channels={}, operators={}, watermarks={})
    snapshots = {v.id: b"" for v in plan.vertices}
    for v in plan.vertices:
        if v.is_source and has_pending_splits:
            snapshots[v.id] = left(pending_ranges=[(None, "range", 1)])
        if v.in_edges and has_pending_blocks:
            snapshots[v.id] = left(pending_blocks=[((v.in_edges[0].id, 0), 0, (False, False, [b"block"]))])
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
            runtime_snapshot=snapshots[v.id],
            next_wake=None,
            aligned={},
            ended=ended and (v.is_source or not has_pending_blocks),
            tables={},
            exported={},
        )
        for v in plan.vertices
    ]
    return SlotReport(level=0, slot=0, subtasks=subtasks, printed=f"epoch {tasks[0].epoch}\n")


def kinds(instructions: list[i.Instruction]) -> list[str]:
    return [type(x).__name__ for x in instructions]


def staged_of(harness: MachineHarness) -> dict[str, Any]:
    return {harness.sink: [(0, "output")]}


def test_job_machine_opens_in_order() -> None:
    harness = MachineHarness()
    assert kinds(harness.send(e.JobStarted())) == ["ClaimDirectory", "OpenOutput"]
    assert harness.machine.view.status is JobStatus.CREATED
    assert kinds(harness.proceed()) == ["OpenSlots"]
    assert {t.state for t in harness.machine.view.tasks.values()} == {ExecutionState.DEPLOYING}
    harness.proceed()
    assert harness.machine.view.status is JobStatus.RUNNING  # type: ignore[comparison-overlap]
    assert {t.state for t in harness.machine.view.tasks.values()} == {ExecutionState.INITIALIZING}


def test_job_machine_commits_output_after_the_manifest_is_written() -> None:
    harness = MachineHarness()
    harness.start()
    harness.epoch("output")
    write = harness.until(i.WriteManifest)
    assert not [x for x in harness.instructions if isinstance(x, i.CommitOutput)]
    instructions = harness.send(e.ManifestWritten(checkpoint=write.manifest.id, location="there"))
    assert instructions[0] == i.CommitOutput(staged=staged_of(harness), checkpoint=1)
    confirm = instructions[1]
    assert isinstance(confirm, i.ConfirmSources) and list((confirm.positions or {}).values()) == [b"here"]
    latest = harness.machine.view.checkpoints.latest
    assert latest is not None and (latest.id, latest.location) == (1, "there")


def test_job_machine_slot_loss_waits_for_the_pending_manifest() -> None:
    """A job rolls back only after the fate of the pending manifest is known; if written, its output is committed."""
    harness = MachineHarness(restart=FixedDelay(1, 5.0))
    harness.start()
    harness.epoch("output")
    harness.until(i.WriteManifest)
    # The wait ends: the next epoch begins.
    harness.until(i.PollSources)
    harness.poll()
    instructions = harness.send(e.InstructionFailed(error=EpochFailed("a slot died")))
    assert kinds(instructions) == ["Warn", "ReleaseSlots"] and harness.machine.view.status is JobStatus.RESTARTING
    assert harness.machine.deadline == harness.now + 5.0
    # The delay has passed, but there is no answer yet.
    harness.now += 5.0
    assert harness.send(e.TimePassed()) == []
    assert harness.machine.deadline > harness.now
    instructions = harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    assert instructions[0] == i.CommitOutput(staged=staged_of(harness), checkpoint=1)
    instructions = harness.proceed()
    assert kinds(instructions) == ["DiscardOthers", "RecoverOutput", "OpenSlots", "SweepState"]
    discard, recover, opened = instructions[:3]
    assert isinstance(discard, i.DiscardOthers) and discard.retained == {1}
    assert isinstance(recover, i.RecoverOutput) and set(recover.named) == {harness.sink}
    assert isinstance(opened, i.OpenSlots) and opened.attempt == 1
    assert list(opened.positions.values()) == [b"here"]


def test_job_machine_restart_repeats_a_failed_commit() -> None:
    harness = MachineHarness(restart=FixedDelay(1, 0.0))
    harness.start()
    harness.epoch("output")
    harness.until(i.WriteManifest)
    [commit, *_] = harness.machine.handle(e.ManifestWritten(checkpoint=1, location="there"), harness.now)
    assert isinstance(commit, i.CommitOutput)
    harness.send(e.InstructionFailed(error=JobExecutionError("the sink is away")))
    recover = harness.until(i.RecoverOutput)
    assert set(recover.named) == {harness.sink}


def test_job_machine_finishes_after_all_output_is_committed() -> None:
    harness = MachineHarness()
    harness.start()
    harness.epoch("output", finished=True)
    harness.until(i.WriteManifest)
    # The checkpoint is lost: another one is taken, without an epoch.
    tolerant = MachineHarness(
        checkpoints=CheckpointOptions(enabled=True, interval=0.0, timeout=60.0, tolerable_failures=3)
    )
    tolerant.start()
    tolerant.epoch("output", finished=True)
    tolerant.until(i.WriteManifest)
    tolerant.send(e.ManifestFailed(checkpoint=1, reason="the disk is full"))
    again = tolerant.until(i.WriteManifest)
    assert again.manifest.id == 2 and set(again.manifest.snapshot.committables) == {tolerant.sink}
    tolerant.send(e.ManifestWritten(checkpoint=2, location="there"))
    finish = tolerant.until(i.Finish)
    assert finish.error is None and finish.result.records_in == 1
    view = tolerant.machine.view
    assert view.status is JobStatus.FINISHED
    assert {t.state for t in view.tasks.values()} == {ExecutionState.FINISHED}
    assert (view.checkpoints.completed, view.checkpoints.failed) == (1, 1)


def test_job_machine_fails_after_too_many_lost_checkpoints() -> None:
    harness = MachineHarness()
    harness.start()
    harness.epoch("output")
    harness.until(i.WriteManifest)
    harness.send(e.ManifestFailed(checkpoint=1, reason="the disk is full"))
    finish = harness.until(i.Finish)
    assert "the disk is full" in str(finish.error) and harness.machine.view.status is JobStatus.FAILED


def test_job_machine_cancel_aborts_after_the_pending_manifest() -> None:
    harness = MachineHarness()
    harness.start()
    harness.epoch("output")
    harness.until(i.WriteManifest)
    harness.send(e.CancelRequested())
    assert harness.machine.view.status is JobStatus.CANCELLING
    assert kinds(harness.proceed()) == ["ReleaseSlots"]
    # Other failures do not end the wait.
    assert kinds(harness.send(e.InstructionFailed(error=JobExecutionError("no")))) == ["Warn"]
    assert kinds(harness.proceed()) == ["FinishOutput"]
    assert harness.send(e.TimePassed()) == []
    assert kinds(harness.send(e.InstructionFailed(error=JobExecutionError("no")))) == ["Warn"]
    assert harness.machine.deadline > harness.now
    commit, *_ = harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    assert isinstance(commit, i.CommitOutput)
    assert kinds(harness.proceed()) == ["DiscardOthers", "RecoverOutput"]
    finish = harness.until(i.Finish)
    assert isinstance(finish.error, JobCancelledError)
    assert {t.state for t in harness.machine.view.tasks.values()} == {ExecutionState.CANCELED}


def test_job_machine_cancel_keeps_output_when_storage_does_not_answer() -> None:
    harness = MachineHarness()
    harness.start()
    harness.epoch("output")
    harness.until(i.WriteManifest)
    harness.send(e.CancelRequested())
    harness.until(i.Finish)
    assert not [x for x in harness.instructions if isinstance(x, i.RecoverOutput)]
    assert [x.text for x in harness.instructions if isinstance(x, i.Warn)][-1].endswith("has not answered for 10 s.")
    # The answer arrives too late to commit anything.
    assert harness.send(e.ManifestWritten(checkpoint=1, location="there")) == []


def test_job_machine_attributes_a_failure_to_its_operator() -> None:
    harness = MachineHarness()
    harness.start()
    harness.poll()
    vertex = harness.plan.vertices[-1]
    error = EpochFailed("no", operator_id=vertex.head.id, subtask=0, printed="last words\n")
    harness.send(e.InstructionFailed(error=error))
    finish = harness.until(i.Finish)
    assert finish.error is error
    assert i.Print(text="last words\n") in harness.instructions
    view = harness.machine.view
    assert view.tasks[vertex.id, 0].state is ExecutionState.FAILED
    assert [(f.message, f.operator) for f in view.failures] == [("no", vertex.head.id)]


def test_job_machine_does_not_retry_program_errors() -> None:
    harness = MachineHarness(restart=FixedDelay(1_000, 0.0))
    harness.start()
    harness.poll()
    harness.send(e.InstructionFailed(error=InvalidProgramError("no")))
    harness.until(i.Finish)
    assert harness.machine.view.status is JobStatus.FAILED


def test_job_machine_at_most_once_checkpoints_before_reading() -> None:
    harness = MachineHarness(
        checkpoints=CheckpointOptions(enabled=True, interval=1.0, mode=CheckpointingMode.AT_MOST_ONCE)
    )
    harness.start()
    instructions = harness.send(
        e.SourcesPolled(
            split_ranges={harness.plan.vertices[0].id: {0: ["range"]}},
            limited=True,
            finished=frozenset(),
            poll_again=harness.now,
        )
    )
    assert kinds(instructions) == ["ReadPositions"]
    write = harness.until(i.WriteManifest)
    assert list(write.manifest.snapshot.sources.values()) == [b"here"]
    harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    run = harness.until(i.RunEpoch)
    assert run.tasks[0].split_ranges == {harness.plan.vertices[0].id: {0: ["range"]}}


REQUESTS: list[Request] = [CheckpointRequest(), SavepointRequest("/there", name="x"), RescaleRequest(2)]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_job_machine_answers_every_request_once(request_: Request) -> None:
    harness = MachineHarness()
    harness.start()
    todo = harness.send(e.Requested(request=request_)) + harness.send(
        e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now + 1)
    )
    while not (answers := [x for x in harness.instructions if isinstance(x, (i.Answer, i.Refuse))]):
        for instruction in todo or harness.proceed():
            match instruction:
                case i.Replan():
                    harness.send(e.Replanned(plan=plan_of(2)))
                case i.RunEpoch():
                    harness.report(instruction)
                case i.WriteManifest():
                    harness.send(
                        e.ManifestWritten(checkpoint=instruction.manifest.id, location=f"chk-{instruction.manifest.id}")
                    )
                case i.WriteSavepoint():
                    harness.send(e.SavepointWritten(location=instruction.location))
        todo = [x for x in harness.instructions[-2:] if isinstance(x, i.RunEpoch)]
    [answer] = answers
    assert isinstance(answer, i.Answer) and answer.request is request_
    match request_:
        case CheckpointRequest():
            assert answer.result == "chk-1"
        case SavepointRequest():
            assert answer.result == f"/there/savepoint-{harness.plan.settings.job_id[:6]}-x"
        case RescaleRequest():
            assert {v.parallelism for v in harness.machine.view.plan.vertices} == {1, 2}


def test_job_machine_refuses_requests_after_the_end() -> None:
    harness = MachineHarness()
    harness.start()
    pending, late = CheckpointRequest(), CheckpointRequest()
    harness.send(e.Requested(request=pending))
    harness.send(e.CancelRequested())
    harness.until(i.Finish)
    refused = [x for x in harness.instructions if isinstance(x, i.Refuse)] + harness.send(e.Requested(request=late))
    assert [x.request for x in refused if isinstance(x, i.Refuse)] == [pending, late]
    assert all(isinstance(x.error, MillstreamError) for x in refused if isinstance(x, i.Refuse))


def test_job_machine_view_is_immutable() -> None:
    harness = MachineHarness()
    harness.start()
    before = harness.machine.view
    epochs, tasks = before.progress.epochs, dict(before.tasks)
    harness.epoch("output")
    harness.until(i.WriteManifest)
    harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    assert (before.progress.epochs, dict(before.tasks)) == (epochs, tasks) == (0, tasks)
    assert before.checkpoints.completed == 0 and harness.machine.view.checkpoints.completed == 1
    assert harness.machine.view.progress.epochs == 1
    with pytest.raises(FrozenInstanceError):
        before.epoch = 7  # type: ignore[misc]


# --- input that remains for the next epoch


def test_job_machine_does_not_poll_a_source_with_pending_input() -> None:
    harness = MachineHarness(checkpoints=CheckpointOptions())
    harness.start()
    harness.report(harness.poll(finished=True), has_pending_splits=True)
    poll = harness.until(i.PollSources)
    assert [x.pending for x in harness.instructions if isinstance(x, i.ConfirmSources)] == [
        {harness.plan.vertices[0].id}
    ]
    assert poll.budgets == {} and poll.running == {harness.plan.vertices[0].id}
    # The source has assigned all splits, but has not finished.
    instructions = harness.send(
        e.SourcesPolled(split_ranges={}, limited=False, finished=poll.running, poll_again=harness.now)
    )
    run = next(x for x in instructions if isinstance(x, i.RunEpoch))
    assert run.tasks[0].ending == poll.running and run.tasks[0].slice == QUICK.longest
    harness.report(run, ended=True)
    harness.until(i.FinishOutput)


def test_job_machine_polls_a_source_after_its_backlog_by_its_rate() -> None:
    harness = MachineHarness(buffer_timeout=100.0)
    harness.start()
    harness.report(harness.poll(), has_pending_splits=True)
    poll = harness.until(i.PollSources)
    instructions = harness.send(
        e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=math.inf)
    )
    # Two records took twice the slice.
    before = harness.now = harness.now + 2 * QUICK.longest
    harness.report(next(x for x in instructions if isinstance(x, i.RunEpoch)))
    poll = harness.until(i.PollSources)
    assert harness.now - before < 1 and poll.budgets == {harness.plan.vertices[0].id: 1}
    harness.epoch()
    assert harness.until(i.PollSources).budgets == {harness.plan.vertices[0].id: 2}


def test_job_machine_does_not_poll_a_source_with_input_behind_an_exchange() -> None:
    harness = MachineHarness(checkpoints=CheckpointOptions())
    harness.start()
    harness.report(harness.poll(), has_pending_blocks=True)
    poll = harness.until(i.PollSources)
    assert poll.budgets == {}
    assert [x.pending for x in harness.instructions if isinstance(x, i.ConfirmSources)] == [
        {harness.plan.vertices[0].id}
    ]
    # An epoch runs although there is no new input.
    instructions = harness.send(
        e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=math.inf)
    )
    harness.report(next(x for x in instructions if isinstance(x, i.RunEpoch)))
    assert set(harness.until(i.PollSources).budgets) == {harness.plan.vertices[0].id}


def test_job_machine_runs_until_pending_input_is_processed() -> None:
    harness = MachineHarness(checkpoints=CheckpointOptions())
    harness.start()
    harness.report(harness.poll(finished=True), ended=True, has_pending_blocks=True)
    poll = harness.until(i.PollSources)
    assert (poll.budgets, poll.running) == ({}, frozenset())
    instructions = harness.send(
        e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=math.inf)
    )
    harness.report(next(x for x in instructions if isinstance(x, i.RunEpoch)), ended=True)
    harness.until(i.FinishOutput)


def test_job_machine_does_not_confirm_pending_splits() -> None:
    harness = MachineHarness()
    harness.start()
    harness.report(harness.poll(), has_pending_splits=True)
    write = harness.until(i.WriteManifest)
    assert list(write.manifest.snapshot.sources.values()) == [b"here"]
    instructions = harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    assert [x.positions for x in instructions if isinstance(x, i.ConfirmSources)] == [{}]
    harness.until(i.PollSources)
    instructions = harness.send(
        e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now)
    )
    harness.report(next(x for x in instructions if isinstance(x, i.RunEpoch)))
    harness.until(i.WriteManifest)
    instructions = harness.send(e.ManifestWritten(checkpoint=2, location="there"))
    confirm = next(x for x in instructions if isinstance(x, i.ConfirmSources))
    assert list((confirm.positions or {}).values()) == [b"here"]


def test_job_machine_request_epoch_reads_nothing_unless_it_drains() -> None:
    for drain, seconds in ((False, QUICK.longest), (True, math.inf)):
        harness = MachineHarness()
        harness.start()
        harness.report(harness.poll(), has_pending_splits=True)
        harness.until(i.PollSources)
        harness.send(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now))
        harness.send(e.Requested(request=SavepointRequest("there", stop=True, drain=drain)))
        harness.report(
            next(x for x in reversed(harness.instructions) if isinstance(x, i.RunEpoch)), has_pending_splits=True
        )
        task = harness.until(i.RunEpoch).tasks[0]
        assert (task.reads, task.slice) == (drain, seconds)


def test_job_machine_slice_length_follows_engine_and_options() -> None:
    def slices(**options: Any) -> list[float]:
        lengths = []
        for engine in (QUICK, SHUFFLED):
            harness = MachineHarness(**options)
            harness.start()
            harness.send(e.SlotsOpened(resident=False, slices=engine))
            lengths.append(harness.poll().tasks[0].slice)
            # The target duration of epochs is most of it.
            assert harness.options.sizer.target_seconds == 0.75 * lengths[-1]
        return lengths

    assert slices() == [0.2, 1.0]
    assert slices(slice_factor=0.5) == [0.1, 0.5]
    assert slices(slice_factor=0.0) == [0.02, 0.25]
    assert slices(slice=0.3, slice_factor=0.5) == [0.3, 0.3]


def test_job_machine_at_most_once_has_no_slices() -> None:
    once = CheckpointOptions(enabled=True, interval=0.0, mode=CheckpointingMode.AT_MOST_ONCE)
    assert JobOptions(checkpoints=once).slice == math.inf


# --- requests in flight

REQUESTS_IN_FLIGHT = encode(
    watermark=0, idle=False, ended=False, channels={}, operators={}, watermarks={}, requests=True
)


def test_job_machine_polls_async_results_without_input() -> None:
    harness = MachineHarness()
    harness.start()
    # A timer is due much later.
    harness.report(harness.poll(), poll_after_seconds=0.25, next_wake=int(harness.now + 50) * 1000)
    before = harness.now
    harness.until(i.PollSources)
    assert not harness.found_nothing()
    # The checkpoint of that epoch is still pending, so no other is due.
    harness.until(i.PollSources)
    assert harness.now - before == pytest.approx(0.25)
    assert any(isinstance(x, i.RunEpoch) for x in harness.found_nothing())


def test_job_machine_pauses_sources_under_backpressure() -> None:
    harness = MachineHarness(buffer_timeout=100.0)
    source = harness.plan.vertices[0].id
    harness.start()
    harness.report(harness.poll(), has_pending_splits=True, poll_after_seconds=0.25, at_capacity=True)
    before = harness.now
    poll = harness.until(i.PollSources)
    assert poll.budgets == {}
    # Neither pending input nor the end of sources triggers an epoch.
    assert not harness.found_nothing(finished=True)
    harness.until(i.PollSources)
    assert harness.now - before == pytest.approx(0.25)
    run = next(x for x in harness.found_nothing(finished=True) if isinstance(x, i.RunEpoch))
    assert run.tasks[0].paused_sources == {source} and run.tasks[1].paused_sources == frozenset()
    harness.report(run, has_pending_splits=True)
    # Capacity is free: pending input is read at once.
    harness.until(i.PollSources)
    assert harness.now - before < 1
    run = next(x for x in harness.found_nothing(finished=True) if isinstance(x, i.RunEpoch))
    assert run.tasks[0].paused_sources == frozenset() and run.tasks[0].slice == QUICK.longest


def test_job_machine_reads_less_at_once_under_backpressure() -> None:
    harness = MachineHarness(buffer_timeout=100.0)
    harness.start()
    before = harness.now
    harness.report(harness.poll(), poll_after_seconds=0.1, at_capacity=True)
    assert harness.until(i.PollSources).budgets == {}
    harness.found_nothing()
    harness.until(i.PollSources)
    run = next(x for x in harness.found_nothing() if isinstance(x, i.RunEpoch))
    harness.report(run)
    assert 0 < harness.until(i.PollSources).budgets[harness.plan.vertices[0].id] < harness.options.sizer.budget
    # Input was already pending, so nothing was gathered.
    assert harness.now - before < 1


def test_job_machine_repeats_async_requests_after_restore_without_input() -> None:
    rarely = CheckpointOptions(enabled=True, interval=600.0, timeout=60.0)
    harness = MachineHarness(restart=FixedDelay(3, 0.0), checkpoints=rarely)
    harness.start()
    harness.now += 600
    harness.report(harness.poll(), source_carries=REQUESTS_IN_FLIGHT, poll_after_seconds=50.0)
    harness.until(i.WriteManifest)
    harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    harness.until(i.PollSources)
    harness.found_nothing()
    harness.send(e.InstructionFailed(error=EpochFailed("a slot died")))
    harness.until(i.PollSources)
    assert any(isinstance(x, i.RunEpoch) for x in harness.found_nothing())


def test_job_machine_finishes_with_the_last_async_request() -> None:
    harness = MachineHarness(checkpoints=CheckpointOptions(enabled=True, interval=600.0, timeout=60.0))
    harness.start()
    run = harness.poll(finished=True)
    assert run.tasks[0].checkpoint == 1
    # The source has finished; the last vertex waits for a request.
    harness.report(run, "first", ended=True, poll_after_seconds=0.5, last_ended=False)
    harness.until(i.WriteManifest)
    harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    harness.until(i.PollSources)
    assert not harness.found_nothing()
    harness.until(i.PollSources)
    run = next(x for x in harness.found_nothing() if isinstance(x, i.RunEpoch))
    # It is not known to be the last epoch, so it takes no checkpoint; one follows without waiting.
    assert run.tasks[0].checkpoint is None
    before = harness.now
    harness.report(run, "second", ended=True)
    write = harness.until(i.WriteManifest)
    assert harness.now - before < 1
    harness.send(e.ManifestWritten(checkpoint=write.manifest.id, location="there"))
    harness.until(i.FinishOutput)


def test_job_machine_idles_while_a_source_waits_for_async_requests() -> None:
    harness = MachineHarness(checkpoints=CheckpointOptions())
    harness.start()
    harness.report(harness.poll(finished=True), source_carries=REQUESTS_IN_FLIGHT, poll_after_seconds=0.5)
    harness.until(i.PollSources)
    # The source knows that all splits are assigned; it is notified again with the next epoch.
    assert not harness.found_nothing(finished=True)
    harness.until(i.PollSources)
    run = next(x for x in harness.found_nothing(finished=True) if isinstance(x, i.RunEpoch))
    assert run.tasks[0].ending == {harness.plan.vertices[0].id}


TOLERANT = CheckpointOptions(enabled=True, interval=0.0, timeout=60.0, tolerable_failures=5, max_concurrent=4)


def ask_while_a_manifest_is_written(harness: MachineHarness, request: Request) -> i.WriteManifest:
    """Send a request while checkpoint 1 is being written; return the write instruction for the request."""
    harness.start()
    harness.epoch("first")
    harness.until(i.WriteManifest)
    harness.until(i.PollSources)
    harness.send(e.Requested(request=request))
    harness.send(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now + 1))
    harness.report(harness.until(i.RunEpoch), "second")
    write: i.WriteManifest = harness.until(i.WriteManifest)
    return write


@pytest.mark.parametrize("request_", [CheckpointRequest(), SavepointRequest("/there")], ids=lambda r: type(r).__name__)
def test_job_machine_request_is_served_by_its_own_checkpoint(request_: Request) -> None:
    """Another checkpoint that completes meanwhile does not name the staged output of the request's epoch."""
    harness = MachineHarness(checkpoints=TOLERANT)
    write = ask_while_a_manifest_is_written(harness, request_)
    harness.send(e.ManifestWritten(checkpoint=write.manifest.id - 1, location="there"))
    harness.send(e.ManifestFailed(checkpoint=write.manifest.id, reason="the disk is full"))
    refuse = harness.until(i.Refuse)
    assert refuse.request is request_ and "the disk is full" in str(refuse.error)
    assert not [x for x in harness.instructions if isinstance(x, (i.WriteSavepoint, i.Answer))]


def test_job_machine_drain_without_its_savepoint_fails() -> None:
    """All input has ended and its output is committed, but the job must not report FINISHED."""
    harness = MachineHarness(restart=FixedDelay(10, 0.0))
    harness.start()
    harness.send(e.Requested(request=SavepointRequest("/there", stop=True, drain=True)))
    harness.send(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now + 1))
    run = harness.until(i.RunEpoch)
    harness.report(run, ended=True)
    write = harness.until(i.WriteManifest)
    harness.send(e.ManifestWritten(checkpoint=write.manifest.id, location="there"))
    harness.until(i.WriteSavepoint)
    harness.send(e.InstructionFailed(error=OSError("no space")))
    harness.until(i.Finish)
    assert harness.machine.view.status is JobStatus.FAILED
    assert [x for x in harness.instructions if isinstance(x, i.Refuse)]


def test_job_machine_repeats_a_lost_checkpoint_without_input() -> None:
    harness = MachineHarness(checkpoints=TOLERANT)
    harness.start()
    harness.epoch("output")
    harness.until(i.WriteManifest)
    harness.send(e.ManifestFailed(checkpoint=1, reason="the disk is full"))
    harness.until(i.PollSources)
    instructions = harness.send(
        e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now + 1)
    )
    run = next(x for x in instructions if isinstance(x, i.RunEpoch))
    assert run.tasks[0].checkpoint == 2


def test_job_machine_rescale_without_slots_keeps_the_old_plan() -> None:
    harness = MachineHarness()
    harness.start()
    harness.send(e.Requested(request=RescaleRequest(2)))
    harness.send(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now + 1))
    harness.until(i.Replan)
    instructions = harness.send(e.Replanned(plan=plan_of(2)))
    harness.report(next(x for x in instructions if isinstance(x, i.RunEpoch)))
    opened = harness.until(i.OpenSlots)
    assert opened.plan is not harness.plan
    instructions = harness.send(e.InstructionFailed(error=JobExecutionError("there are no slots")))
    assert kinds(instructions) == ["Refuse", "ReleaseSlots", "OpenSlots"]
    again = instructions[-1]
    assert isinstance(again, i.OpenSlots) and again.plan is harness.plan and again.attempt == opened.attempt + 1
    harness.proceed()
    assert harness.machine.view.status is JobStatus.RUNNING and harness.machine.view.restarts == 0


# --- state that slots hold in memory

RARELY = CheckpointOptions(enabled=True, interval=10.0, timeout=60.0)


def keeps(harness: MachineHarness, run: i.RunEpoch) -> bool:
    """Return whether an epoch writes state, which all its levels do or none; let it end."""
    (writes_state,) = {task.writes_state for task in run.tasks}
    harness.report(run)
    return writes_state


def test_job_machine_writes_state_when_a_checkpoint_needs_it() -> None:
    harness = MachineHarness(resident_slots=True, checkpoints=RARELY)
    harness.start()
    first = harness.poll()
    assert first.tasks[0].held_epoch is None
    assert not keeps(harness, first)
    harness.until(i.PollSources)
    second = harness.poll()
    assert second.tasks[0].held_epoch == 1
    assert not keeps(harness, second)
    harness.until(i.PollSources)
    harness.now += 10
    third = harness.poll()
    assert (third.tasks[0].held_epoch, third.tasks[0].checkpoint) == (2, 1)
    assert keeps(harness, third)
    harness.until(i.PollSources)
    fourth = harness.poll()
    assert fourth.tasks[0].held_epoch is None
    assert not keeps(harness, fourth)


def test_job_machine_writes_state_for_requests_and_the_final_checkpoint() -> None:
    harness = MachineHarness(resident_slots=True, checkpoints=CheckpointOptions())
    harness.start()
    for request in (RescaleRequest(1), SavepointRequest("there", stop=False, drain=False)):
        run = harness.poll()
        harness.send(e.Requested(request=request))
        assert not keeps(harness, run)
        if isinstance(request, RescaleRequest):
            harness.until(i.Replan)
            run = next(x for x in harness.send(e.Replanned(plan=harness.plan)) if isinstance(x, i.RunEpoch))
        else:
            run = harness.until(i.RunEpoch)
        assert keeps(harness, run)
        if isinstance(request, SavepointRequest):
            harness.until(i.WriteSavepoint)
            harness.send(e.SavepointWritten(location="there"))
        harness.until(i.PollSources)
    assert not harness.poll(finished=True).tasks[0].writes_state
    harness = MachineHarness(resident_slots=True, checkpoints=RARELY)
    harness.start()
    assert harness.poll(finished=True).tasks[0].writes_state


def test_job_machine_writes_state_in_every_epoch_with_several_regions() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    for uid in ("sink", "other"):
        env.from_collection([1, 2, 3]).key_by(lambda x: x).reduce(lambda a, b: a + b).sink_to(CollectSink()).uid(uid)
    two_regions = LocalJob(env).plan
    once = CheckpointOptions(enabled=True, interval=10.0, timeout=60.0, mode=CheckpointingMode.AT_MOST_ONCE)
    for harness in (
        MachineHarness(checkpoints=RARELY),
        MachineHarness(resident_slots=True, plan=two_regions, checkpoints=RARELY),
    ):
        harness.start()
        assert keeps(harness, harness.poll())
    harness = MachineHarness(resident_slots=True, checkpoints=once)
    harness.start()
    harness.send(
        e.SourcesPolled(
            split_ranges={harness.plan.vertices[0].id: {0: ["range"]}},
            limited=True,
            finished=frozenset(),
            poll_again=harness.now,
        )
    )
    harness.until(i.WriteManifest)
    harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    assert harness.until(i.RunEpoch).tasks[0].writes_state


# --- events that wake an idle job


def idle_job(**options: Any) -> MachineHarness:
    """Return a job with no input now or soon."""
    harness = MachineHarness(**options)
    harness.start()
    harness.send(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now + 1_000))
    return harness


def test_job_machine_input_event_polls_at_once() -> None:
    harness = idle_job()
    before = harness.now
    harness.send(e.InputArrived())
    harness.until(i.PollSources)
    assert harness.now == before


def test_job_machine_detects_slot_loss_without_input() -> None:
    harness = idle_job(restart=FixedDelay(1, 2.0), checkpoints=CheckpointOptions())
    before = harness.now
    harness.send(e.SlotsLost(attempt=0))
    run = harness.until(i.RunEpoch)
    assert harness.now == before and run.tasks[0].split_ranges == {}
    harness.send(e.InstructionFailed(error=EpochFailed("a slot died")))
    assert harness.until(i.OpenSlots).attempt == 1
    # Events of released slots are ignored.
    harness.until(i.PollSources)
    harness.send(e.SourcesPolled(split_ranges={}, limited=False, finished=frozenset(), poll_again=harness.now + 1_000))
    harness.send(e.SlotsLost(attempt=0))
    harness.until(i.PollSources)
    assert harness.now > before + 1_000


def test_job_machine_handles_slot_loss_after_the_running_instruction() -> None:
    harness = MachineHarness()
    harness.start()
    run = harness.poll()
    harness.send(e.SlotsLost(attempt=0))
    harness.report(run)
    harness.until(i.WriteManifest)
    harness.send(e.ManifestWritten(checkpoint=1, location="there"))
    next_run = harness.until(i.RunEpoch)
    assert next_run.tasks[0].split_ranges == {} and next_run.tasks[0].epoch == 2


# --- the time during which input gathers


def gathered(seconds: float, **options: Any) -> float:
    """Return the time between two epochs of given durations with little input."""
    harness = MachineHarness(checkpoints=CheckpointOptions(), **options)
    harness.start()
    for _ in range(3):
        began = harness.now
        split_ranges = {harness.plan.vertices[0].id: {0: ["range"]}}
        polled = e.SourcesPolled(split_ranges=split_ranges, limited=False, finished=frozenset(), poll_again=harness.now)
        run = next(x for x in harness.send(polled) if isinstance(x, i.RunEpoch))
        harness.now += seconds
        harness.report(run)
        harness.until(i.PollSources)
    return harness.now - began


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
    assert gathered(0.002, buffer_timeout=1.0, always_gathers=True) == pytest.approx(1.0)


def test_job_machine_short_buffer_timeout_does_not_wait_for_a_manifest() -> None:
    harness = MachineHarness(buffer_timeout=0.0)
    harness.start()
    harness.epoch()
    harness.until(i.WriteManifest)
    before = harness.now
    harness.until(i.PollSources)
    assert harness.now == before


# --- added and lost slots


def adaptive(**about: Any) -> MachineHarness:
    """Return a job of parallelism 4 that adapts to the available slots without waiting."""
    options: dict[str, Any] = {
        "wait": 60.0,
        "start_stabilization_timeout": 0.0,
        "cooldown": 0.0,
        "stabilization_timeout": 0.0,
        **about,
    }
    harness = MachineHarness(plan=plan_of(4), restart=FixedDelay(5, 1.0), scaling=ScalingOptions(**options))
    harness.send(e.JobStarted())
    return harness


def counted(harness: MachineHarness, slots: int) -> list[i.Instruction]:
    return harness.send(e.SlotsCounted(slots=slots))


def widths(opened: i.OpenSlots) -> list[int]:
    return [v.parallelism for v in opened.plan.vertices]


def test_adaptive_job_starts_with_available_slots() -> None:
    harness = adaptive()
    assert harness.until(i.CountSlots).desired == 4
    counted(harness, 0)
    assert harness.machine.view.status is JobStatus.CREATED
    counted(harness, 2)
    assert widths(harness.until(i.OpenSlots)) == [1, 2]


def test_adaptive_job_without_slots_fails_after_the_timeout() -> None:
    harness = adaptive()
    harness.until(i.CountSlots)
    counted(harness, 0)
    finish = harness.until(i.Finish)
    assert harness.now == 160.0 and "needs 1 slots, and 0 are available after 60 s" in str(finish.error)


def test_adaptive_job_rescales_when_slots_arrive() -> None:
    harness = adaptive()
    harness.until(i.CountSlots)
    counted(harness, 1)
    assert widths(harness.until(i.OpenSlots)) == [1, 1]
    harness.until(i.PollSources)
    # The job waits for input; new slots wake it.
    harness.found_nothing()
    counted(harness, 3)
    run = harness.until(i.RunEpoch)
    # The epoch before the rescale writes all state in its own checkpoint, and reads no input.
    assert run.tasks[0].writes_state and run.tasks[0].checkpoint is not None and not run.tasks[0].reads
    harness.report(run)
    opened = harness.until(i.OpenSlots)
    assert widths(opened) == [1, 3]
    assert [type(x) for x in harness.instructions if isinstance(x, (i.ReleaseSlots, i.OpenSlots))] == [
        i.OpenSlots,
        i.ReleaseSlots,
        i.OpenSlots,
    ]
    assert [v.parallelism for v in harness.machine.view.plan.vertices] == [1, 3]


def test_adaptive_job_continues_with_remaining_slots_after_a_failure() -> None:
    harness = adaptive()
    harness.until(i.CountSlots)
    counted(harness, 4)
    assert widths(harness.until(i.OpenSlots)) == [1, 4]
    harness.until(i.PollSources)
    run = harness.poll()
    harness.send(e.InstructionFailed(error=EpochFailed("a machine died")))
    counted(harness, 2)
    assert harness.until(i.CountSlots).desired == 4
    opened = harness.until(i.OpenSlots)
    assert widths(opened) == [1, 2] and run is not None
    assert harness.machine.view.restarts == 1


def test_adaptive_job_accepts_new_bounds_and_refuses_manual_rescaling() -> None:
    harness = adaptive()
    harness.until(i.CountSlots)
    counted(harness, 4)
    harness.until(i.PollSources)
    source, sums = (v.head.id for v in harness.plan.vertices)
    smaller = RequirementsRequest({source: Bounds(1, 1), sums: Bounds(1, 2)})
    harness.found_nothing()
    instructions = harness.send(e.Requested(request=smaller))
    assert instructions == [i.CountSlots(desired=2), i.Answer(request=smaller, result=None)]
    bounds = harness.machine.view.bounds
    assert bounds is not None and [b.upper for b in bounds.values()] == [1, 2]
    harness.report(harness.until(i.RunEpoch))
    assert widths(harness.until(i.OpenSlots)) == [1, 2]
    harness.until(i.PollSources)
    harness.found_nothing()
    by_hand, wrong = RescaleRequest(3), RequirementsRequest({sums: Bounds(1, 2)})
    harness.send(e.Requested(request=by_hand))
    assert "follows the available slots" in str(harness.until(i.Refuse).error)
    refused = harness.send(e.Requested(request=wrong))
    assert isinstance(refused[0], i.Refuse) and "name every vertex" in str(refused[0].error)


def test_job_machine_hanging_epoch_fails_with_the_checkpoint_timeout() -> None:
    harness = MachineHarness()
    harness.start()
    harness.epoch("output")
    harness.until(i.PollSources)
    harness.now += 1000.0
    run = harness.poll()
    timeout = harness.machine._options.checkpoints.timeout
    assert run.timeout == timeout
    harness.now += timeout
    [hanging] = [x for x in explanations(harness.machine.view, {}, harness.now) if x.kind == "hanging epoch"]
    assert hanging.title == f"Epoch 2 has been running for {timeout:.0f} s"
    harness.send(e.InstructionFailed(error=EpochOverdue("Epoch 2 has not ended within a while")))
    finish = harness.until(i.Finish)
    assert "so checkpoints exceed execution.checkpointing.timeout" in str(finish.error)
    last = harness.machine.view.checkpoints.history[-1]
    assert last.status is CheckpointStatus.FAILED and "it took longer than" in str(last.failure)
    assert not [x for x in explanations(harness.machine.view, {}, harness.now) if x.kind == "hanging epoch"]


def test_diagram_names_exactly_the_phases() -> None:
    diagram = re.findall("^    .*", job_machine.__doc__ or "", re.MULTILINE)
    assert set(re.findall("[A-Z][A-Z_]+", "\n".join(diagram))) == {phase.name for phase in JobPhase}
