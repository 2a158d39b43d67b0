"""Cells: small values that job managers share. Each has a version, which the next write to it must name.

That is all that an election and the fence need of a service: of several who write behind the same version, on whatever
machines, one is written, and the others learn that they were not. Storage does it by making a file only if there is
none, ZooKeeper by the versions of its nodes, Kubernetes by the resourceVersion of its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from millstream.common.errors import MillstreamError

# The version of a cell that was never written. Others are whatever the service has.
NEVER_WRITTEN: Hashable = 0


class OvertakenError(MillstreamError):
    """A cell was written by somebody else since the version that a write has named."""


class Cell(Protocol):
    """One of them. An error other than OvertakenError says nothing: a write may have been done, or be done later."""

    def read(self) -> tuple[bytes | None, Hashable]:
        """Return what was written last, None if nothing ever was, and the version of that."""
        ...

    def write(self, data: bytes, version: Hashable) -> Hashable:
        """Write behind a version, and return the new one; OvertakenError if that is not the last any more."""
        ...


class Cells(Protocol):
    """All cells of a cluster."""

    def cell(self, name: str) -> Cell:
        """Return a cell; its name has letters, digits and `-`."""
        ...

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Have a function called, with the reason, when the service gives this process up."""
        ...

    def close(self) -> None:
        """End what is open."""
        ...
