"""Kinds of state: what a change of a row means, what of a row expires, and how its content is shown.

A table has one kind as long as it lives. What differs between kinds is here, and nowhere else; in files and manifests
a kind is written by its name.

    kind         a row holds                                   a change, besides None for a row that is gone
    value        one value                                     the new value
    list         elements in the order they were added         Extra: elements to append; or the new list
    map          entries                                       Patch: entries to set or remove; or the new map
    reducing     what records were reduced to                  the new value
    aggregating  an accumulator                                the new accumulator
    timers       True                                          True
    panes        what each key of a window has come to         the keys that are new or have changed
    sessions     the open sessions of a key                    all of them
    windows      which window of a key holds whose state       all of it
    columns      what the keys of a group have, as columns     a tuple of RowChange: keys to set and to remove

Where state expires, every value, element and entry is stored as (content, stamp), the time of its last use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.errors import DamagedStateError, InvalidProgramError
from millstream.state.table import MISSING, Base, Extra, Patch, patched, tombstones

# Returns what a row holds, None when there is none.
ReadRow = Callable[[Any], Any]

# Tells whether what was last used at a time has expired.
IsOver = Callable[[int], bool]

# A window within a row: [start, end, contents].
WindowPart = list[Any]


class StateKind:
    """A kind whose rows are one content each, which a change replaces."""

    # Whether rows are made of entries. As operator state, such a kind is the same in every subtask: broadcast state.
    has_entries = False
    # Whether a row holds several windows, each with contents of its own.
    has_windows = False

    def __init__(self, name: str, combines: bool = False) -> None:
        """Make a kind.

        Args:
            name: what it is called in files, and by people.
            combines: whether a row is what several records were combined into.
        """
        self.name = name
        self.combines = combines

    def __repr__(self) -> str:
        return f"<{self.name} state>"

    def __reduce__(self) -> str:
        # Kinds are told apart by identity, so a copy is the kind itself: the constant below.
        return self.name.upper()

    # --- apply

    def reader(self, base: Base, overlay: dict[Any, Any]) -> ReadRow:
        """Return what reads rows of a base that an overlay has changed.

        It is asked for every record: the two are at hand in it, and it decides nothing that a table's kind has decided.
        """
        changed, kept = overlay.get, base.get

        def read(row: Any) -> Any:
            change = changed(row, MISSING)
            return kept(row) if change is MISSING else change

        return read

    def apply(self, base: Base, delta: dict[Any, Any]) -> None:
        """Move the changes of an epoch into a base."""
        base.update(delta)
        # A store removes what is set to None by itself.
        if base.__class__ is dict:
            for row in tombstones(delta):
                del base[row]

    # --- expire

    def living(self, content: Any, is_over: IsOver) -> Any:
        """Return what is left of a row, None when all of it has expired."""
        return None if is_over(content[1]) else content

    # --- show

    def nothing(self) -> Any:
        """Return what a function sees in the state of a key that has none."""
        return None

    def stored(self, value: Any) -> Any:
        """Return a value that is put in from outside in the form of a row, None when that would be an empty one."""
        return value

    def without_stamps(self, content: Any) -> Any:
        """Return what a row holds that expires, as a function sees it."""
        return content[0]

    def with_stamps(self, value: Any, before: Any, now: int) -> Any:
        """Return a row that expires.

        Args:
            value: what it shall hold.
            before: what it held until now, whose stamps go on; None when they are made anew.
            now: the stamp of what is new.
        """
        return value, now if before is None else before[1]

    def windows(self, content: Any) -> list[WindowPart]:
        """Return the windows that a row holds."""
        raise NotImplementedError(f"rows of {self.name} state hold no windows")

    def of_windows(self, windows: list[WindowPart]) -> Any:
        """Return the row that holds these windows."""
        raise NotImplementedError(f"rows of {self.name} state hold no windows")

    def _check(self, value: Any, wanted: type) -> None:
        if not isinstance(value, wanted):
            raise InvalidProgramError(f"The value of {self.name} state must be a {wanted.__name__}, not {value!r}.")


class _ListKind(StateKind):
    """Elements, to which more are appended."""

    def reader(self, base: Base, overlay: dict[Any, Any]) -> ReadRow:
        changed, kept = overlay.get, base.get

        def read(row: Any) -> Any:
            change = changed(row, MISSING)
            if change is MISSING:
                return kept(row)
            return [*(kept(row) or ()), *change] if change.__class__ is Extra else change

        return read

    def apply(self, base: Base, delta: dict[Any, Any]) -> None:
        get = base.get
        whole = {r: [*(get(r) or ()), *c] if c.__class__ is Extra else c for r, c in delta.items()}
        super().apply(base, whole)

    def living(self, content: Any, is_over: IsOver) -> Any:
        return [e for e in content if not is_over(e[1])] or None

    def nothing(self) -> Any:
        return []

    def stored(self, value: Any) -> Any:
        self._check(value, list)
        return list(value) or None

    def without_stamps(self, content: Any) -> Any:
        return [value for value, _ in content]

    def with_stamps(self, value: Any, before: Any, now: int) -> Any:
        stamps = [stamp for _, stamp in before or ()]
        return [(v, stamps[i] if i < len(stamps) else now) for i, v in enumerate(value)]


class _MapKind(StateKind):
    """Entries, which are set and removed one by one."""

    has_entries = True

    def reader(self, base: Base, overlay: dict[Any, Any]) -> ReadRow:
        changed, kept = overlay.get, base.get

        def read(row: Any) -> Any:
            change = changed(row, MISSING)
            if change is MISSING:
                return kept(row)
            return patched(kept(row), change) or None if change.__class__ is Patch else change

        return read

    def apply(self, base: Base, delta: dict[Any, Any]) -> None:
        get = base.get
        whole = {r: patched(get(r), c) or None if c.__class__ is Patch else c for r, c in delta.items()}
        super().apply(base, whole)

    def living(self, content: Any, is_over: IsOver) -> Any:
        return {k: e for k, e in content.items() if not is_over(e[1])} or None

    def nothing(self) -> Any:
        return {}

    def stored(self, value: Any) -> Any:
        self._check(value, dict)
        return dict(value) or None

    def without_stamps(self, content: Any) -> Any:
        return {key: value for key, (value, _) in content.items()}

    def with_stamps(self, value: Any, before: Any, now: int) -> Any:
        return {k: (v, before[k][1] if before and k in before else now) for k, v in value.items()}


class _TimersKind(StateKind):
    """Timers: all that is to know is in the row's address."""

    def stored(self, value: Any) -> Any:
        return True


