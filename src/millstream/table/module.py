"""Modules: sets of functions that come with the system."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.unsupported import missing_class

__all__ = ["HiveModule", "Module", "ModuleEntry"]


class Module:
    """A set of functions; `core` has all there are."""

    def __init__(self, name: str = "core") -> None:
        self.name = name


HiveModule = missing_class(__name__, "HiveModule", "Hive's functions are Java's")


@dataclass(frozen=True, order=True)
class ModuleEntry:
    """A module that is loaded, and whether it is used."""

    _name: str
    _used: bool

    def __init__(self, name: str, used: bool) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_used", used)

    def name(self) -> str:
        """Return its name."""
        return self._name

    def used(self) -> bool:
        """Tell whether it is used."""
        return self._used

    def __repr__(self) -> str:
        return f"ModuleEntry{{name='{self._name}', used={str(self._used).lower()}}}"
