"""The rows of a state as users see them: key, namespace and value, independent of the layout of the table. Pure.

    table                      key           namespace                   value
    of keys                    the key                                   the value, list, map or accumulator
    of windows                 the key       the window                  what it holds
    panes (quick windows)      the key       the start of the window     what it holds
    sessions (quick windows)   the key       the window                  what it holds
    timers                     the key       the time, or (time, window) True
    broadcast state            an entry's                                the entry's value
    lists of subtasks                        the subtask's number        the list

A flat table holds all rows of one subtask's table by (key, namespace), so that they can be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.operators.async_io import REQUESTS
from millstream.operators.windows.windows import TimeWindow
from millstream.state.key_groups import hashable, thaw
from millstream.state.kinds import VALUE, StateKind
from millstream.state.restored import SPLIT_LIST, UNION_LIST
from millstream.state.table import BY_NAME, BY_NAMESPACE, BY_PANE, BY_TIME

# The only row of a table of operator state.
_OPERATOR_ROW = "operator"

# A hashable key, and a namespace.
Address = tuple[Value, Value]
Flat = dict[Address, Value]


@dataclass(frozen=True)
class StateRow:
    """One row of a state.

    Attributes:
        key: the key as the program's selector returned it.
        namespace: distinguishes the rows of one key: a window, the time of a timer; None without namespaces.
        value: the content.
    """

    key: Value
    namespace: Value
    value: Value


@dataclass(frozen=True)
class Layout:
    """The layout of a table.

    Attributes:
        kind: what a row holds, see `state.kinds`.
        address: how rows are addressed, see `state.table`.
        expires: whether values carry the time of their last use.
    """

    kind: StateKind
    address: str
    expires: bool = False

    @property
    def is_broadcast(self) -> bool:
        return self.address == BY_NAME and self.kind.has_entries

    @property
    def is_list_of_subtasks(self) -> bool:
        return self.address == BY_NAME and not self.kind.has_entries

    # --- to rows and back

    def flatten(self, rows: Iterable[tuple[Value, Value]], subtask: int) -> Iterator[tuple[Address, Value]]:
        """Yield the rows of a subtask's table by key and namespace."""
        for row, content in rows:
            if self.address == BY_PANE:
                yield from (((key, row), value) for key, value in content.items())
            elif self.kind.has_windows:
                for start, end, value in self.kind.windows(content):
                    yield (row, TimeWindow(start, end)), value
            elif self.address == BY_TIME:
                time, key, window = row
                yield (key, time if window is None else (time, window)), content
            elif self.address == BY_NAMESPACE:
                yield (row[0], row[1]), content
            elif self.is_broadcast:
                yield from (((key, None), value) for key, value in content.items())
            else:
                yield (None, subtask) if self.is_list_of_subtasks else (row, None), content

    def gather(self, flat: Flat) -> dict[Value, Value]:
        """Return a flat table in its stored form."""
        rows: dict[Value, Value] = {}
        for (key, namespace), value in flat.items():
            if self.address == BY_PANE:
                rows.setdefault(namespace, {})[key] = value
            elif self.kind.has_windows:
                before = self.kind.windows(rows.get(key))
                rows[key] = self.kind.of_windows([*before, [namespace.start, namespace.end, value]])
            elif self.address == BY_TIME:
                time, window = namespace if isinstance(namespace, tuple) else (namespace, None)
                rows[time, key, window] = value
            elif self.address == BY_NAMESPACE:
                rows[key, namespace] = value
            elif self.is_broadcast:
                rows.setdefault(_OPERATOR_ROW, {})[key] = value
            else:
                rows[_OPERATOR_ROW if self.is_list_of_subtasks else key] = value
        return rows

    def row(self, address: Address, content: Value) -> StateRow:
        """Return a row as users see it."""
        key, namespace = address
        value = self._flat_kind.without_stamps(content) if self.expires else content
        return StateRow(key if self.is_broadcast else thaw(key), namespace, value)

    # --- input

    def stored_key(self, key: Value) -> Value:
        """Return a key in its stored form."""
        return key if self.is_broadcast else hashable(key)

    def address_of(self, key: Value, namespace: Value) -> Address:
        """Return the address of a row; raise an error for a namespace of the wrong type."""
        if self.is_broadcast:
            return key, _check_absent(namespace, "namespace")
        if self.is_list_of_subtasks:
            return _check_absent(key, "key"), _whole_number(namespace, "the number of a subtask")
        row = self.stored_key(key)
        if self.address == BY_PANE:
            start = namespace.start if isinstance(namespace, TimeWindow) else namespace
            return row, _whole_number(start, "the start of a window in milliseconds")
        if self.kind.has_windows or self.address == BY_NAMESPACE:
            return row, _window(namespace)
        if self.address == BY_TIME:
            return row, _timer(namespace)
        return row, _check_absent(namespace, "namespace")

    def content_of(self, value: Value, before: Value, now: int) -> Value:
        """Return a value in its stored form, None if there is nothing to store.

        Args:
            value: the value.
            before: the stored value until now, whose stamps are retained; None for new stamps.
            now: the stamp of new values.
        """
        content = None if value is None else self._flat_kind.stored(value)
        if content is None or not self.expires:
            return content
        return self._flat_kind.with_stamps(content, before, now)

    @property
    def _flat_kind(self) -> StateKind:
        # Each entry of broadcast state is a row of its own here.
        return VALUE if self.is_broadcast else self.kind


