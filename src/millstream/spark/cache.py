"""Where millstream keeps what every program of a user may use again."""

from __future__ import annotations

import os


def cache_directory(name: str) -> str:
    """Return a directory of this user's; raise OSError where somebody else could put something there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = os.path.join(cache, "millstream", name)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.stat(directory)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{directory} is not this user's alone")
    return directory
