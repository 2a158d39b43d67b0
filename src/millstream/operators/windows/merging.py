"""Merging windows: the mapping from a key's windows to the windows that hold their state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.common.aliases import Key, Value
from millstream.operators.windows.assigners import MergeCallback, MergingWindowAssigner
from millstream.operators.windows.windows import Window
from millstream.state.table import StateTable

# Called with: the resulting window, the merged windows, its state window, and the state windows merged into that.
OnMerge = Callable[[Any, list[Any], Any, list[Any]], None]


class MergingWindows(MergeCallback[Any]):
    """The windows in flight of one key.

    State does not move when a window grows: each window in flight has a state window, the first of those that merged
    into it, and the state stays there.
    """

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], table: StateTable, key: Key) -> None:
        self._assigner = assigner
        self._table = table
        self._key = key
        self._before: dict[Any, Any] = table.get(key) or {}
        self.windows = dict(self._before)
        self._merges: list[tuple[list[Any], Any]] = []

    def save(self) -> None:
        """Write the windows to the state if they have changed."""
        if self.windows == self._before:
            return
        if self.windows:
            self._table.put(self._key, dict(self.windows))
        else:
            self._table.remove(self._key)

    def state_window(self, window: Window) -> Any:
        """Return the state window of a window, None if it is not in flight."""
        return self.windows.get(window)

    def retire(self, window: Window) -> None:
        """Remove a window that has ended."""
        del self.windows[window]

    def merge(self, to_be_merged: Iterable[Value], merge_result: Any) -> None:
        self._merges.append((list(to_be_merged), merge_result))

    def add(self, window: Window, on_merge: OnMerge) -> Any:
        """Add a window; return the window that it was merged into, or itself."""
        self._merges = []
        self._assigner.merge_windows([*self.windows, window], self)
        result, merged = window, False
        for members, cover in self._merges:
            if window in members:
                members.remove(window)
                result, merged = cover, True
            stays = self.windows[members[0]]
            absorbed = [self.windows.pop(m) for m in members]
            self.windows[cover] = stays
            if members != [cover]:
                on_merge(cover, members, stays, absorbed[1:])
        if not merged:
            self.windows[window] = window
        return result
