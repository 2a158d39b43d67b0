"""SlotSharingGroup: operators of different groups never share a slot."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SlotSharingGroup"]


@dataclass(frozen=True)
class SlotSharingGroup:
    """A named group of operators whose subtasks may run in one slot."""

    name: str

    def get_name(self) -> str:
        return self.name
