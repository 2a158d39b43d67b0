"""The prompt of `millstream sql` on a terminal, for tests."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PROMPT = "Millstream SQL> "


class Terminal:
    """The prompt on a terminal."""

    def __init__(self, folder: Path, options: Sequence[str], seconds: float) -> None:
        """Start it.

        Args:
            folder: where it is started.
            options: what is said on the command line.
            seconds: how long to wait for something that shall be seen.
        """
        self._seconds = seconds
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
            os.chdir(folder)
            # Who runs tests behind a shell's back has Ctrl-C ignored, and so would have the prompt.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv(sys.executable, [sys.executable, "-m", "millstream", "sql", *options, "-hist", "history"])
        self.told = ""

    def sees(self, pattern: str, pressing: str = "") -> str:
        """Wait until something is on the terminal; return what it was, and go on behind it.

        Args:
            pattern: what shall be seen.
            pressing: a key that is pressed until then, every second: the line editor hears of a Ctrl-C that comes
                between its drawing of the prompt and its waiting for keys only with the next key.
        """
        self.types(pressing)
        end = time.monotonic() + self._seconds
        while not (found := re.search(pattern, self.told, re.DOTALL)):
            assert time.monotonic() < end, self.told[-3000:]
            if not select.select([self.fd], [], [], 1)[0]:
                self.types(pressing)
                continue
            try:
                self.told += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:
                pytest.fail(f"the prompt has ended: {self.told[-3000:]}")
        self.told = self.told[found.end() :]
        return found.group()

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def ends(self) -> int:
        """Wait until the prompt has ended; return its exit code."""
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextlib.contextmanager
def terminal_with(folder: Path, *options: str, seconds: float = 40) -> Iterator[Terminal]:
    """Start the prompt; when the test is over it is ended."""
    terminal = Terminal(folder, options, seconds)
    try:
        yield terminal
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        os.close(terminal.fd)
