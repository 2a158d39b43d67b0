"""Files and directories private to this user.

In a shared temporary directory any user can create a name first. A file there is trusted only if this user owns it and
no other user may write to it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile

from millstream.common.errors import MillstreamError

RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"


class NotPrivateError(MillstreamError):
    """A file or directory is accessible to other users."""


def runtime_directory() -> str:
    """Return the directory of this user's run files and tokens; it may not exist.

    It is below XDG_RUNTIME_DIR if this user owns that, else in the temporary directory.
    """
    runtime = os.environ.get(RUNTIME_VARIABLE)
    # After `su`, the variable may still name another user's directory.
    if runtime and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.geteuid() and os.access(runtime, os.W_OK):
        return os.path.join(runtime, "millstream")
    return os.path.join(tempfile.gettempdir(), f"millstream-run-{os.geteuid()}")


def make_private_directory(path: str) -> None:
    """Create a directory that only this user can access, or check an existing one.

    Raises:
        NotPrivateError: another user owns it or may access it.
    """
    # makedirs would create parents with the default mode.
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        check_private(path)


def check_private(path: str) -> None:
    """Check that only this user can access a directory.

    Raises:
        NotPrivateError: it is a link, another user owns it, or others may access it.
    """
    about = os.lstat(path)
    if not stat.S_ISDIR(about.st_mode):
        reason = "is not a directory"
    elif about.st_uid != os.geteuid():
        reason = f"belongs to user {about.st_uid}"
    elif about.st_mode & 0o077:
        reason = f"is open to others (mode {stat.S_IMODE(about.st_mode):o})"
    else:
        return
    raise NotPrivateError(
        f"{path} {reason}, so its contents are not trusted: remove it, or set {RUNTIME_VARIABLE} to a directory of "
        "your own."
    )


def write_private(path: str, data: bytes) -> None:
    """Write a file that only this user can read, atomically."""
    descriptor, unfinished = tempfile.mkstemp(dir=os.path.dirname(path))  # with mode 0600
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(unfinished, path)


def read_private(path: str) -> bytes:
    """Read a file that only this user can read and write.

    Raises:
        NotPrivateError: another user owns it or may access it.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise NotPrivateError(
                f"{path} belongs to user {about.st_uid} with mode {stat.S_IMODE(about.st_mode):o}: it must be yours, "
                "with mode 600."
            )
        return file.read()


# A session cluster sets it for each program, and deletes the directory when the program's process has ended.
SCRATCH_VARIABLE = "MILLSTREAM_SCRATCH"

# The kernel's limit for a socket's path is 108 bytes (104 on a Mac), with a zero at the end.
_LONGEST_PATH = 103


def scratch() -> str | None:
    """Return the directory for temporary files of this process; None for the system's."""
    directory = os.environ.get(SCRATCH_VARIABLE)
    return directory if directory and os.path.isdir(directory) else None


def socket_directory(prefix: str, name_length: int = 23) -> str:
    """Create a private directory for Unix sockets, in /tmp if TMPDIR is too long for a socket's path.

    Args:
        prefix: of the directory's name.
        name_length: the maximum length of a socket's name.
    """
    directory = tempfile.mkdtemp(prefix=prefix, dir=scratch())
    if len(os.fsencode(directory)) + name_length > _LONGEST_PATH:
        shutil.rmtree(directory)
        directory = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    return directory


def cache_directory(name: str) -> str:
    """Return a private cache directory of this user; raise OSError if others could write to it."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = os.path.join(cache, "millstream", name)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    status = os.stat(directory)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{directory} is accessible to other users")
    return directory
