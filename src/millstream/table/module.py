"""Modules: sets of system functions."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.unsupported import missing_class

__all__ = ["HiveModule", "Module", "ModuleEntry"]


class Module:
    """Names a set of system functions; `core` has all of them."""

    def __init__(self, name: str = "core") -> None:
        self.name = name


HiveModule = missing_class(__name__, "HiveModule", "Hive's functions are Java code")


@dataclass(frozen=True, order=True)
class ModuleEntry:
    """Holds the name of a loaded module, and whether it is in use."""

    _name: str
    _used: bool

    def __init__(self, name: str, used: bool) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_used", used)

    def name(self) -> str:
        """Return its name."""
        return self._name

    def used(self) -> bool:
        """Return whether it is in use."""
        return self._used

    def __repr__(self) -> str:
        return f"ModuleEntry{{name='{self._name}', used={str(self._used).lower()}}}"
