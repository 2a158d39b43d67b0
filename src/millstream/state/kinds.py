"""Kinds of state: the meaning of a row's changes, the expiry of its contents, and its form for users.

A table has one kind for life. All differences between kinds are in this module; files and manifests contain the names
of kinds.

    kind         a row holds                                   a change, besides None for a removed row
    value        one value                                     the new value
    list         elements in the order of their addition       Extra: elements to append; or the new list
    map          entries                                       Patch: entries to set or remove; or the new map
    reducing     the result of a reduce function               the new value
    aggregating  an accumulator                                the new accumulator
    timers       True                                          True
    panes        the result of each key of a window            the keys that are new or have changed
    sessions     the open sessions of a key                    all of them
    windows      the state window of each window of a key      all of them
    columns      the state of the keys of a group, as columns  a tuple of RowChange: keys to set and to remove

If state has a time to live, every value, element and entry is stored as (content, stamp), the time of its last use.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.common.aliases import Key, Value
from millstream.common.errors import DamagedStateError, InvalidProgramError
from millstream.state.table import MISSING, Base, Extra, Patch, patched, tombstones

# Returns the content of a row, None if there is none.
ReadRow = Callable[[Key], Value]

# Returns whether content with a stamp has expired.
HasExpired = Callable[[int], bool]

# A window within a row: [start, end, contents].
WindowPart = list[Value]


class StateKind:
    """A kind whose rows have one content each, which a change replaces."""

    # Whether rows are made of entries. As operator state, such a kind is the same in every subtask: broadcast state.
    has_entries = False
    # Whether a row holds several windows, each with contents of its own.
    has_windows = False

    def __init__(self, name: str, combines: bool = False) -> None:
        """Create a kind.

        Args:
            name: its name in files and texts.
            combines: whether a row combines several records.
        """
        self.name = name
        self.combines = combines

    def __repr__(self) -> str:
        return f"<{self.name} state>"

    def __reduce__(self) -> str:
        # Kinds are compared by identity, so a copy is the kind itself: the constant below.
        return self.name.upper()

    # --- apply

    def reader(self, base: Base, overlay: dict[Key, Value]) -> ReadRow:
        """Return a function that reads rows of a base with the changes of an overlay.

        It runs for every record, so it holds base and overlay as locals and has no branches on the kind.
        """
        changed, base_get = overlay.get, base.get

        def read(row: Key) -> Value:
            change = changed(row, MISSING)
            return base_get(row) if change is MISSING else change

        return read

    def apply(self, base: Base, delta: dict[Key, Value]) -> None:
        """Move the changes of an epoch into a base."""
        base.update(delta)
        # Stores remove rows that are set to None.
        if base.__class__ is dict:
            for row in tombstones(delta):
                del base[row]

    # --- expire

    def unexpired(self, content: Value, has_expired: HasExpired) -> Value:
        """Return the part of a row that has not expired, None if there is none."""
        return None if has_expired(content[1]) else content

    # --- show

    def empty(self) -> Value:
        """Return the empty state, as a function reads it."""
        return None

    def stored(self, value: Value) -> Value:
        """Return the row of a value from a savepoint editor, None if it would be empty."""
        return value

    def without_stamps(self, content: Value) -> Value:
        """Return the value of a row with stamps, as a function reads it."""
        return content[0]

    def with_stamps(self, value: Value, before: Value, now: int) -> Value:
        """Return a row with stamps.

        Args:
            value: the new value.
            before: the previous row, whose stamps are retained; None for new stamps only.
            now: the stamp of new content.
        """
        return value, now if before is None else before[1]

    def windows(self, content: Value) -> list[WindowPart]:
        """Return the windows that a row holds."""
        raise NotImplementedError(f"rows of {self.name} state contain no windows")

    def of_windows(self, windows: list[WindowPart]) -> Value:
        """Return the row of these windows."""
        raise NotImplementedError(f"rows of {self.name} state contain no windows")

    def _check(self, value: Value, expected: type) -> None:
        if not isinstance(value, expected):
            raise InvalidProgramError(f"The value of {self.name} state must be a {expected.__name__}, not {value!r}.")


class _ListKind(StateKind):
    """Elements, to which more are appended."""

    def reader(self, base: Base, overlay: dict[Key, Value]) -> ReadRow:
        changed, base_get = overlay.get, base.get

        def read(row: Key) -> Value:
            change = changed(row, MISSING)
            if change is MISSING:
                return base_get(row)
            return [*(base_get(row) or ()), *change] if change.__class__ is Extra else change

        return read

    def apply(self, base: Base, delta: dict[Key, Value]) -> None:
        get = base.get
        whole = {r: [*(get(r) or ()), *c] if c.__class__ is Extra else c for r, c in delta.items()}
        super().apply(base, whole)

    def unexpired(self, content: Value, has_expired: HasExpired) -> Value:
        return [e for e in content if not has_expired(e[1])] or None

    def empty(self) -> Value:
        return []

    def stored(self, value: Value) -> Value:
        self._check(value, list)
        return list(value) or None

    def without_stamps(self, content: Value) -> Value:
        return [value for value, _ in content]

    def with_stamps(self, value: Value, before: Value, now: int) -> Value:
        stamps = [stamp for _, stamp in before or ()]
        return [(v, stamps[i] if i < len(stamps) else now) for i, v in enumerate(value)]


class _MapKind(StateKind):
    """Entries, which are set and removed individually."""

    has_entries = True

    def reader(self, base: Base, overlay: dict[Key, Value]) -> ReadRow:
        changed, base_get = overlay.get, base.get

        def read(row: Key) -> Value:
            change = changed(row, MISSING)
            if change is MISSING:
                return base_get(row)
            return patched(base_get(row), change) or None if change.__class__ is Patch else change

        return read

    def apply(self, base: Base, delta: dict[Key, Value]) -> None:
        get = base.get
        whole = {r: patched(get(r), c) or None if c.__class__ is Patch else c for r, c in delta.items()}
        super().apply(base, whole)

    def unexpired(self, content: Value, has_expired: HasExpired) -> Value:
        return {k: e for k, e in content.items() if not has_expired(e[1])} or None

    def empty(self) -> Value:
        return {}

    def stored(self, value: Value) -> Value:
        self._check(value, dict)
        return dict(value) or None

    def without_stamps(self, content: Value) -> Value:
        return {key: value for key, (value, _) in content.items()}

    def with_stamps(self, value: Value, before: Value, now: int) -> Value:
        return {k: (v, before[k][1] if before and k in before else now) for k, v in value.items()}


class _TimersKind(StateKind):
    """Timers, whose address is their content."""

    def stored(self, value: Value) -> Value:
        return True


class _PanesKind(StateKind):
    """The keys of a window, which are set individually and removed together."""

    def reader(self, base: Base, overlay: dict[Key, Value]) -> ReadRow:
        changed, base_get = overlay.get, base.get

        def read(row: Key) -> Value:
            change = changed(row, MISSING)
            if change is MISSING:
                return base_get(row)
            return None if change is None else {**(base_get(row) or {}), **change}

        return read

    def apply(self, base: Base, delta: dict[Key, Value]) -> None:
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
    """The open sessions of a key: a single one, or a tuple of several."""

    has_windows = True

    def windows(self, content: Value) -> list[WindowPart]:
        if content is None:
            return []
        return [content] if content.__class__ is list else list(content)

    def of_windows(self, windows: list[WindowPart]) -> Value:
        return windows[0] if len(windows) == 1 else tuple(windows)


class _ColumnsKind(StateKind):
    """The keys of a key group with their state, as columns: changes in order."""

    def reader(self, base: Base, overlay: dict[Key, Value]) -> ReadRow:
        changed, base_get = overlay.get, base.get

        def read(row: Key) -> Value:
            return (*(base_get(row) or ()), *(changed(row) or ())) or None

        return read

    def apply(self, base: Base, delta: dict[Key, Value]) -> None:
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
    """Return the kind with a name from a file.

    Args:
        name: the name.
        whose: the table and its file, for the error message.

    Example:
        >>> kind_named("list", "Table 'seen'").empty()
        []
    """
    kind = _BY_NAME.get(name)
    if kind is None:
        raise DamagedStateError(
            f"{whose} has the unknown kind {name!r}: the file is damaged, or a newer version of millstream wrote it."
        )
    return kind
