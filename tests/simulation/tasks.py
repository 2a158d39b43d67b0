"""Simulated tasks of an execution: they read, request, count, write state and stage output, or fail meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.errors import DamagedStateError, StateLostError
from millstream.jobmaster.engine import QUICK, EpochFailed
from millstream.operators.async_io import REQUESTS
from millstream.operators.runtime.blocks import END_OF_INPUT, WATERMARK, AddressedBlock, Layout
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport, SubtaskReport
from millstream.operators.runtime.runtime_snapshot import PendingRange, decode, encode
from millstream.state.key_groups import key_group, owner
from millstream.state.keyed import KeyedState, Version
from millstream.state.kinds import LIST, VALUE
from millstream.state.table import BY_NAME

from .program import MAX_PARALLELISM, Names, Record, count
from .receiver import Receiver
from .scene import Scene
from .storage import TaskStorage
from .world import DriverDied, Injected

# A runtime snapshot, as `Subtask` writes it.
_encode_snapshot = partial(encode, idle=False, channels={}, operators={}, watermarks={})


@dataclass
class _Work:
    """One subtask's work in an epoch, and its effects if it succeeds."""

    report: SubtaskReport
    transactions: list[tuple[str, str, list[Any]]]
    files: dict[str, bytes]


class SimulatedTasks:
    """Runs the epochs of one execution; follows `EpochRunner`."""

    slices = QUICK

    def __init__(self, scene: Scene, plan: JobPlan, attempt: int, state_url: str) -> None:
        self._scene = scene
        self._world = scene.world
        self.resident_slots = scene.setup.resident_slots
        self._plan = plan
        self._attempt = attempt
        self._storage = TaskStorage(scene.disk, state_url)
        self._states: dict[tuple[int, int], KeyedState] = {}
        self._requests: dict[tuple[int, int], KeyedState] = {}
        self._is_cancelled = False
        self._has_lost_slot = False

    def open(self, lost: Callable[[], None]) -> None:
        self._world.step("open")
        if self._world.faults.strikes("slot lost"):
            self._world.after(3 * self._world.random.random(), partial(self._lose_slot, lost), self._world.driver)

    def _lose_slot(self, lost: Callable[[], None]) -> None:
        if self._world.driver is not None:
            self._world.note(f"a slot of attempt {self._attempt} is lost")
            self._has_lost_slot = True
            lost()

    def release(self) -> None:
        self._world.step("release")

    def cancel(self) -> None:
        self._is_cancelled = True

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        world = self._world
        world.step("epoch")
        if self._has_lost_slot:
            raise EpochFailed("a slot is lost")
        if world.verbose:
            world.note(f"runs epoch {tasks[0].epoch} of attempt {self._attempt}, checkpoint {tasks[0].checkpoint}")
        if not self.resident_slots and world.random.random() < 0.2:
            world.note("slots run in new processes")
            self._states.clear()
        region_works = [w for v in range(0, len(self._plan.vertices), 2) for w in self._run_region(v, tasks)]
        self._apply_effects(region_works)
        return [SlotReport(level=0, slot=0, subtasks=[w.report for w in region_works], printed="")]

    def _apply_effects(self, region_works: list[_Work]) -> None:
        """Write state and stage output of all tasks, or of some if one fails."""
        world = self._world
        todo = list(region_works)
        world.random.shuffle(todo)
        failing = world.random.randrange(len(todo)) if todo and world.faults.strikes("task") else -1
        try:
            while todo:
                world.sleep(self._scene.setup.epoch_seconds * world.random.random() / len(region_works))
                world.step("task")
                work = todo.pop()
                if self._is_cancelled:
                    raise EpochFailed("the job was cancelled")
                if len(todo) == failing:
                    raise self._failed(work)
                self._finish(work)
        except (DriverDied, Injected, EpochFailed):
            # The other tasks do not know of the failure yet; some of them still stage their output.
            for work in todo:
                if world.random.random() < 0.6:
                    world.after(world.random.random() * 8, partial(self._finish, work))
            raise

    def _failed(self, work: _Work) -> EpochFailed:
        nodes = self._plan.vertices[work.report.vertex].nodes
        operator = self._world.random.choice([None, *(n.id for n in nodes)])
        self._world.note(f"a task of operator {operator} fails")
        return EpochFailed("a task failed", operator_id=operator, subtask=work.report.subtask)

    def _finish(self, work: _Work) -> None:
        for path, data in work.files.items():
            self._scene.disk.put(path, data)
        for name, sink, records in work.transactions:
            self._scene.external.stage(name, sink, records)

    def _run_region(self, vertex: int, tasks: list[LevelTask]) -> list[_Work]:
        source, counter = self._plan.vertices[vertex : vertex + 2]
        edge, names = counter.in_edges[0], Names(vertex // 2)
        region_works = []
        blocks: list[list[AddressedBlock]] = [[] for _ in range(counter.parallelism)]
        for subtask in range(source.parallelism):
            if _has_ended(tasks[0], vertex, subtask):
                region_works += self._keep_state(f"{names.source}.operator", vertex, subtask, tasks[0], self._requests)
                continue
            read, pending = self._read(tasks[0], vertex, subtask)
            records, in_flight, state = self._request(f"{names.source}.operator", vertex, subtask, tasks[0], read)
            ends = vertex in tasks[0].ending and not pending and not in_flight
            snapshots = {f"{names.source}.operator": self._save(state, tasks[0])}
            for target, block in enumerate(_blocks(edge.layout, records, tasks[0].epoch, ends, counter.parallelism)):
                blocks[target].append(AddressedBlock(1, target, edge.id, subtask, 0, block))
            staged = [r.id for r in records]
            runtime_snapshot = _encode_snapshot(
                ended=ends, watermark=tasks[0].epoch, pending_ranges=pending, requests=in_flight > 0
            )
            work = self._work(tasks[0].epoch, vertex, subtask, names.records, staged, snapshots, runtime_snapshot, ends)
            holds = ends and not tasks[0].writes_state
            report = replace(work.report, holds_state=holds, **self._request_fields(in_flight))
            region_works.append(replace(work, report=report))
        for subtask, arrived in enumerate(blocks):
            if _has_ended(tasks[1], vertex + 1, subtask):
                region_works += self._keep_state(names.counter, vertex + 1, subtask, tasks[1], self._states)
                continue
            receiver = Receiver(self._world, counter, subtask, source.parallelism, tasks[1])
            records = receiver.take(arrived)
            counted, file = self._count(names.counter, vertex + 1, subtask, tasks[1], records)
            work = self._work(
                tasks[1].epoch,
                vertex + 1,
                subtask,
                names.counts,
                counted,
                {names.counter: file},
                receiver.runtime_snapshot(),
                receiver.has_ended,
            )
            holds = receiver.has_ended and not tasks[1].writes_state
            region_works.append(replace(work, report=replace(work.report, holds_state=holds)))
        counters = [w.report for w in region_works if w.report.vertex == vertex + 1]
        if counters and all(r.ended for r in counters):
            self._check_state(vertex, tasks[1])
        return region_works

    def _read(self, task: LevelTask, vertex: int, subtask: int) -> tuple[list[Record], list[PendingRange]]:
        """Read all or part of a source subtask's split ranges; return the records and the remaining ranges."""
        before = task.runtime_snapshots.get((vertex, subtask))
        todo = list(decode(before).pending_ranges) if before else []
        todo += [(s[0].id[1], s, 0) for s in task.split_ranges.get(vertex, {}).get(subtask, [])]
        records = [(position, r) for position, (_, split_range, read) in enumerate(todo) for r in split_range[read:]]
        count = len(records)
        may_read = task.reads and vertex not in task.paused_sources
        if not may_read:
            count = 0
        elif task.slice < math.inf and count and self._world.random.random() < 0.5:
            # At least one record, so that the job ends.
            count = self._world.random.randint(1, count)
        unread = [position for position, _ in records[count:]]
        pending = [(todo[p][0], todo[p][1], len(todo[p][1]) - unread.count(p)) for p in sorted(set(unread))]
        return [r for _, r in records[:count]], pending

    def _request(
        self, state_id: str, vertex: int, subtask: int, task: LevelTask, records: list[Record]
    ) -> tuple[list[Record], int, KeyedState]:
        """Request all records; return those with a response, the number of requests in flight, and their state."""
        state = self._requests.get((vertex, subtask))
        if state is None:
            state = self._requests[vertex, subtask] = KeyedState(state_id, subtask, self._storage, lambda: 0)
        self._prepare(state, state_id, vertex, subtask, task)
        state.begin()
        table = state.table(REQUESTS, LIST, BY_NAME)
        pending = [*(table.get("operator") or ()), *records]
        count = len(pending)
        if task.slice < math.inf and self._world.random.random() < 0.5:
            count = self._world.random.randint(0, count)
        if pending[count:]:
            table.put("operator", pending[count:])
        else:
            table.remove("operator")
        return pending[:count], len(pending) - count, state

    def _save(self, state: KeyedState, task: LevelTask) -> Version:
        """Write the changes or hold them in memory; return the version with the state."""
        if task.writes_state or not state.can_hold:
            return state.write_delta(task.epoch, str(self._attempt), task.whole_state)
        return state.hold(task.epoch)

    def _keep_state(
        self, state_id: str, vertex: int, subtask: int, task: LevelTask, states: dict[tuple[int, int], KeyedState]
    ) -> list[_Work]:
        """Write the state of a subtask that has ended, if required."""
        if not task.needs_state_of((vertex, subtask)):
            return []
        held = task.held_state_epochs.get((vertex, subtask))
        if held is None:
            states[vertex, subtask] = KeyedState(state_id, subtask, self._storage, lambda: 0)
        state = states[vertex, subtask]
        self._prepare(state, state_id, vertex, subtask, replace(task, held_epoch=held))
        state.begin()
        file = state.write_delta(task.epoch, str(self._attempt), task.whole_state)
        return [
            self._work(
                task.epoch, vertex, subtask, "", [], {state_id: file}, task.runtime_snapshots[vertex, subtask], True
            )
        ]

    def _request_fields(self, in_flight: int) -> dict[str, Any]:
        """Return the fields of a subtask's report about its requests."""
        if not in_flight:
            return {}
        return {
            "poll_after_seconds": self._world.random.random() / 10,
            "at_capacity": self._world.random.random() < 0.5,
        }

    def _prepare(self, state: KeyedState, state_id: str, vertex: int, subtask: int, task: LevelTask) -> None:
        """Restore a state to its version before an epoch."""
        try:
            state.prepare(task.state_files.get((vertex, subtask), {}).get(state_id), task.held_epoch)
        except (DamagedStateError, StateLostError) as e:
            self._world.violate(str(e))

    def _check_state(self, vertex: int, task: LevelTask) -> None:
        """Check at the end of a region's input that its state includes all records exactly once."""
        if self._scene.setup.mode is CheckpointingMode.AT_MOST_ONCE:
            return
        expected = count(self._scene.records[vertex // 2])
        actual: dict[int, tuple[int, int]] = {}
        for subtask in range(self._plan.vertices[vertex + 1].parallelism):
            if (vertex + 1, subtask) not in self._states:
                # It had ended before this execution began.
                self._state(Names(vertex // 2).counter, vertex + 1, subtask, task)
            actual.update(self._states[vertex + 1, subtask].rows("counts"))
        if actual != expected:
            self._world.violate(f"the state of {Names(vertex // 2).counter} is {actual}, not {expected}")

    def _count(
        self, operator: str, vertex: int, subtask: int, task: LevelTask, records: list[Record]
    ) -> tuple[list[Any], Version]:
        """Count records by key; return the output and the version with the state."""
        state = self._state(operator, vertex, subtask, task)
        state.begin()
        table = state.table("counts", VALUE)
        counted = []
        for record in records:
            number, total = table.overlay.get(record.key) or table.base.get(record.key) or (0, 0)
            number, total = table.overlay[record.key] = number + 1, total + record.value
            counted.append((record.id, record.key, number, total))
        return counted, self._save(state, task)

    def _state(self, operator: str, vertex: int, subtask: int, task: LevelTask) -> KeyedState:
        """Return a counter's state before an epoch."""
        state = self._states.get((vertex, subtask))
        if state is None:
            state = self._states[vertex, subtask] = KeyedState(operator, subtask, self._storage, lambda: 0)
        self._prepare(state, operator, vertex, subtask, task)
        return state

    def _work(
        self,
        epoch: int,
        vertex: int,
        subtask: int,
        sink: str,
        output: list[Any],
        state_files: dict[str, Version],
        runtime_snapshot: bytes,
        ends: bool,
    ) -> _Work:
        name = f"{self._plan.settings.job_id}-{sink}-{subtask}-{epoch}-{self._attempt}"
        transactions = [(name, sink, output)] if output else []
        committables = {sink: name} if output else {}
        report = SubtaskReport(
            vertex=vertex,
            subtask=subtask,
            records_in=len(output),
            records_out=0,
            bytes_out=0,
            state_files=state_files,
            state_bytes=0,
            committables=committables,
            watermark=0,
            metrics={},
            runtime_snapshot=runtime_snapshot,
            next_wake=None,
            aligned={},
            ended=ends,
            tables={},
            exported={},
        )
        files, self._storage.unwritten = self._storage.unwritten, {}
        return _Work(report, transactions, files)


def _blocks(layout: Layout, records: list[Record], epoch: int, ends: bool, parallelism: int) -> list[bytes]:
    """Return a source subtask's block for each counter: records with the epoch as timestamp, and a watermark."""
    blocks = []
    for target in range(parallelism):
        own = [r for r in records if owner(key_group(r.key, MAX_PARALLELISM), parallelism, MAX_PARALLELISM) == target]
        block = layout.block_of((None, r, epoch) for r in own)
        block.add_control(WATERMARK, epoch)
        if ends:
            block.add_control(END_OF_INPUT, 0)
        blocks.append(block.encode())
    return blocks


def _has_ended(task: LevelTask, vertex: int, subtask: int) -> bool:
    snapshot = task.runtime_snapshots.get((vertex, subtask))
    return bool(snapshot) and decode(snapshot).ended  # type: ignore[arg-type]
