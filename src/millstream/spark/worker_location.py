"""Where this process runs: on which of Spark's executors, and on which machine."""

from __future__ import annotations

import functools
import os
import socket

from millstream.operators.runtime.messages import Place

# The executor of a Spark on this machine, which is in the driver's own Java.
DRIVER = "driver"


@functools.cache
def this_place() -> Place:
    """Return where this worker process is; forked ones ask for themselves."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Place(_executor(), socket.gethostname(), memory)


def _executor() -> str:
    """Return the id of the executor that has started this process: its Java was told it on its command line."""
    told = os.environ.get("SPARK_EXECUTOR_ID")
    if told:
        return told
    process = os.getppid()
    while process > 1:
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
            with open(f"/proc/{process}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        if "--executor-id" in words:
            return words[words.index("--executor-id") + 1]
        process = parent
    return DRIVER
