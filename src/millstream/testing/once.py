"""Once: something that happens one time, however many processes and restarts a job goes through."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref


class Once:
    """Remembers in a directory what has happened; copies of it that travel to workers look into the same one.

    Args:
        directory: one that all processes of the job see; without one, a temporary directory of this machine.

    Example:
        >>> once = Once()
        >>> once.is_first("failure"), once.is_first("failure")
        (True, False)
    """

    def __init__(self, directory: str | None = None) -> None:
        self.directory = directory or tempfile.mkdtemp(prefix="millstream-once-")
        # The process that made it, which must not be killed.
        self.pid = os.getpid()
        if directory is None:
            weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)

    def is_first(self, name: str) -> bool:
        """Tell whether nobody has asked for this name before."""
        try:
            os.close(os.open(os.path.join(self.directory, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True
