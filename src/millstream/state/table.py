"""One named piece of keyed state: a base, and the overlay of what this epoch changed.

    read   overlay, then base
    write  overlay
    epoch acknowledged: the overlay moves into the base (`advance`)

The overlay is also the epoch's delta: it is written to the changelog as it is. A row is addressed by its key, or by
(key, window) for what belongs to a window. None is a row that is gone; what else a change looks like, and what it does
to a row, is the table's kind to say (`kinds.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged

if TYPE_CHECKING:
    from millstream.state.kinds import StateKind

MISSING: Any = type("_Missing", (), {"__repr__": lambda self: "<missing>", "__slots__": ()})()


# How the rows of a table are addressed: by key, by (key, window or other namespace), by (time, key, namespace), by
# window with the keys inside, by key group where a row has all its keys as columns, or, for state that is a subtask's
# and no key's, by a name.
BY_KEY, BY_NAMESPACE, BY_TIME, BY_PANE, BY_NAME = "key", "namespace", "time", "pane", "name"
BY_GROUP = "group"


# So many changes say how many of the others are of new rows.
_LOOKED_AT = 64


def _read_removed() -> Any:
    return REMOVED


@tagged("removed-entry", write=lambda _: (), read=_read_removed)
class _Removed:
    """What a map entry that is gone looks like in a Patch."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<removed>"


REMOVED = _Removed()


@tagged("appended-elements", write=lambda row: (list(row),))
class Extra(list[Any]):
    """Elements that an epoch has appended to a list row."""

    __slots__ = ()


@tagged("changed-entries", write=lambda row: (dict(row),))
class Patch(dict[Any, Any]):
    """Entries that an epoch has set or removed in a map row."""

    __slots__ = ()


class StoredBase(Protocol):
    """A base that need not fit into memory: a store with a dict's methods."""

    def get(self, key: Any, default: Any = None, /) -> Any: ...

    def __contains__(self, key: Any, /) -> bool: ...

    def __setitem__(self, key: Any, value: Any, /) -> None: ...

    def __delitem__(self, key: Any, /) -> None: ...

    def update(self, rows: dict[Any, Any], /) -> None: ...

    def items(self) -> Iterable[tuple[Any, Any]]: ...

    def in_turn(self) -> Iterator[Any]:
        """Yield which rows there are, whatever happens to them meanwhile."""
        ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...


# The rows as of the last file, or of the last epoch that needed none.
Base = dict[Any, Any] | StoredBase


def tombstones(delta: dict[Any, Any]) -> list[Any]:
    """Return the rows a delta deletes."""
    # By identity: a user's value may have an == of its own.
    return [key for key, value in delta.items() if value is None]


def patched(content: dict[Any, Any] | None, patch: Patch) -> dict[Any, Any]:
    """Return a map row with a patch applied; entries keep the order in which they were first set."""
    result = {} if content is None else dict(content)
    for key, value in patch.items():
        if value is REMOVED:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def about_len(base: Base, overlay: dict[Any, Any]) -> int:
    """Return about how many rows there are: whether changes are of new rows is looked at in some of them."""
    some = list(islice(overlay, _LOOKED_AT))
    new = sum(row not in base for row in some)
    return len(base) + (len(overlay) * new // len(some) if some else 0)


class _NoKey:
    """What stands where a key would, when there is none: no table takes it."""

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
    """Holds the address of the rows that are being processed; the operator sets it, the states read it."""

    __slots__ = ("address", "key")

    def __init__(self, address: str = BY_KEY) -> None:
        self.key: Any = NO_KEY
        self.address = address


class StateTable:
    """A base and an overlay, both from row to content."""

    __slots__ = ("address", "base", "get", "kind", "name", "overlay")

    # Returns a row's content, None when there is none.
    get: Callable[[Any], Any]

    def __init__(self, name: str, kind: StateKind, address: str, base: Base) -> None:
        self.name = name
        self.kind = kind
        self.address = address
        self.base = base
        self.overlay: dict[Any, Any] = {}
        # Made here once, so that reading a row costs no look at the kind.
        self.get = kind.reader(base, self.overlay)

    def put(self, row: Any, content: Any) -> None:
        self.overlay[row] = content

    def remove(self, row: Any) -> None:
        if row in self.base:
            self.overlay[row] = None
        else:
            self.overlay.pop(row, None)

    def append(self, row: Any, element: Any) -> None:
        """Append to a list row."""
        change = self.overlay.get(row)
        if change is None:
            change = self.overlay[row] = [] if row in self.overlay else Extra()
        change.append(element)

    def rows(self) -> Iterator[tuple[Any, Any]]:
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
        """Return the same without what has changed."""
        return StateTable(self.name, self.kind, self.address, self.base)

    def panes(self) -> list[tuple[dict[Any, Any], dict[Any, Any]]]:
        """Return, of a table by window, what each window had before and what has changed of it."""
        base = dict(self.base.items())
        gone = {row for row, change in self.overlay.items() if change is None}
        found = {**base, **self.overlay}
        return [(base.get(row) or {}, self.overlay.get(row) or {}) for row in found if row not in gone]

    def apply(self, delta: dict[Any, Any]) -> None:
        """Move changes into the base."""
        self.kind.apply(self.base, delta)

    def collect(self) -> None:
        """Have all that has changed in the overlay, because a file is written."""

    @property
    def known_bytes(self) -> int:
        """How many bytes the rows take in a file, where that is known at no cost; else 0."""
        return 0

    def clear(self) -> None:
        """Forget everything."""
        self.base.clear()
        self.overlay.clear()

    def advance(self) -> None:
        """The epoch counts: its changes become part of the base."""
        if self.overlay:
            self.apply(self.overlay)
            # The generated loops hold on to this very dict.
            self.overlay.clear()

    def __len__(self) -> int:
        return sum(1 for _ in self.rows())
