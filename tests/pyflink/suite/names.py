"""Finds the modules of PyFlink's tests: stand-ins for what needs Java, the tests themselves, else Millstream."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import private_names

STAND_INS = Path(__file__).parent / "stand_ins"


class SuiteFinder(MetaPathFinder):
    """Finds `pyflink.x.tests` in a checkout of Flink and Java's side of PyFlink among the stand-ins."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, *parts = fullname.split(".")
        if root != "pyflink" or not parts:
            return None
        found = _file(STAND_INS, parts)
        if found is None and "tests" in parts:
            found = _file(self._checkout, parts)
        if found is None:
            return None
        folder = [str(found.parent)] if found.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, found, submodule_search_locations=folder)


def _file(folder: Path, parts: list[str]) -> Path | None:
    place = folder.joinpath(*parts)
    module, package = place.with_suffix(".py"), place / "__init__.py"
    return package if package.exists() else module if module.exists() else None


def install(checkout: Path) -> None:
    """Let `import pyflink...` mean Millstream, with the tests of a checkout beside it."""
    import py4j.protocol

    import millstream.pyflink  # noqa: F401
    from millstream.common.errors import MillstreamError

    # An exception of Java's is one of Millstream's here.
    py4j.protocol.Py4JJavaError = MillstreamError
    sys.meta_path.insert(0, SuiteFinder(checkout))
    private_names.install()
