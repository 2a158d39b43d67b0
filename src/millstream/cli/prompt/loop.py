"""The prompt itself: lines are read with readline's keys, history and completion, until a statement is complete."""

from __future__ import annotations

import contextlib
import readline
from collections.abc import Callable
from pathlib import Path

from millstream.cli.prompt.statement_runner import HELP, Running
from millstream.gateway.completion import Vocabulary, candidates, word_at
from millstream.gateway.script_text import is_blank, is_command, split

PROMPT, MORE = "Millstream SQL> ", "> "
_MAX_HISTORY = 1000
_CLEAR = "\x1b[H\x1b[2J"


class Loop:
    """Reads statements from a terminal, and has them run."""

    def __init__(self, running: Running, words: Callable[[], Vocabulary], history: Path) -> None:
        """Take what runs statements.

        Args:
            running: runs them.
            words: returns the names that can be completed.
            history: the file of what was typed before.
        """
        self._running = running
        self._words = words
        self._history = history
        self._lines: list[str] = []
        self._found: list[str] = []

    def run(self) -> None:
        """Go on until QUIT or the end of the input."""
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t\n,()=;")
        readline.parse_and_bind("tab: complete")
        with contextlib.suppress(OSError):
            readline.read_history_file(self._history)
        readline.set_history_length(_MAX_HISTORY)
        while self._take_line():
            pass
        with contextlib.suppress(OSError):
            readline.write_history_file(self._history)

    def _take_line(self) -> bool:
        """Read a line, and run what it completes; return whether to go on."""
        try:
            line = input(MORE if self._lines else PROMPT)
        except KeyboardInterrupt:
            # What was typed is forgotten, and nothing else.
            print()
            self._lines.clear()
            return True
        except EOFError:
            print()
            return False
        if not self._lines and is_command(line):
            return self._command(line.strip().rstrip(";").strip().upper())
        self._lines.append(line)
        statements, rest = split("\n".join(self._lines))
        if statements or is_blank(rest):
            self._lines = [rest] if not is_blank(rest) else []
        for statement in statements:
            if is_command(statement):
                if not self._command(statement.upper()):
                    return False
            else:
                self._running.run(statement)
        return True

    def _command(self, word: str) -> bool:
        """Carry out a command; return whether to go on."""
        if word in ("QUIT", "EXIT"):
            return False
        print(_CLEAR if word == "CLEAR" else HELP, end="" if word == "CLEAR" else "\n")
        return True

    def _complete(self, text: str, number: int) -> str | None:
        if number == 0:
            try:
                before = "\n".join(self._lines)
                self._found = completions(before, readline.get_line_buffer(), readline.get_endidx(), self._words())
            except Exception:
                # An exception here would be lost anyway, and what is typed must not be.
                self._found = []
        return self._found[number] if number < len(self._found) else None


def completions(before: str, line: str, position: int, words: Vocabulary) -> list[str]:
    """Return what can stand in place of the last word of a line.

    Args:
        before: the lines of the statement above this one.
        line: the line.
        position: where in it.
        words: the names there are.

    Example:
        >>> completions("", "show ta", 7, Vocabulary())
        ['TABLES']
    """
    text = f"{before}\n{line[:position]}" if before else line[:position]
    word = word_at(text, len(text))
    begun = text.rpartition(";")[2].lstrip()
    found = candidates(text + line[position:], len(text), words)
    shown = " ".join(begun.upper().split())
    # Of what a statement can begin with, the part that is not written yet.
    return [c[len(begun) - len(word) :] if " " in begun and c.startswith(shown) else c for c in found]