class _PanesKind(StateKind):
    """The keys of a window, which are set one by one and go together."""

    def reader(self, base: Base, overlay: dict[Any, Any]) -> ReadRow:
        changed, kept = overlay.get, base.get

        def read(row: Any) -> Any:
            change = changed(row, MISSING)
            if change is MISSING:
                return kept(row)
            return None if change is None else {**(kept(row) or {}), **change}

        return read

    def apply(self, base: Base, delta: dict[Any, Any]) -> None:
        for row, change in delta.items():
            pane = base.get(row)
            if change is None:
                if pane is not None:
                    del base[row]
            elif pane is None:
                base[row] = change
            elif base.__class__ is dict:
                pane.update(change)
            else:
                base[row] = {**pane, **change}


class _SessionsKind(StateKind):
    """The open sessions of a key: one stands alone, several are a tuple."""

    has_windows = True

    def windows(self, content: Any) -> list[WindowPart]:
        if content is None:
            return []
        return [content] if content.__class__ is list else list(content)

    def of_windows(self, windows: list[WindowPart]) -> Any:
        return windows[0] if len(windows) == 1 else tuple(windows)


class _ColumnsKind(StateKind):
    """The keys of a key group with what they have, as columns: what was set and removed, in order."""

    def reader(self, base: Base, overlay: dict[Any, Any]) -> ReadRow:
        changed, kept = overlay.get, base.get

        def read(row: Any) -> Any:
            return (*(kept(row) or ()), *(changed(row) or ())) or None

        return read

    def apply(self, base: Base, delta: dict[Any, Any]) -> None:
        for row, change in delta.items():
            base[row] = (*(base.get(row) or ()), *change)


VALUE = StateKind("value")
LIST = _ListKind("list")
MAP = _MapKind("map")
REDUCING = StateKind("reducing", combines=True)
AGGREGATING = StateKind("aggregating", combines=True)
TIMERS = _TimersKind("timers")
PANES = _PanesKind("panes")
SESSIONS = _SessionsKind("sessions")
WINDOWS = StateKind("windows")
COLUMNS = _ColumnsKind("columns")

_BY_NAME = {k.name: k for k in (VALUE, LIST, MAP, REDUCING, AGGREGATING, TIMERS, PANES, SESSIONS, WINDOWS, COLUMNS)}


def kind_named(name: str, whose: str) -> StateKind:
    """Return the kind of a name that stands in a file.

    Args:
        name: the name.
        whose: the table, and where it is, for the error when there is no such kind.

    Example:
        >>> kind_named("list", "Table 'seen'").nothing()
        []
    """
    kind = _BY_NAME.get(name)
    if kind is None:
        raise DamagedStateError(
            f"{whose} is {name!r} state, which this millstream does not know: "
            "it is damaged, or was written by a newer one."
        )
    return kind
