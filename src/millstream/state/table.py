"""One named piece of keyed state: a base, and the overlay of what this epoch changed.

    read   overlay, then base
    write  overlay
    epoch acknowledged: the overlay moves into the base (`advance`)

The overlay is also the epoch's delta: it is written to the changelog as it is. None in an overlay is a
tombstone; no state of a key is None otherwise.
"""

from __future__ import annotations

from typing import Any

MISSING: Any = type("_Missing", (), {"__repr__": lambda self: "<missing>", "__slots__": ()})()


def tombstones(delta: dict[Any, Any]) -> list[Any]:
    """Return the keys a delta deletes."""
    # By identity: a user's value may have an == of its own.
    return [key for key, value in delta.items() if value is None]


class KeyCell:
    """Holds the key of the record that is being processed; the operator sets it, the states read it."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Any = MISSING


class StateTable:
    """A base and an overlay, both from key to value."""

    __slots__ = ("base", "kind", "name", "overlay")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.base: dict[Any, Any] = {}
        self.overlay: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """Return the value of a key, None when it has none."""
        value = self.overlay.get(key, MISSING)
        return self.base.get(key) if value is MISSING else value

    def put(self, key: Any, value: Any) -> None:
        self.overlay[key] = value

    def apply(self, delta: dict[Any, Any]) -> None:
        """Move changes into the base."""
        base = self.base
        base.update(delta)
        for key in tombstones(delta):
            del base[key]

    def advance(self) -> None:
        """The epoch counts: its changes become part of the base."""
        if self.overlay:
            self.apply(self.overlay)
            # The generated loops hold on to this very dict.
            self.overlay.clear()

    def __len__(self) -> int:
        overlay, base = self.overlay, self.base
        fresh = sum(1 for k, v in overlay.items() if v is not None and k not in base)
        gone = sum(1 for k, v in overlay.items() if v is None and k in base)
        return len(base) + fresh - gone
