"""A state table: a base, and the overlay with the changes of this epoch.

    read   overlay, then base
    write  overlay
    epoch acknowledged: the overlay moves into the base (`advance`)

The overlay is also the epoch's delta: it is written to the changelog unchanged. A row is addressed by its key, or by
(key, window) for the state of a window. None is a removed row. The table's kind (`kinds.py`) defines all other changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from millstream.common.aliases import Key, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged

if TYPE_CHECKING:
    from millstream.state.kinds import StateKind

MISSING: Value = type("_Missing", (), {"__repr__": lambda self: "<missing>", "__slots__": ()})()


# The addresses of rows: key, (key, window or other namespace), (time, key, namespace), window for rows that hold keys,
# key group for rows that hold its keys as columns, or a name for state of a subtask instead of a key.
BY_KEY, BY_NAMESPACE, BY_TIME, BY_PANE, BY_NAME = "key", "namespace", "time", "pane", "name"
BY_GROUP = "group"


# Sampled changes, to estimate the fraction of new rows.
_SAMPLE_SIZE = 64


def _read_removed() -> _Removed:
    return REMOVED


@tagged("removed-entry", write=lambda _: (), read=_read_removed)
class _Removed:
    """A removed map entry in a Patch."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<removed>"


REMOVED = _Removed()


@tagged("appended-elements", write=lambda row: (list(row),))
class Extra(list[Value]):
    """Elements appended to a list row in an epoch."""

    __slots__ = ()


@tagged("changed-entries", write=lambda row: (dict(row),))
class Patch(dict[Key, Value]):
    """Entries set or removed in a map row in an epoch."""

    __slots__ = ()


class StoredBase(Protocol):
    """A base that may be larger than memory: a store with a dict's methods."""

    def get(self, key: Key, default: Value = None, /) -> Value: ...

    def __contains__(self, key: Key, /) -> bool: ...

    def __setitem__(self, key: Key, value: Value, /) -> None: ...

    def __delitem__(self, key: Key, /) -> None: ...

    def update(self, rows: dict[Key, Value], /) -> None: ...

    def items(self) -> Iterable[tuple[Key, Value]]: ...

    def addresses(self) -> Iterator[Key]:
        """Yield the addresses of all rows; rows may change meanwhile."""
        ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...


# The rows as of the last file, or of the last epoch without one.
Base = dict[Key, Value] | StoredBase


def tombstones(delta: dict[Key, Value]) -> list[Key]:
    """Return the rows a delta deletes."""
    # By identity: a user's value may have an == of its own.
    return [key for key, value in delta.items() if value is None]


def patched(content: dict[Key, Value] | None, patch: Patch) -> dict[Key, Value]:
    """Return a map row with a patch applied; entries keep the order in which they were first set."""
    result = {} if content is None else dict(content)
    for key, value in patch.items():
        if value is REMOVED:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def about_len(base: Base, overlay: dict[Key, Value]) -> int:
    """Estimate the number of rows: a sample of the changes determines the fraction of new rows."""
    sample = list(islice(overlay, _SAMPLE_SIZE))
    new = sum(row not in base for row in sample)
    return len(base) + (len(overlay) * new // len(sample) if sample else 0)


class _NoKey:
    """The current key if there is none; an error when it is looked up in a table."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise InvalidProgramError(
            "Keyed state and timers cannot be used here, because there is no current key: not in open(), and not for "
            "an element of a broadcast stream (there, apply_to_keyed_state() reaches the state of all keys)."
        )

    def __repr__(self) -> str:
        return "<no key>"


NO_KEY = _NoKey()


class KeyCell:
    """The current key, which the operator sets and states read, and the kind of address of their rows."""

    __slots__ = ("address", "key")

    def __init__(self, address: str = BY_KEY) -> None:
        self.key: Key = NO_KEY
        self.address = address


class StateTable:
    """A base and an overlay, both from row to content."""

    __slots__ = ("address", "base", "get", "kind", "name", "overlay")

    # Returns a row's content, None when there is none.
    get: Callable[[Key], Value]

    def __init__(self, name: str, kind: StateKind, address: str, base: Base) -> None:
        self.name = name
        self.kind = kind
        self.address = address
        self.base = base
        self.overlay: dict[Key, Value] = {}
        # Created once, so that reading a row does not depend on the kind.
        self.get = kind.reader(base, self.overlay)

    def put(self, row: Key, content: Value) -> None:
        self.overlay[row] = content

    def remove(self, row: Key) -> None:
        if row in self.base:
            self.overlay[row] = None
        else:
            self.overlay.pop(row, None)

    def append(self, row: Key, element: Value) -> None:
        """Append to a list row."""
        change = self.overlay.get(row)
        if change is None:
            change = self.overlay[row] = [] if row in self.overlay else Extra()
        change.append(element)

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield all rows with their content."""
        overlay = self.overlay
        for row, content in self.base.items():
            if row not in overlay:
                yield row, content
        for row in overlay:
            content = self.get(row)
            if content is not None:
                yield row, content

    def before(self) -> StateTable:
        """Return the table without the changes of this epoch."""
        return StateTable(self.name, self.kind, self.address, self.base)

    def panes(self) -> list[tuple[dict[Key, Value], dict[Key, Value]]]:
        """Return the previous contents and the changes of each window, for a table by window."""
        base = dict(self.base.items())
        removed = {row for row, change in self.overlay.items() if change is None}
        rows = {**base, **self.overlay}
        return [(base.get(row) or {}, self.overlay.get(row) or {}) for row in rows if row not in removed]

    def apply(self, delta: dict[Key, Value]) -> None:
        """Move changes into the base."""
        self.kind.apply(self.base, delta)

    def collect(self) -> None:
        """Move all changes to the overlay before a file is written."""

    @property
    def known_bytes(self) -> int:
        """The bytes that the rows take in a file if known at no cost, else 0."""
        return 0

    def clear(self) -> None:
        """Remove all rows."""
        self.base.clear()
        self.overlay.clear()

    def advance(self) -> None:
        """Move the changes of an acknowledged epoch into the base."""
        if self.overlay:
            self.apply(self.overlay)
            # Cleared in place: the generated loops hold this dict.
            self.overlay.clear()

    def __len__(self) -> int:
        return sum(1 for _ in self.rows())


def key_of(address: str, row: Key) -> Key:
    """Return the key of a row."""
    if address == BY_KEY:
        return row
    return row[0] if address == BY_NAMESPACE else row[1]
