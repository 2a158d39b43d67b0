"""Millstream's modules as an archive, for executors that have only Python and Spark.

They are the driver's own: an executor's image may have another version, or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from millstream.common.private_files import cache_directory

_OLD_SECONDS = 86_400

# The directory of the modules on executors.
DIRECTORY = "millstream-modules"
# Pure Python, imported by every worker.
_PACKAGES = ("millstream", "cloudpickle", "fsspec")
_EXCLUDED = {"__pycache__", "page"}


def settings(user_settings: dict[str, str]) -> dict[str, str]:
    """Return Spark's settings that transfer the archive to executors, merged with the user's."""
    archives = [part for part in (user_settings.get("spark.archives"), archive()) if part]
    path = [part for part in (DIRECTORY, user_settings.get("spark.executorEnv.PYTHONPATH")) if part]
    return {"spark.archives": ",".join(archives), "spark.executorEnv.PYTHONPATH": os.pathsep.join(path)}


def driver_settings(master: str) -> dict[str, str]:
    """Return the settings by which a driver on the cluster finds the archive."""
    name = "spark.yarn.appMasterEnv.PYTHONPATH" if master == "yarn" else "spark.kubernetes.driverEnv.PYTHONPATH"
    return {name: DIRECTORY}


def archive() -> str:
    """Return the archive's path with its target directory, in Spark's notation."""
    return f"{_archive()}#{DIRECTORY}"


def _archive() -> str:
    """Return the archive's path; write it if a module has changed."""
    files = list(_files())
    stamp = hashlib.sha256(repr([(name, os.stat(path).st_mtime_ns) for name, path in files]).encode()).hexdigest()[:16]
    directory = _directory()
    target = directory / f"{stamp}.zip"
    if not target.exists():
        fresh = directory / f"{stamp}.{os.getpid()}"
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in files:
                archive.write(path, name)
        fresh.rename(target)
        _delete_old(directory)
    return str(target)


def _directory() -> Path:
    try:
        return Path(cache_directory("modules"))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="millstream-modules-"))


def _delete_old(directory: Path) -> None:
    """Delete outdated archives that no starting program can still need."""
    for old in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > _OLD_SECONDS:
                old.unlink()


def _files() -> Iterator[tuple[str, str]]:
    """Yield the files of the packages: name in the archive, and path."""
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        for root in map(Path, spec.submodule_search_locations or ()):
            for path in sorted(root.rglob("*")):
                if path.is_file() and not _EXCLUDED & set(path.relative_to(root).parts):
                    yield str(Path(package) / path.relative_to(root)), str(path)
