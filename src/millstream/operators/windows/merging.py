"""Windows that merge: which window of a key holds the state of which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.operators.windows.assigners import MergeCallback, MergingWindowAssigner
from millstream.state.table import StateTable

# Called with: the resulting window, the merged ones, the state window that stays, those whose state goes into it.
OnMerge = Callable[[Any, list[Any], Any, list[Any]], None]


class MergingWindows(MergeCallback[Any]):
    """The windows in flight of one key.

    State does not move when a window grows: each window in flight has a state window, the first of those that merged
    into it, and the state stays there.
    """

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], table: StateTable, key: Any) -> None:
        self._assigner = assigner
        self._table = table
        self._key = key
        self._before: dict[Any, Any] = table.get(key) or {}
        self.windows = dict(self._before)
        self._merges: list[tuple[list[Any], Any]] = []

    def save(self) -> None:
        """Write the windows back where they have changed."""
        if self.windows == self._before:
            return
        if self.windows:
            self._table.put(self._key, dict(self.windows))
        else:
            self._table.remove(self._key)

    def state_window(self, window: Any) -> Any:
        """Return where a window's state is, None when it is not in flight."""
        return self.windows.get(window)

    def retire(self, window: Any) -> None:
        """The window is over."""
        del self.windows[window]

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self._merges.append((list(to_be_merged), merge_result))

    def add(self, window: Any, on_merge: OnMerge) -> Any:
        """Add a window; return the window it is now a part of."""
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
