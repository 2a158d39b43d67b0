"""Splits an epoch's tasks by slot.

Split ranges, state files and runtime snapshots belong to one subtask each. Sending all of them to all slots would grow
with the square of the number of slots.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.operators.runtime.messages import Address, JobPlan, LevelTask, SplitRanges
from millstream.state.keyed import Version

# The parts of a level task that belong to one slot: split ranges, state files, runtime snapshots.
Own = tuple[SplitRanges, dict[Address, dict[str, Version]], dict[Address, bytes]]
# By level; levels without such parts are left out.
OwnLevels = dict[int, Own]


class SlotTaskSplitter:
    """Splits tasks into a common part and one part per slot."""

    def __init__(self, plan: JobPlan) -> None:
        self._offsets = {v.id: v.slot_offset for v in plan.vertices}
        self._slots = max(plan.slots(level) for level in range(plan.levels))

    def split(self, tasks: list[LevelTask]) -> tuple[list[LevelTask], list[OwnLevels]]:
        """Return the common tasks, and the parts of each slot."""
        own: list[OwnLevels] = [{} for _ in range(self._slots)]
        for level, task in enumerate(tasks):
            for vertex, ranges in task.split_ranges.items():
                for subtask, subtask_ranges in ranges.items():
                    self._own(own, level, (vertex, subtask))[0][vertex] = {subtask: subtask_ranges}
            for address, files in task.state_files.items():
                self._own(own, level, address)[1][address] = files
            for address, snapshots in task.runtime_snapshots.items():
                self._own(own, level, address)[2][address] = snapshots
        return [replace(task, split_ranges={}, state_files={}, runtime_snapshots={}) for task in tasks], own

    def _own(self, own: list[OwnLevels], level: int, address: Address) -> Own:
        vertex, subtask = address
        return own[self._offsets[vertex] + subtask].setdefault(level, ({}, {}, {}))


def with_own(tasks: list[LevelTask], own: OwnLevels) -> list[LevelTask]:
    """Return the tasks of one slot, put together from both parts."""
    for level, (ranges, files, snapshots) in own.items():
        tasks[level] = replace(tasks[level], split_ranges=ranges, state_files=files, runtime_snapshots=snapshots)
    return tasks
