"""A slot's process that is told to end while it ends already."""

from __future__ import annotations

import subprocess
import sys

# The signal comes with the first thing that `ignore` does, which is when a host ends slots that are about to go.
PROGRAM = """
import os, signal
from millstream.spark import termination

real = signal.setitimer

def told_just_now(*arguments):
    signal.setitimer = real
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*arguments)

signal.setitimer = told_just_now
termination.expect()
try:
    raise SystemExit(0)
except SystemExit:
    pass
finally:
    termination.ignore()
    print("closed", termination.is_asked())
"""


def test_who_ends_already_closes_what_is_open_in_silence() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("closed True\n", "", 0)
