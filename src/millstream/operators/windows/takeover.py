"""State of windows that was written by another kind of window operator: after a change of backend, trigger or lateness.

The quick operators keep windows in tables of their own (`panes`, `sessions`); the general one keeps contents by (key,
window), with timers. State that was restored from another run is converted to the form of its new operator.
"""

from __future__ import annotations

from millstream.common.aliases import Key, Value
from millstream.operators.windows.windows import TimeWindow
from millstream.state import kinds
from millstream.state.keyed import KeyedState
from millstream.state.kinds import StateKind
from millstream.state.table import BY_KEY, BY_NAMESPACE, BY_PANE, BY_TIME

PANES, SESSIONS = "_panes", "_sessions"
CONTENTS, MERGING, TIMERS = "_window_contents", "_merging_windows", "_event_timers"


def take_panes(state: KeyedState, size: int) -> list[tuple[Key, TimeWindow, Value]]:
    """Remove the panes of a quick operator; return them as (key, window, contents)."""
    if not any(True for _ in state.rows(PANES)):
        return []
    table = state.table(PANES, kinds.PANES, BY_PANE)
    windows = [
        (key, TimeWindow(start, start + size), contents)
        for start, pane in table.rows()
        for key, contents in pane.items()
    ]
    table.base.clear()
    return windows


def take_sessions(state: KeyedState) -> list[tuple[Key, TimeWindow, Value]]:
    """Remove the sessions of a quick operator; return them as (key, window, contents)."""
    if not any(True for _ in state.rows(SESSIONS)):
        return []
    table = state.table(SESSIONS, kinds.SESSIONS, BY_KEY)
    windows = [
        (key, TimeWindow(start, end), contents)
        for key, sessions in table.rows()
        for start, end, contents in kinds.SESSIONS.windows(sessions)
    ]
    table.base.clear()
    return windows


def take_windows(state: KeyedState, kind: StateKind) -> list[tuple[Key, TimeWindow, Value]]:
    """Remove the windows and timers of a general operator; return them as (key, window, contents)."""
    contents = state.table(CONTENTS, kind, BY_NAMESPACE)
    merging = state.table(MERGING, kinds.WINDOWS, BY_KEY)
    # A merged window has its contents under the window that came first.
    actual = {
        (key, state_window): window for key, windows in merging.rows() for window, state_window in windows.items()
    }
    windows = [(key, actual.get((key, window), window), value) for (key, window), value in contents.rows()]
    for table in (contents, merging, state.table(TIMERS, kinds.TIMERS, BY_TIME)):
        table.base.clear()
    return windows
