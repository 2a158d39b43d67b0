"""Runs the subtasks of one slot: subtask i of every vertex, level by level.

It splits the messages that a level receives into blocks for its subtasks, and joins the blocks that they send into
messages for the slots of the next level. Reports travel to the last level in the same messages.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from millstream.common.aliases import Key, Value
from millstream.common.faults import fault_point
from millstream.common.pickles import dump
from millstream.operators.base import RuntimeServices
from millstream.operators.diagnostics.failures import Failure, SubtaskFailed
from millstream.operators.diagnostics.io_metrics import SlotTraffic
from millstream.operators.diagnostics.memory_watch import explain, largest
from millstream.operators.diagnostics.sampling import Sampler
from millstream.operators.runtime.blocks import ACK_EDGE, AddressedBlock, in_memory, join_blocks, split_blocks
from millstream.operators.runtime.budget import Budget
from millstream.operators.runtime.messages import JobPlan, LevelTask, LogLine, SlotLocation, SlotReport, SubtaskReport
from millstream.operators.runtime.subtask import Subtask
from millstream.state.keyed import KeyedState, StateStorage
from millstream.state.spill_file import SpillFile

# Target size of a message of blocks for one slot.
MESSAGE_BYTES = 1 << 20

# Minimum fraction of a slice for each subtask, however much the others have used: pending input after an exchange is
# expensive, because it becomes part of the runtime snapshot.
_MIN_SHARE = 0.5

# In BATCH, received blocks may use 1/4 of the operators' memory budget before they are spilled.
_WAITING_SHARE = 4


def _nothing_printed() -> str:
    return ""


def _no_traffic() -> SlotTraffic | None:
    return None


class SlotRunner:
    """Runs the subtasks of one slot of one job."""

    # Returns the text that user code has printed since the last call.
    take_printed: Callable[[], str] = staticmethod(_nothing_printed)
    # Returns the I/O metrics of a resident slot.
    take_traffic: Callable[[], SlotTraffic | None] = staticmethod(_no_traffic)
    # Returns the log lines since the last call.
    take_logged: Callable[[], list[LogLine]] = staticmethod(list)

    # The slot's location; a resident slot reports it once.
    location: SlotLocation | None = None
    is_resident = False

    # Samples the slot's stack on request.
    sampler: Sampler | None = None

    def __init__(self, plan: JobPlan, slot: int, storage: StateStorage, services: RuntimeServices) -> None:
        self._plan = plan
        self._slot = slot
        self._stopwatch = services.stopwatch
        self._resident = services.resident
        # The current epoch and its start time.
        self._epoch = -1
        self._began = 0.0
        by_id = {v.id: v for v in plan.vertices}
        self._vertices = by_id
        self._edges = {e.id: e for v in plan.vertices for e in v.out_edges}
        parallelisms = {v.id: (v.parallelism, v.max_parallelism) for v in plan.vertices}
        memory = plan.settings.batch_memory if plan.settings.batch else None
        budget = Budget(memory)
        # Received blocks that exceed the memory limit.
        self._max_waiting = None if memory is None else memory // _WAITING_SHARE
        self._spilled = SpillFile()
        self._subtasks = {
            v.id: Subtask(v, slot - v.slot_offset, parallelisms, plan.settings, storage, services, budget)
            # Sources last in a level, so that downstream levels need not wait for them.
            for v in sorted(plan.vertices, key=lambda v: v.is_source)
            if 0 <= slot - v.slot_offset < v.parallelism
        }

    def run(self, task: LevelTask, attempt: str, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Run one level: yield (slot, message) for the next level, or the reports after the last."""
        if task.epoch != self._epoch:
            self._epoch, self._began = task.epoch, self._stopwatch()
        last = task.level == self._plan.levels - 1
        sampler = self.sampler if task.samples_stacks else None
        if sampler is not None:
            sampler.begin()
        outbox = _Outbox(task.level, 0 if last else self._plan.slots(task.level + 1))
        blocks, passing = self._sort(task.level, messages)
        for block in passing:
            yield from outbox.add(block)
        del passing
        subtasks: list[SubtaskReport] = []
        for subtask in self._subtasks.values():
            if subtask.vertex.level != task.level:
                continue
            if self._has_ended(subtask, task):
                if task.needs_state_of((subtask.vertex.id, subtask.index)):
                    subtasks.append(subtask.write_final_state(task, attempt))
            else:
                if sampler is not None:
                    sampler.enter(subtask.vertex.id)
                seconds, since = 0.0, self._stopwatch()
                subtask.begin(task, attempt)
                for message in self._run_subtask(subtask, task, blocks.pop(subtask.vertex.id, []), outbox):
                    seconds += self._stopwatch() - since
                    yield message
                    since = self._stopwatch()
                fault_point("task.before-report")
                report = subtask.report()
                subtasks.append(replace(report, seconds=seconds + self._stopwatch() - since))
                fault_point("task.after-report")
        self._check_memory(task.epoch)
        samples = {}
        if sampler is not None:
            sampler.enter(None)
            samples = sampler.take()
        own_report = SlotReport(
            level=task.level,
            slot=self._slot,
            subtasks=subtasks,
            printed=self.take_printed(),
            logged=self.take_logged(),
            traffic=self.take_traffic(),
            samples=samples,
            location=self.location,
        )
        if self.is_resident:
            self.location = None
        if last:
            reports = [r for b in blocks.pop(ACK_EDGE, []) for r in pickle.loads(in_memory(b.body))]
            yield self._slot, dump([*reports, own_report])
            return
        last_level = self._plan.levels - 1
        ack_slot = self._slot % self._plan.slots(last_level)
        yield from outbox.add(AddressedBlock(last_level, ack_slot, ACK_EDGE, self._slot, 0, dump([own_report])))
        yield from outbox.drain()

    def too_large(self, message: bytes, max_bytes: int, epoch: int) -> SubtaskFailed:
        """Return the error for reports that are too large to send; it names the sink with the largest committable."""
        reports = [r for slot in pickle.loads(message) for r in slot.subtasks]
        sizes = [(len(dump(c)), i, r) for r in reports for i, c in r.committables.items()]
        size, operator_id, report = max(sizes, key=lambda s: s[0])
        vertex = self._vertices[report.vertex]
        node = next(n for n in vertex.nodes if n.id == operator_id)
        text = (
            f"The committable of this sink for one epoch has {size / 2**20:,.0f} MB, more than the "
            f"{max_bytes >> 20:,} MB that Spark transfers: collect less per epoch, or write to files."
        )
        failure = Failure(
            text, node.name, node.uid, node.id, report.subtask, vertex.parallelism, epoch, None, unrecoverable=True
        )
        return SubtaskFailed(failure)

    def _check_memory(self, epoch: int) -> None:
        """Fail if the slot exceeds its memory limit: an error here names the cause, a killed process does not."""
        share = self._plan.settings.slot_memory
        if share is None or (resident := self._resident()) <= share:
            return
        held = largest(self.states())
        places = [(n, s) for s in self._subtasks.values() for n in s.vertex.nodes]
        node, subtask = next((p for p in places if held is not None and p[0].id == held.operator), places[-1])
        failure = Failure(
            explain(resident, share, held),
            node.name,
            node.uid,
            node.id,
            subtask.index,
            subtask.vertex.parallelism,
            epoch,
            None,
        )
        raise SubtaskFailed(failure)

    def _has_ended(self, subtask: Subtask, task: LevelTask) -> bool:
        # A process that started after the subtask had ended learns of it here.
        subtask.catch_up(task.runtime_snapshots.get((subtask.vertex.id, subtask.index), b""))
        return subtask.ended

    def states(self) -> Iterator[tuple[str, KeyedState]]:
        """Yield the states of all subtasks with their ids."""
        for subtask in self._subtasks.values():
            yield from subtask.states()

    def state_rows(self, table: str) -> Iterator[tuple[Key, Value]]:
        """Yield the rows of the state tables with this name."""
        for _, state in self.states():
            yield from state.rows(table)

    def end_requests(self) -> None:
        """Cancel the requests in flight, as the end of a process does; functions stay open."""
        for subtask in self._subtasks.values():
            subtask.end_requests()

    def close(self) -> None:
        """Close the open functions of all subtasks."""
        for subtask in self._subtasks.values():
            subtask.close()

    def _run_subtask(
        self, subtask: Subtask, task: LevelTask, blocks: list[AddressedBlock], outbox: _Outbox
    ) -> Iterator[tuple[int, bytes]]:
        vertex = subtask.vertex
        if vertex.is_source:
            ranges = task.split_ranges.get(vertex.id, {}).get(subtask.index, [])
            may_read = task.reads and vertex.id not in task.paused_sources
            seconds = self._time_left(task) if may_read else 0.0
            outgoing = subtask.read_splits(ranges, vertex.id in task.ending, seconds)
        else:
            outgoing = subtask.process_blocks(blocks, self._time_left(task))
        numbers: dict[tuple[int, int], int] = {}
        for edge, target, block in outgoing:
            number = numbers[edge.id, target] = numbers.get((edge.id, target), -1) + 1
            next_vertex = self._vertices[edge.target]
            slot = next_vertex.slot_offset + target
            yield from outbox.add(AddressedBlock(next_vertex.level, slot, edge.id, subtask.index, number, block))

    def _time_left(self, task: LevelTask) -> float:
        """Return the seconds that a subtask may work: the rest of the slice, but at least a fraction of it."""
        return max(self._began + task.slice - self._stopwatch(), task.slice * _MIN_SHARE)

    def _sort(
        self, level: int, messages: Iterable[bytes]
    ) -> tuple[dict[int, list[AddressedBlock]], list[AddressedBlock]]:
        """Separate the blocks for this level, by vertex, from those to forward."""
        own_blocks: dict[int, list[AddressedBlock]] = {}
        passing: list[AddressedBlock] = []
        size = 0
        self._spilled.clear()
        for message in messages:
            size += len(message)
            is_too_much = self._max_waiting is not None and size > self._max_waiting
            for block in split_blocks(message):
                if is_too_much and block.edge != ACK_EDGE:
                    block = replace(block, body=OnDisk(self._spilled, in_memory(block.body)))
                if block.level != level:
                    passing.append(block)
                elif block.edge == ACK_EDGE:
                    own_blocks.setdefault(ACK_EDGE, []).append(block)
                else:
                    own_blocks.setdefault(self._edges[block.edge].target, []).append(block)
        return own_blocks, passing


