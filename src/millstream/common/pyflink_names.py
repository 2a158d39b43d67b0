"""Resolves `import pyflink...` to millstream's modules: the same objects, so that classes are identical.

It is in this package because workers need it before they load a plan.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["install", "is_installed"]

_HERE = "millstream"
# `pyflink` itself, and modules that exist only under that name.
_OWN = "millstream.pyflink"
_PACKAGES = ("common", "datastream", "metrics", "table")
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
_DOCS_HINT = "docs/reference/parity.md lists the supported names"


def install() -> None:
    """Resolve `pyflink` to millstream in this process, even if apache-flink is installed."""
    if is_installed():
        return
    foreign = sys.modules.get("pyflink")
    if foreign is not None:
        raise ImportError(
            f"pyflink has been imported from {getattr(foreign, '__file__', None)} already: "
            "import millstream.pyflink before anything of it.",
            name="pyflink",
        )
    sys.meta_path.insert(0, _Finder())


def is_installed() -> bool:
    """Return whether `pyflink` is millstream in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def _target(name: str) -> str:
    """Return the millstream module of a pyflink module.

    Example:
        >>> _target("pyflink.datastream.state"), _target("pyflink.version")
        ('millstream.datastream.state', 'millstream.pyflink.version')
    """
    _, _, rest = name.partition(".")
    if not rest:
        return _OWN
    return f"{_HERE if rest.split('.')[0] in _PACKAGES else _OWN}.{rest}"


class _Finder(MetaPathFinder):
    """Finds millstream's modules for pyflink's; explains missing ones."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "pyflink":
            return None
        spec = importlib.util.find_spec(_target(fullname))
        if spec is None:
            raise ModuleNotFoundError(_sentence(fullname), name=fullname)
        return ModuleSpec(fullname, _Loader(), is_package=spec.submodule_search_locations is not None)


class _Loader(Loader):
    """Returns an existing module unchanged."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_target(spec.name))
        # The import system is about to replace the module's spec by the alias's.
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        _explain_missing(module)


def _explain_missing(module: ModuleType) -> None:
    """Make a module explain missing names."""
    known = vars(module).get("__getattr__")
    if getattr(known, "explains", False):
        return

    def find(name: str) -> object:
        if known is not None:
            try:
                return known(name)
            except AttributeError:
                pass
        message = _sentence(f"pyflink{module.__name__.removeprefix(_OWN).removeprefix(_HERE)}.{name}")
        caller = sys._getframe(1)
        # `from module import name` would replace the text of an AttributeError by its own.
        if caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
            raise ImportError(message, name=module.__name__)
        raise AttributeError(message)

    find.explains = True  # type: ignore[attr-defined]
    module.__getattr__ = find  # type: ignore[method-assign]


def _sentence(name: str) -> str:
    return f"millstream has no {name}; {_DOCS_HINT}."
