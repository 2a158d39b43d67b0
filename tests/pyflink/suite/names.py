"""Imports the modules of PyFlink's tests: stand-ins for Java bindings, the tests themselves, else Millstream."""

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
    """Finds `pyflink.x.tests` in a checkout of Flink, and PyFlink's Java bindings among the stand-ins."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, *parts = fullname.split(".")
        if root != "pyflink" or not parts:
            return None
        module_file = _file(STAND_INS, parts)
        if module_file is None and "tests" in parts:
            module_file = _file(self._checkout, parts)
        if module_file is None:
            return None
        folder = [str(module_file.parent)] if module_file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, module_file, submodule_search_locations=folder)


def _file(folder: Path, parts: list[str]) -> Path | None:
    path = folder.joinpath(*parts)
    module, package = path.with_suffix(".py"), path / "__init__.py"
    return package if package.exists() else module if module.exists() else None


def install(checkout: Path) -> None:
    """Make `import pyflink...` import Millstream, and the tests of a checkout."""
    import py4j.protocol

    import millstream.pyflink  # noqa: F401
    from millstream.common.errors import MillstreamError

    # Java exceptions are Millstream's exceptions here.
    py4j.protocol.Py4JJavaError = MillstreamError
    sys.meta_path.insert(0, SuiteFinder(checkout))
    private_names.install()
