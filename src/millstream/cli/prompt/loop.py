"""The prompt: reads statements with readline's keys, history and completion."""

from __future__ import annotations

import contextlib
import readline
from collections.abc import Callable
from pathlib import Path

from millstream.cli.prompt.statement_runner import HELP, StatementRunner
from millstream.gateway.completion import Vocabulary, candidates, word_at
from millstream.gateway.script_text import is_blank, is_command, split

PROMPT, MORE = "Millstream SQL> ", "> "
_MAX_HISTORY = 1000
_CLEAR = "\x1b[H\x1b[2J"


class Loop:
    """Reads statements from a terminal and runs them."""

    def __init__(self, runner: StatementRunner, words: Callable[[], Vocabulary], history: Path) -> None:
        """Create the loop.

        Args:
            runner: runs statements.
            words: returns the names for completion.
            history: the file of the input history.
        """
        self._runner = runner
        self._words = words
        self._history = history
        self._lines: list[str] = []
        self._completions: list[str] = []

    def run(self) -> None:
        """Run until QUIT or the end of the input."""
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
        """Read a line, and run the statements that it completes; return whether to continue."""
        try:
            line = input(MORE if self._lines else PROMPT)
        except KeyboardInterrupt:
            # Discards only the typed lines.
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
                self._runner.run(statement)
        return True

    def _command(self, word: str) -> bool:
        """Run a command; return whether to continue."""
        if word in ("QUIT", "EXIT"):
            return False
        print(_CLEAR if word == "CLEAR" else HELP, end="" if word == "CLEAR" else "\n")
        return True

    def _complete(self, text: str, number: int) -> str | None:
        if number == 0:
            try:
                before = "\n".join(self._lines)
                self._completions = completions(
                    before, readline.get_line_buffer(), readline.get_endidx(), self._words()
                )
            except Exception:
                # readline swallows exceptions; the typed text must survive.
                self._completions = []
        return self._completions[number] if number < len(self._completions) else None


def completions(before: str, line: str, position: int, words: Vocabulary) -> list[str]:
    """Return the completions of the last word of a line.

    Args:
        before: the lines of the statement above this one.
        line: the line.
        position: the cursor's position in the line.
        words: the known names.

    Example:
        >>> completions("", "show ta", 7, Vocabulary())
        ['TABLES']
    """
    text = f"{before}\n{line[:position]}" if before else line[:position]
    word = word_at(text, len(text))
    begun = text.rpartition(";")[2].lstrip()
    matches = candidates(text + line[position:], len(text), words)
    shown = " ".join(begun.upper().split())
    # Of the beginning of a statement, only the part after the typed words.
    return [c[len(begun) - len(word) :] if " " in begun and c.startswith(shown) else c for c in matches]
