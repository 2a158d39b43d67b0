"""One execution of a job: its plan, how far its sources are dealt out, and what its subtasks have left behind.

A job that fails and restarts, or that is given another parallelism, goes on as a new execution.
"""

from __future__ import annotations

from typing import Any

from millstream.checkpoint.restore import Start, edges_of
from millstream.checkpoint.snapshot import (
    OperatorSnapshot,
    Snapshot,
    SubtaskSnapshot,
    VertexSnapshot,
    operator_of,
    pack,
    unpack,
)
from millstream.jobmaster.alignment import Alignment
from millstream.operators.report import SubtaskReport
from millstream.operators.slot import JobPlan, LevelTask, SlotReport
from millstream.operators.source import SourceOperator, SplitEnumerator
from millstream.operators.vertex import Vertex
from millstream.state.keyed import Version
from millstream.state.restored import Restored, StoredState

Shares = dict[int, dict[int, list[Any]]]


class Execution:
    """What the driver knows between two epochs."""

    def __init__(self, plan: JobPlan, start: Start) -> None:
        self.plan = plan
        self.epoch = start.epoch
        # By source vertex.
        self.sources: dict[int, SplitEnumerator] = {}
        # The sources that have ended, and with them the vertices behind.
        self.ended = start.ended
        self._state_files: dict[tuple[int, int], dict[str, Version]] = start.state_files
        self._chains = start.chains
        self._carried = start.carried
        # What is known of the tables of each state.
        self._tables: dict[str, dict[str, dict[str, str]]] = dict(start.tables)
        self._exported: dict[tuple[int, int], dict[str, StoredState]] = {}
        self._written = 0
        self._held = start.held
        # When subtasks have something to do without input.
        self._wakes: dict[tuple[int, int], int] = {}
        self.alignment = Alignment(plan)
        for vertex in plan.vertices:
            operator = vertex.head.operator
            if isinstance(operator, SourceOperator):
                state = start.sources.get(vertex.head.id)
                restored = None if state is None else unpack(state)
                self.sources[vertex.id] = operator.source.create_enumerator(vertex.parallelism, restored)

    @property
    def is_finished(self) -> bool:
        return all(v in self.ended for v in self.sources)

    @property
    def owns_its_state(self) -> bool:
        """Whether the state is all in files of this execution's own: only then does a snapshot hold it.

        What is taken over from another job or another parallelism is made its own by the first epoch.
        """
        return not any(
            isinstance(version, Restored)
            for (vertex, _), files in self._state_files.items()
            if vertex not in self.ended
            for version in files.values()
        )

    def running_sources(self) -> dict[int, SplitEnumerator]:
        return {v: s for v, s in self.sources.items() if v not in self.ended}

    def poll(self, budget: int, now: float) -> tuple[Shares, bool]:
        """Deal out the next input; tell also whether there is more than the budget allowed."""
        shares: Shares = {}
        limited = False
        for vertex, source in self.running_sources().items():
            if self.alignment.holds_back(vertex):
                continue
            dealt = source.poll(budget, now)
            limited |= dealt.limited
            if dealt.shares:
                shares[vertex] = dealt.shares
        return shares, limited

    def next_wake(self) -> int | None:
        """Return when, in milliseconds, there is something to do without input."""
        return min(self._wakes.values(), default=None)

    def tasks(self, shares: Shares, ending: frozenset[int], **about: Any) -> list[LevelTask]:
        """Return what the levels of the next epoch are told; `about` are further fields of LevelTask."""
        self.epoch += 1
        tasks = [LevelTask(self.epoch, level, **about) for level in range(self.plan.levels)]
        for vertex in self.plan.vertices:
            task = tasks[vertex.level]
            if vertex.id in shares:
                task.shares[vertex.id] = shares[vertex.id]
            if vertex.id in ending:
                task.ending |= {vertex.id}
            for subtask in range(vertex.parallelism):
                address = vertex.id, subtask
                if files := self._state_files.get(address):
                    task.state_files[address] = files
                if carried := self._carried.get(address):
                    task.carried[address] = carried
        return tasks

    def acknowledge(self, reports: list[SlotReport]) -> tuple[list[str], bool]:
        """Everything an epoch did counts from here on.

        Returns the names of the state files it has written, and whether files became unneeded.
        """
        written: list[str] = []
        replaced = False
        for report in (r for slot in reports for r in slot.subtasks):
            replaced |= self._keep(report, written)
        if not any(isinstance(v, Restored) for files in self._state_files.values() for v in files.values()):
            self._held = set()
        over = {v.id for v in self.plan.vertices if self._has_ended(v, reports)}
        self.ended |= over
        return written, replaced

    def _has_ended(self, vertex: Vertex, reports: list[SlotReport]) -> bool:
        mine = [r.ended for slot in reports for r in slot.subtasks if r.vertex == vertex.id]
        return bool(mine) and all(mine)

    def _keep(self, report: SubtaskReport, written: list[str]) -> bool:
        address = report.vertex, report.subtask
        self._carried[address] = report.carried
        self._wakes.pop(address, None)
        if report.next_wake is not None:
            self._wakes[address] = report.next_wake
        self._written += report.state_bytes
        self.alignment.learn(report)
        for state_id, tables in report.tables.items():
            # A subtask, or a run, may not have come to ask for all of them. Snapshots hold on to the dicts as they are.
            known = self._tables.get(state_id, {})
            about = {name: {**known.get(name, {}), **now} for name, now in tables.items()}
            self._tables[state_id] = {**known, **about}
        self._exported[address] = report.exported
        replaced = False
        if report.state_files:
            self._state_files[address] = report.state_files
        for state_id, name in report.state_files.items():
            chain = self._chains.setdefault((*address, state_id), [])
            if name is None or (chain and chain[-1] == name):
                continue
            assert isinstance(name, str)
            written.append(name)
            if name.endswith(".base"):
                replaced |= bool(chain)
                chain.clear()
            chain.append(name)
        return replaced

    def take_written(self) -> int:
        """Return how many bytes of state were written since this was last asked."""
        written, self._written = self._written, 0
        return written

    def live_files(self) -> set[str]:
        """Return the names of the state files that the next epoch may need."""
        return {name for chain in self._chains.values() for name in chain} | self._held

    def snapshot(self) -> Snapshot:
        """Return the cut at the end of the last epoch, without staged output."""
        settings = self.plan.settings
        return Snapshot(
            settings.job_id,
            settings.job_name,
            self.epoch,
            {v.head.id: self._vertex(v) for v in self.plan.vertices},
            edges_of(self.plan),
            {v.head.id: pack(self.sources[v.id].snapshot()) for v in self.plan.vertices if v.id in self.sources},
        )

    def _vertex(self, vertex: Vertex) -> VertexSnapshot:
        operators = []
        for node in vertex.nodes:
            tables = {operator_of(i)[1]: t for i, t in self._tables.items() if operator_of(i)[0] == node.id}
            operators.append(OperatorSnapshot(node.id, node.uid, node.name, tables))
        subtasks = [
            SubtaskSnapshot(
                {i: list(c) for (v, s, i), c in self._chains.items() if (v, s) == (vertex.id, subtask) and c},
                {},
                self._carried.get((vertex.id, subtask), b""),
            )
            for subtask in range(vertex.parallelism)
        ]
        return VertexSnapshot(operators, vertex.max_parallelism, subtasks, vertex.id in self.ended)

    def savepoint(self) -> Snapshot:
        """Return the cut at the end of the last epoch, which was a savepoint's: with parts in place of chains."""
        snapshot = self.snapshot()
        for vertex in self.plan.vertices:
            for subtask, found in enumerate(snapshot.vertices[vertex.head.id].subtasks):
                found.states = {}
                exported = self._exported.get((vertex.id, subtask), {})
                found.parts = {i: StoredState(p.file.rpartition("/")[2], p.checksum) for i, p in exported.items()}
        return snapshot
