"""The archive of Spark's classes: a JVM that maps it need not read, parse and verify them one by one.

Java calls it application class data sharing. A JVM that is started without an archive writes one when it ends, which
takes a few seconds once; every later start is about two seconds shorter. Java itself refuses an archive of another
Java or of other jars, and then starts without; the name of the file says what it is of, so that a new one is made.
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

# Of so many Javas and Sparks, those that were used last, archives are kept; each has about 70 MB.
_KEPT = 3
# When one could not be made, it is tried again so much later.
_PAUSE = 7 * 86_400.0

# Options of a user's own that say what to share, or with which Java makes no archive.
_OWN_WISHES = ("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-XX:AOT", "-javaagent", "-agent")


@dataclass
class ClassArchive:
    """An archive, there or to be made.

    Attributes:
        path: where it is, or will be.
        base: the archive of Java's own classes below it, for a Java that comes without.
        lock: held by the one process that makes it; None where it is there.
    """

    path: str
    base: str | None = None
    lock: IO[bytes] | None = field(default=None, repr=False)

    @property
    def is_made_now(self) -> bool:
        return self.lock is not None

    @property
    def options(self) -> list[str]:
        """What the JVM is started with. It says nothing of archives, which it would on the program's own output."""
        base = [] if self.base is None else [self.base]
        if self.lock is None:
            return ["-Xlog:disable", f"-XX:SharedArchiveFile={':'.join([*base, self.path])}"]
        return ["-Xlog:disable", *(f"-XX:SharedArchiveFile={b}" for b in base), f"-XX:ArchiveClassesAtExit={self._new}"]

    @property
    def _new(self) -> str:
        return f"{self.path}.{os.getpid()}.tmp"

    def keep(self) -> None:
        """The JVM that was to write it has ended in good order."""
        try:
            os.replace(self._new, self.path)
            _delete_oldest(os.path.dirname(self.path))
        except OSError as e:
            log.debug("the archive of Spark's classes was not written: %s", e)
            self.give_up()
        self._unlock()

    def give_up(self) -> None:
        """Java did not start with it, or has not written it; it is long until that is tried again."""
        _delete(self._new if self.is_made_now else self.path)
        with suppress(OSError), open(self.path.removesuffix("jsa") + "failed", "w"):
            pass
        self._unlock()

    def drop(self) -> None:
        """The JVM that was to write it has not come so far that its classes would be worth it."""
        _delete(self._new)
        self._unlock()

    def _unlock(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


def find_archive(java: Java, jars: str, options: list[str], own_options: list[str]) -> ClassArchive | None:
    """Return the archive for a Java and Spark's jars, or one that this process is to make.

    None if the user has wishes of their own, another process is making it, or it cannot be kept.

    Args:
        java: the Java.
        jars: the directory of Spark's jars.
        options: the options that the JVM is started with.
        own_options: those of them that are the user's.
    """
    if any(option.startswith(_OWN_WISHES) for option in own_options):
        return None
    try:
        directory = cache_directory("java")
        stem = os.path.join(directory, _key(java, jars, options))
        return _existing(stem) or _begin(java, stem, options)
    except OSError as e:
        log.debug("there is no room for an archive of Spark's classes: %s", e)
        return None


def _key(java: Java, jars: str, options: list[str]) -> str:
    with os.scandir(jars) as entries:
        known = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries)
    what = (os.path.realpath(java.path), java.build, jars, known, options)
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _existing(stem: str) -> ClassArchive | None:
    archive, base = f"{stem}.jsa", f"{stem}.base"
    if not os.path.exists(archive):
        return None
    # It was used just now: it goes after those that were not.
    os.utime(archive)
    return ClassArchive(archive, base if os.path.exists(base) else None)


def _begin(java: Java, stem: str, options: list[str]) -> ClassArchive | None:
    with suppress(FileNotFoundError):
        if time.time() - os.path.getmtime(f"{stem}.failed") < _PAUSE:
            return None
    lock = open(f"{stem}.lock", "ab")  # noqa: SIM115 - held until the archive is made
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Of processes that were killed.
        for left in glob.glob(f"{glob.escape(stem)}.jsa.*.tmp"):
            _delete(left)
        found = _existing(stem)
        if found is None:
            return ClassArchive(f"{stem}.jsa", _make_base(java, f"{stem}.base", options), lock)
    except OSError:
        lock.close()
        raise
    lock.close()
    return found


def _make_base(java: Java, path: str, options: list[str]) -> str | None:
    """Make the archive of Java's own classes, where Java comes without, which takes a second."""
    if java.has_archive:
        return None
    new = f"{path}.{os.getpid()}.tmp"
    command = [java.path, *options, "-Xlog:disable", "-Xshare:dump", f"-XX:SharedArchiveFile={new}"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
    os.replace(new, path)
    return path


def _delete_oldest(directory: str) -> None:
    archives = sorted(glob.glob(os.path.join(glob.escape(directory), "*.jsa")), key=os.path.getmtime, reverse=True)
    for archive in archives[_KEPT:]:
        for left in glob.glob(f"{glob.escape(archive.removesuffix('.jsa'))}.*"):
            _delete(left)


def _delete(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
