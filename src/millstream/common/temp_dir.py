"""Where this process may put what nobody needs when it has ended."""

from __future__ import annotations

import os
import shutil
import tempfile

# A session cluster gives each of its programs such a place, and clears it when the program's process is gone, however
# that has ended.
SCRATCH_VARIABLE = "MILLSTREAM_SCRATCH"

# The kernel's limit for a socket's path is 108 bytes (104 on a Mac), with a zero at the end.
_LONGEST_PATH = 103


def scratch() -> str | None:
    """Return the directory for that; None for the machine's own for such things."""
    given = os.environ.get(SCRATCH_VARIABLE)
    return given if given and os.path.isdir(given) else None


def socket_directory(prefix: str, name_length: int = 23) -> str:
    """Make a directory for Unix sockets that nobody else may look into; in /tmp where TMPDIR's name is too long.

    Args:
        prefix: what its name begins with.
        name_length: how many bytes are appended for a socket.
    """
    directory = tempfile.mkdtemp(prefix=prefix, dir=scratch())
    if len(os.fsencode(directory)) + name_length > _LONGEST_PATH:
        shutil.rmtree(directory)
        directory = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    return directory
