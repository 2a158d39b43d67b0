"""The state of a subtask's operators: loaded at the start of an epoch, written or held at its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millstream.common.checksums import Checksum
from millstream.operators.diagnostics.user_code_guard import Guard
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.messages import LevelTask
from millstream.operators.runtime.vertex import JobSettings
from millstream.state.keyed import KeyedState, StateStorage, Version
from millstream.state.restored import StoredState


class SubtaskState:
    """The states of a subtask's operators.

    Attributes:
        by_id: the states by id: keyed state has its operator's id, operator state that id and `.operator`.
    """

    def __init__(self, index: int, storage: StateStorage, clock: Callable[[], int], settings: JobSettings) -> None:
        self.by_id: dict[str, KeyedState] = {}
        self._index = index
        self._storage = storage
        self._clock = clock
        self._settings = settings
        self._nodes: dict[str, ChainNode] = {}

    def keyed(self, node: ChainNode) -> KeyedState | None:
        """Create the keyed state of an operator, if it has any."""
        if not node.operator.keyed:
            return None
        state = KeyedState(
            node.id,
            self._index,
            self._storage,
            self._clock,
            self._settings.state_backend,
            self._settings.compressed,
            self._settings.digests,
        )
        return self._add(node.id, state, node)

    def own(self, node: ChainNode) -> KeyedState | None:
        """Create the operator state of an operator, if it has any."""
        if not node.operator.has_operator_state:
            return None
        state_id = f"{node.id}.operator"
        state = KeyedState(state_id, self._index, self._storage, self._clock, digests=self._settings.digests)
        return self._add(state_id, state, node)

    def _add(self, state_id: str, state: KeyedState, node: ChainNode) -> KeyedState:
        self.by_id[state_id], self._nodes[state_id] = state, node
        return state

    def load(self, files: dict[str, Version], held_epoch: int | None, guard: Guard) -> None:
        """Load the state of the latest files and start an epoch."""
        for state_id, state in self.by_id.items():
            guard.call(partial(state.prepare, files.get(state_id), held_epoch), self._nodes[state_id])
            state.begin()

    def was_local(self) -> bool | None:
        """Return whether all state was in memory at the start of the epoch; None if there was none."""
        local = [state.was_local for state in self.by_id.values() if state.was_local is not None]
        return all(local) if local else None

    def write(self, task: LevelTask, attempt: str, to_files: bool, guard: Guard) -> dict[str, Version]:
        """Write state changes to files or hold them in memory; return the latest files."""
        files: dict[str, Version] = {}
        for state_id, state in self.by_id.items():
            save: Callable[[], Version] = partial(state.hold, task.epoch)
            if to_files or not state.can_hold:
                save = partial(state.write_delta, task.epoch, attempt, task.whole_state)
            files[state_id] = guard.call(save, self._nodes[state_id])
        return files

    def checksums(self, files: dict[str, Version]) -> dict[str, Checksum]:
        """Return the checksums of the latest files, by state id."""
        checksums = {i: self.by_id[i].checksum for i, file in files.items() if isinstance(file, str)}
        return {i: checksum for i, checksum in checksums.items() if checksum is not None}

    def export(self, task: LevelTask, attempt: str, max_parallelism: int) -> dict[str, StoredState]:
        """Export the state for a savepoint, if one is taken."""
        if task.savepoint is None:
            return {}
        parts = {i: s.export(task.savepoint, max_parallelism, attempt) for i, s in self.by_id.items()}
        return {i: part for i, part in parts.items() if part is not None}

    def take_written(self) -> int:
        """Return the number of bytes written since the last call."""
        return sum(s.take_written() for s in self.by_id.values())

    def describe(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the state tables, by state id."""
        return {i: s.describe() for i, s in self.by_id.items()}