class OnDisk:
    """A spilled block; implements `Stored`."""

    __slots__ = ("_file", "_location")

    def __init__(self, file: SpillFile, body: bytes | memoryview) -> None:
        self._file = file
        self._location = file.write(body)

    def __len__(self) -> int:
        return self._location[1]

    def __bytes__(self) -> bytes:
        return self._file.read(self._location)


class _Outbox:
    """Collects blocks into messages for the slots of the next level."""

    def __init__(self, level: int, next_slots: int) -> None:
        self._next_level = level + 1
        self._slots = next_slots
        self._blocks: dict[int, list[AddressedBlock]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, block: AddressedBlock) -> Iterator[tuple[int, bytes]]:
        # A forwarded block may use any slot of the next level, but always the same one.
        slot = block.slot if block.level == self._next_level else block.slot % self._slots
        self._blocks.setdefault(slot, []).append(block)
        self._sizes[slot] = self._sizes.get(slot, 0) + len(block.body)
        if self._sizes[slot] >= MESSAGE_BYTES:
            yield slot, self._take(slot)

    def drain(self) -> Iterator[tuple[int, bytes]]:
        for slot in list(self._blocks):
            yield slot, self._take(slot)

    def _take(self, slot: int) -> bytes:
        del self._sizes[slot]
        return join_blocks(self._blocks.pop(slot))
