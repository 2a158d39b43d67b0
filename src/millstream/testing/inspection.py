"""Read-only views of the state of a job that runs in this process: a read does not renew the TTL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millstream.common.aliases import Key, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.immutability import detach
from millstream.operators.runtime.slot_runner import SlotRunner
from millstream.state.descriptors import AggregatingStateDescriptor
from millstream.state.key_groups import hashable, thaw
from millstream.state.keyed import KeyedState
from millstream.state.table import BY_KEY, BY_NAME, BY_NAMESPACE, BY_PANE, BY_TIME, StateTable

# The operators' names: see operators/runtime/timers.py and operators/functions/operator_state.py.
EVENT_TIMERS, PROCESSING_TIMERS = "_event_timers", "_processing_timers"
_OPERATOR_ROW = "operator"


class TimerView(NamedTuple):
    """Holds a pending timer: its timestamp and its key.

    Example:
        >>> TimerView(15, "a") == (15, "a")
        True
    """

    timestamp: int
    key: Key


class StateView:
    """The state of all operators and subtasks."""

    def __init__(self, slots: list[SlotRunner]) -> None:
        self._slots = slots

    def _states(self, keyed: bool) -> Iterator[KeyedState]:
        for slot in self._slots:
            for state_id, state in slot.states():
                if keyed != state_id.endswith(".operator"):
                    yield state

    def _tables(self, name: str, keyed: bool = True) -> list[tuple[KeyedState, StateTable]]:
        tables = [(s, s.tables[name]) for s in self._states(keyed) if name in s.tables]
        if not tables:
            known = sorted({n for s in self._states(keyed) for n in s.tables if not n.startswith("_")})
            raise InvalidProgramError(
                f"There is no state {name!r}; there are: {', '.join(map(repr, known)) or 'none'}."
            )
        return tables

    def value(self, name: str, key: Key) -> Value:
        """Return the state of a key as a function sees it."""
        row = hashable(key)
        for state, table in self._tables(name):
            if table.address != BY_KEY:
                raise InvalidProgramError(f"State {name!r} belongs to windows, not to a key alone.")
            content = _unexpired(state, table, row)
            if content is not None:
                return _shown(state, table, content)
        return self._tables(name)[0][1].kind.empty()

    def keys(self, name: str) -> list[Key]:
        """Return the keys of a state."""
        rows = [_key(table, row) for s, table in self._tables(name) for row in _unexpired_rows(s, table)]
        return [thaw(detach(k)) for k in dict.fromkeys(rows)]

    def count(self) -> int:
        """Return the number of rows of all keyed states, without timers."""
        return sum(_size(s, t) for s in self._states(True) for t in s.tables.values() if t.address != BY_TIME)

    def timers(self, table: str, key: Key = None) -> list[TimerView]:
        """Return timers in the order of time, of one key or of all."""
        rows = [row for s in self._states(True) for row, _ in s.rows(table)]
        selected = [r for r in rows if key is None or r[1] == hashable(key)]
        return [TimerView(r[0], thaw(r[1])) for r in sorted(selected, key=lambda r: r[0])]

    def broadcast(self, name: str, subtask: int) -> dict[Value, Value]:
        """Return a broadcast state as one subtask has it."""
        _, table = self._tables(name, keyed=False)[subtask]
        entries: dict[Value, Value] = detach(table.get(_OPERATOR_ROW)) or {}
        return entries

    def listed(self, name: str) -> list[Value]:
        """Return the elements of an operator's list state, subtask by subtask."""
        names = {n for s in self._states(False) for n in s.tables}
        full = next((n for n in (f"split.{name}", f"union.{name}") if n in names), name)
        return [e for _, table in self._tables(full, keyed=False) for e in detach(table.get(_OPERATOR_ROW) or [])]


def _unexpired(state: KeyedState, table: StateTable, row: Key) -> Value:
    content = table.get(row)
    lifetime = state.lifetime_of(table.name)
    return content if content is None or lifetime is None else table.kind.unexpired(content, lifetime.has_expired)


def _unexpired_rows(state: KeyedState, table: StateTable) -> Iterator[Key]:
    for row, _ in table.rows():
        if _unexpired(state, table, row) is not None:
            yield row


def _shown(state: KeyedState, table: StateTable, content: Value) -> Value:
    content = detach(content)
    if state.lifetime_of(table.name) is not None:
        content = table.kind.without_stamps(content)
    descriptor = state.descriptor_of(table.name)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return descriptor.agg_function.get_result(content)
    return content


def _key(table: StateTable, row: Key) -> Key:
    return row[0] if table.address == BY_NAMESPACE else row


def _size(state: KeyedState, table: StateTable) -> int:
    if table.address == BY_PANE:
        return sum(len(keys) for _, keys in table.rows())
    return 0 if table.address == BY_NAME else sum(1 for _ in _unexpired_rows(state, table))