def shown_name(table: str) -> str:
    """Return the name of a table as users know it.

    Example:
        >>> shown_name("_event_timers"), shown_name("_trigger.count"), shown_name("total")
        ('event-timers', 'trigger:count', 'total')
    """
    if table in _INTERNAL:
        return _INTERNAL[table]
    for prefix, label in (("_trigger.", "trigger:"), ("_window.", "window:"), (SPLIT_LIST, ""), (UNION_LIST, "")):
        if table.startswith(prefix):
            return label + table.removeprefix(prefix)
    return table


def is_internal(table: str) -> bool:
    """Return whether a table is internal to its operator, not a state of a user function."""
    return table in _INTERNAL


def shown_kind(table: str, layout: Layout) -> str:
    """Return the kind of a state as users know it."""
    if layout.is_broadcast:
        return "broadcast"
    if layout.is_list_of_subtasks:
        return "union list" if table.startswith(UNION_LIST) else "operator list"
    return layout.kind.name


_INTERNAL = {
    "_event_timers": "event-timers",
    "_processing_timers": "processing-timers",
    "_window_contents": "window-contents",
    "_panes": "window-panes",
    "_sessions": "window-sessions",
    "_merging_windows": "merging-windows",
    "_reduce": "reduce",
    "_left": "join-left",
    "_right": "join-right",
    "_batch_input": "batch-input",
    REQUESTS: "requests-in-flight",
    "_cep_events": "pattern-events",
    "_cep_runs": "pattern-runs",
    "_cep_patterns": "patterns",
}


def _check_absent(value: Value, part: str) -> Value:
    if value is not None:
        raise InvalidProgramError(f"Rows of this state have no {part}: remove {value!r}.")
    return value


def _whole_number(value: Value, words: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidProgramError(f"The namespace of this state must be {words}, not {value!r}.")
    return value


def _window(value: Value) -> Value:
    if value is None:
        raise InvalidProgramError("The namespace of this state must be a window, for example TimeWindow(0, 1000).")
    is_pair = type(value) is tuple and len(value) == 2 and all(isinstance(t, int) for t in value)
    return TimeWindow(*value) if is_pair else value


def _timer(value: Value) -> Value:
    if isinstance(value, tuple) and len(value) == 2:
        return _whole_number(value[0], "(time in milliseconds, window)"), _window(value[1])
    return _whole_number(value, "the time of the timer in milliseconds")
