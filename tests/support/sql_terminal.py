"""Commands of `millstream` on a terminal, such as the SQL prompt, for tests."""

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
    """A command on a terminal."""

    def __init__(self, folder: Path, words: Sequence[str], seconds: float) -> None:
        """Start the command.

        Args:
            folder: the working directory.
            words: the command and its options.
            seconds: the timeout for expected output.
        """
        self._seconds = seconds
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
            os.chdir(folder)
            # A background job of a shell ignores Ctrl-C, and the command would inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv(sys.executable, [sys.executable, "-m", "millstream", *words])
        self.unread_output = ""

    def sees(self, pattern: str, pressing: str = "") -> str:
        """Wait until the output matches a pattern; return the match and discard the output up to it.

        Args:
            pattern: the expected output.
            pressing: a key to press every second until then: the line editor handles a Ctrl-C that arrives between
                its drawing of the prompt and its waiting for keys only on the next key.
        """
        self.types(pressing)
        end = time.monotonic() + self._seconds
        while not (match := re.search(pattern, self.unread_output, re.DOTALL)):
            assert time.monotonic() < end, self.unread_output[-3000:]
            if not select.select([self.fd], [], [], 1)[0]:
                self.types(pressing)
                continue
            try:
                self.unread_output += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:
                pytest.fail(f"the command has ended: {self.unread_output[-3000:]}")
        self.unread_output = self.unread_output[match.end() :]
        return match.group()

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def ends(self) -> int:
        """Wait until the command has ended; return its exit code."""
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def terminal_with(folder: Path, *options: str, seconds: float = 40) -> contextlib.AbstractContextManager[Terminal]:
    """Start the SQL prompt, and kill it when the test ends."""
    return terminal_of(folder, "sql", *options, "-hist", "history", seconds=seconds)


@contextlib.contextmanager
def terminal_of(folder: Path, *words: str, seconds: float = 40) -> Iterator[Terminal]:
    """Start a command, and kill it when the test ends."""
    terminal = Terminal(folder, words, seconds)
    try:
        yield terminal
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        os.close(terminal.fd)
