"""Runs statements of a prompt or a file, and prints results as Flink's SQL client does."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Mapping
from typing import TextIO

from millstream.cli.prompt.views import ChangelogView, TableView, known_rows
from millstream.gateway.session import Outcome, Session
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import ValidationException
from millstream.sql.language import statements as s
from millstream.table.result_display import Tableau

MODE = "sql-client.execution.result-mode"
_MODES = ("TABLE", "CHANGELOG", "TABLEAU")
_VERBOSE = "sql-client.verbose"
_PRINT_TIME_COST = "sql-client.display.print-time-cost"
_MAX_ROWS = "sql-client.execution.max-table-result.rows"
_WIDTH = "table.display.max-column-width"

_COMMANDS = {
    "HELP": "Prints the available commands.",
    "QUIT/EXIT": "Quits the SQL CLI client.",
    "CLEAR": "Clears the current terminal.",
    "SET": "Sets a session configuration property: SET '<key>'='<value>'; and SET; lists all of them.",
    "RESET": "Resets a session configuration property: RESET '<key>'; and RESET; resets all of them.",
    "INSERT INTO": "Inserts the results of a SQL SELECT query into a declared table sink.",
    "INSERT OVERWRITE": "Inserts the results of a SQL SELECT query and overwrites existing data.",
    "SELECT": "Executes a SQL SELECT query.",
    "EXPLAIN": "Describes the execution plan of a query, and the state it will keep.",
    "BEGIN STATEMENT SET": "Begins a statement set: one job for the INSERTs before END;",
    "END": "Ends a statement set.",
    "SHOW JOBS": "Shows the jobs of this prompt.",
    "STOP JOB": "Stops a job: STOP JOB '<id>' [WITH SAVEPOINT] [WITH DRAIN];",
}
HELP = "\n".join(
    [
        "The following commands are available:\n",
        *(f"{word:20}{description}" for word, description in _COMMANDS.items()),
        '\nHint: Make sure that a statement ends with ";" for finalizing (multi-line) statements.\n',
    ]
)


class StatementRunner:
    """Runs statements of a session and prints their results."""

    def __init__(self, session: Session, out: TextIO, is_terminal: bool) -> None:
        """Create a runner.

        Args:
            session: executes statements.
            out: the output.
            is_terminal: whether the output is a screen on which rows can change.
        """
        self._session = session
        self._out = out
        self._is_terminal = is_terminal

    def run(self, text: str) -> bool:
        """Run a statement; return whether it succeeded. Ctrl-C ends only the query."""
        try:
            self._check_mode()
            outcome = self._session.execute(text)
            self._show(outcome)
            return True
        except KeyboardInterrupt:
            self._print("\nQuery terminated")
            return True
        except Exception as e:
            self._print_error(e)
            return False

    def info(self, text: str) -> None:
        """Print a status message."""
        self._print(f"[INFO] {text}")

    def _check_mode(self) -> None:
        mode = self._settings.get(MODE, "TABLE").upper()
        if mode not in _MODES:
            self._session.execute(f"RESET '{MODE}'")
            raise ValidationException(f"{MODE} is '{mode}': it must be one of TABLE, CHANGELOG and TABLEAU.")

    @property
    def _settings(self) -> Mapping[str, str]:
        return self._session.settings

    def _print(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def _print_error(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._settings.get(_VERBOSE, "false").lower() == "true":
            text = "".join(traceback.format_exception(error)).rstrip()
        self._print(f"[ERROR] Could not execute SQL statement. Reason:\n{text}\n")

    def _show(self, outcome: Outcome) -> None:
        if outcome.is_query:
            self._show_query(outcome)
        elif outcome.job_id is not None:
            self.info("SQL update statement has been successfully submitted:")
            self._print(f"Job ID: {outcome.job_id}\n")
        elif outcome.is_ok:
            self.info("Execute statement succeeded.\n")
        else:
            self._show_rows(outcome)

    def _show_rows(self, outcome: Outcome) -> None:
        batches = list(outcome.batches)
        if _is_text(outcome.statement):
            # Text of several lines is printed verbatim.
            self._print("".join(str(b.columns[0][0]) for b in batches))
        elif not batches:
            self._print("Empty set\n")
        else:
            self._print("\n".join(known_rows(outcome.fields, batches, None, outcome.zone, "")) + "\n")

    # --- queries

    def _show_query(self, outcome: Outcome) -> None:
        mode = self._settings.get(MODE, "TABLE").upper() if self._is_terminal else "TABLEAU"
        max_width = int(self._settings.get(_WIDTH, "30"))
        if mode == "TABLEAU":
            self._print_query(outcome, max_width)
            return
        # A lazy import: only a terminal has termios.
        from millstream.cli.prompt.screen import show

        max_rows = int(self._settings.get(_MAX_ROWS, "1000000"))
        kind = TableView if mode == "TABLE" else ChangelogView
        view = kind(outcome.fields, max_width, outcome.zone, max_rows)
        show(outcome, view)
        self.info("Result retrieval finished.\n" if len(view) else "Result retrieval cancelled.\n")

    def _print_query(self, outcome: Outcome, max_width: int) -> None:
        started, rows = time.monotonic(), 0
        try:
            if self._session.is_batch:
                rows = self._print_known(outcome, max_width, started)
                return
            tableau = Tableau(outcome.fields, True, max_width, outcome.zone)
            self._print("\n".join(tableau.head()))
            for batch in outcome.batches:
                rows += len(batch)
                self._print("\n".join(tableau.rows(batch)))
            self._print(f"{tableau.line()}\nReceived a total of {_rows(rows)}{self._duration(started)}\n")
        except KeyboardInterrupt:
            outcome.cancel()
            self._print(f"\nQuery terminated, received a total of {_rows(rows)}\n")

    def _print_known(self, outcome: Outcome, max_width: int, started: float) -> int:
        batches: list[Batch] = [b for b in outcome.batches if len(b)]
        if not batches:
            self._print(f"Empty set{self._duration(started)}\n")
            return 0
        lines = known_rows(outcome.fields, batches, max_width, outcome.zone, "<NULL>")
        self._print("\n".join(lines) + self._duration(started) + "\n")
        return sum(map(len, batches))

    def _duration(self, started: float) -> str:
        if self._settings.get(_PRINT_TIME_COST, "true").lower() != "true":
            return ""
        return f" ({time.monotonic() - started:.2f} seconds)"


def _is_text(statement: s.Statement) -> bool:
    return isinstance(statement, s.Explain) or (isinstance(statement, s.Show) and statement.kind.startswith("CREATE "))


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def is_screen() -> bool:
    """Return whether input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()
