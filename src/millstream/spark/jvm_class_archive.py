"""The archive of Spark's classes: a JVM that maps it need not read, parse and verify them.

Java calls it application class data sharing. A JVM started without an archive writes one when it ends, which takes a
few seconds once; later starts are about two seconds shorter. Java ignores an archive of another Java or of other jars;
the file name contains a hash of both.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import logging
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from millstream.common.private_files import cache_directory
from millstream.spark.java import Java

log = logging.getLogger("millstream")

# Number of archives to retain, the most recently used ones; each has about 70 MB.
_MAX_ARCHIVES = 3
# Pause after a failed attempt to write one, in seconds.
_RETRY_SECONDS = 7 * 86_400.0

# User options that conflict with an archive: they configure sharing, or Java writes no archive with them.
_CONFLICTING = ("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-XX:AOT", "-javaagent", "-agent")


@dataclass
class ClassArchive:
    """An archive that exists or will be written.

    Attributes:
        path: its location.
        base: the archive of Java's own classes, for a Java that comes without one.
        lock: held by the process that writes it; None if it exists.
    """

    path: str
    base: str | None = None
    lock: IO[bytes] | None = field(default=None, repr=False)

    @property
    def is_being_written(self) -> bool:
        return self.lock is not None

    @property
    def options(self) -> list[str]:
        """The JVM's options. Its log is disabled: it would go to the program's output."""
        base = [] if self.base is None else [self.base]
        if self.lock is None:
            return ["-Xlog:disable", f"-XX:SharedArchiveFile={':'.join([*base, self.path])}"]
        return [
            "-Xlog:disable",
            *(f"-XX:SharedArchiveFile={b}" for b in base),
            f"-XX:ArchiveClassesAtExit={self._draft}",
        ]

    @property
    def _draft(self) -> str:
        return f"{self.path}.{os.getpid()}.tmp"

    def keep(self) -> None:
        """Keep the archive that the JVM has written."""
        try:
            os.replace(self._draft, self.path)
            _delete_oldest(os.path.dirname(self.path))
        except OSError as e:
            log.debug("the archive of Spark's classes was not written: %s", e)
            self.give_up()
        self._unlock()

    def give_up(self) -> None:
        """Drop the archive: Java did not start with it or has not written it. The next attempt is much later."""
        _delete(self._draft if self.is_being_written else self.path)
        with suppress(OSError), open(self.path.removesuffix("jsa") + "failed", "w"):
            pass
        self._unlock()

    def drop(self) -> None:
        """Drop the archive: the JVM ended before it loaded enough classes."""
        _delete(self._draft)
        self._unlock()

    def _unlock(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


def find_archive(java: Java, jars: str, options: list[str], own_options: list[str]) -> ClassArchive | None:
    """Return the archive for a Java and Spark's jars, or one that this process will write.

    None if user options conflict, another process is writing it, or there is no cache directory.

    Args:
        java: the Java runtime.
        jars: the directory of Spark's jars.
        options: all options of the JVM.
        own_options: the user's options.
    """
    if any(option.startswith(_CONFLICTING) for option in own_options):
        return None
    try:
        directory = cache_directory("java")
        stem = os.path.join(directory, _key(java, jars, options))
        return _existing(stem) or _begin(java, stem, options)
    except OSError as e:
        log.debug("the archive of Spark's classes is not available: %s", e)
        return None


def _key(java: Java, jars: str, options: list[str]) -> str:
    with os.scandir(jars) as entries:
        known = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries)
    identity = (os.path.realpath(java.path), java.build, jars, known, options)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def _existing(stem: str) -> ClassArchive | None:
    archive, base = f"{stem}.jsa", f"{stem}.base"
    if not os.path.exists(archive):
        return None
    # Mark it as used.
    os.utime(archive)
    return ClassArchive(archive, base if os.path.exists(base) else None)


def _begin(java: Java, stem: str, options: list[str]) -> ClassArchive | None:
    with suppress(FileNotFoundError):
        if time.time() - os.path.getmtime(f"{stem}.failed") < _RETRY_SECONDS:
            return None
    lock = open(f"{stem}.lock", "ab")  # noqa: SIM115 - held until the archive is made
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Left by killed processes.
        for left in glob.glob(f"{glob.escape(stem)}.jsa.*.tmp"):
            _delete(left)
        archive = _existing(stem)
        if archive is None:
            return ClassArchive(f"{stem}.jsa", _make_base(java, f"{stem}.base", options), lock)
    except OSError:
        lock.close()
        raise
    lock.close()
    return archive


def _make_base(java: Java, path: str, options: list[str]) -> str | None:
    """Write the archive of Java's own classes if Java comes without one; this takes a second."""
    if java.has_archive:
        return None
    new = f"{path}.{os.getpid()}.tmp"
    command = [java.path, *options, "-Xlog:disable", "-Xshare:dump", f"-XX:SharedArchiveFile={new}"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
    os.replace(new, path)
    return path


def _delete_oldest(directory: str) -> None:
    archives = sorted(glob.glob(os.path.join(glob.escape(directory), "*.jsa")), key=os.path.getmtime, reverse=True)
    for archive in archives[_MAX_ARCHIVES:]:
        for left in glob.glob(f"{glob.escape(archive.removesuffix('.jsa'))}.*"):
            _delete(left)


def _delete(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
