"""Which part of an epoch's tasks concerns one slot.

SplitRanges, state files and what is carried are of one subtask each. With all of them sent to all, what the driver sends
would grow with the square of the number of slots.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.operators.runtime.messages import Address, JobPlan, LevelTask, SplitRanges
from millstream.state.keyed import Version

# What a slot alone is told of a level: shares, state files, what is carried.
Own = tuple[SplitRanges, dict[Address, dict[str, Version]], dict[Address, bytes]]
# By level; levels of which there is nothing to tell are left out.
OwnLevels = dict[int, Own]


class SlotTaskSplitter:
    """Tells the slots of a job apart."""

    def __init__(self, plan: JobPlan) -> None:
        self._offsets = {v.id: v.slot_offset for v in plan.vertices}
        self._slots = max(plan.slots(level) for level in range(plan.levels))

    def deal(self, tasks: list[LevelTask]) -> tuple[list[LevelTask], list[OwnLevels]]:
        """Return what all slots are told, and what each of them."""
        own: list[OwnLevels] = [{} for _ in range(self._slots)]
        for level, task in enumerate(tasks):
            for vertex, shares in task.split_ranges.items():
                for subtask, share in shares.items():
                    self._own(own, level, (vertex, subtask))[0][vertex] = {subtask: share}
            for address, files in task.state_files.items():
                self._own(own, level, address)[1][address] = files
            for address, carried in task.runtime_snapshots.items():
                self._own(own, level, address)[2][address] = carried
        return [replace(task, split_ranges={}, state_files={}, runtime_snapshots={}) for task in tasks], own

    def _own(self, own: list[OwnLevels], level: int, address: Address) -> Own:
        vertex, subtask = address
        return own[self._offsets[vertex] + subtask].setdefault(level, ({}, {}, {}))


def with_own(tasks: list[LevelTask], own: OwnLevels) -> list[LevelTask]:
    """Return the tasks of one slot."""
    for level, (shares, files, carried) in own.items():
        tasks[level] = replace(tasks[level], split_ranges=shares, state_files=files, runtime_snapshots=carried)
    return tasks
