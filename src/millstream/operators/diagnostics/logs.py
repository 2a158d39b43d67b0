"""What user code says to `logging` in a worker: it travels to the driver's log with the report of its epoch."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from millstream.common.log_format import SAID
from millstream.operators.diagnostics.user_code_guard import speaker
from millstream.operators.runtime.messages import LogLine

# What more than this is said in an epoch is only counted: a log is for people.
MAX_LINES = 10_000


class Logged(logging.Handler):
    """Takes what is logged in this process."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[LogLine] = []
        self._left_out = 0

    def listen(self, levels: dict[str, int]) -> None:
        """Take what all loggers let through, which have the levels that they have in the driver."""
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        root = logging.getLogger()
        if self not in root.handlers:
            root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) >= MAX_LINES:
            self._left_out += 1
            return
        who = speaker(inspect.currentframe())
        text, about = self.format(record), vars(record).get(SAID)
        if about is not None:
            # It has its speaker's name already, because a job has run in this very process before.
            text = text.replace(record.getMessage(), about["said"], 1)
        said = record.name, record.levelno, text, record.created
        self._lines.append(LogLine(*said, *((None,) if who is None else (who.operator, who.subtask, who.job))))

    def take(self) -> list[LogLine]:
        """Return what was said since the last call."""
        lines, self._lines = self._lines, []
        if self._left_out:
            text = f"... and {self._left_out:,} more lines in this epoch"
            lines.append(LogLine("millstream", logging.WARNING, text, lines[-1].created, None))
            self._left_out = 0
        return lines


def levels() -> dict[str, int]:
    """Return the levels that were set in this process, by logger; the root's under no name."""
    named = {name: lg.level for name, lg in logging.root.manager.loggerDict.items() if isinstance(lg, logging.Logger)}
    return {"": logging.root.level, **{name: level for name, level in named.items() if level != logging.NOTSET}}


def pass_on(line: LogLine) -> None:
    """Say in this process what was said in another."""
    logger = logging.getLogger(line.name)
    if not logger.isEnabledFor(line.level):
        return
    text = line_text(line)
    if not logger.hasHandlers():
        # Then Python writes warnings and worse to standard error, and nothing but their text.
        text = f"{logging.getLevelName(line.level)} {text}"
    about = {"operator": line.operator, "subtask": line.subtask, "job": line.job, "said": line.message}
    record = logger.makeRecord(line.name, line.level, "", 0, text, (), None, extra={SAID: about})
    record.created = line.created
    record.msecs = line.created % 1 * 1000
    logger.handle(record)


def line_text(line: LogLine) -> str:
    """Return what was said, with who said it."""
    return line.message if line.operator is None else f"[{_of(line)}] {line.message}"


def _of(line: LogLine) -> str:
    job = "" if line.job is None else f"{line.job}, "
    return f"{job}{line.operator}" + ("" if line.subtask is None else f", subtask {line.subtask}")


def name_speakers() -> None:
    """Have what functions say to `logging` in this process, where a job runs without workers, told as of workers."""
    before = logging.getLogRecordFactory()
    if getattr(before, "names_speakers", False):
        return

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made = before(*args, **kwargs)
        who = speaker(inspect.currentframe())
        if who is not None:
            said = made.getMessage()
            line = LogLine(made.name, made.levelno, said, made.created, who.operator, who.subtask, who.job)
            made.msg, made.args = f"[{_of(line)}] {said}", ()
            # One name, and none that a program would give something of its own (`extra`).
            vars(made)[SAID] = {"operator": who.operator, "subtask": who.subtask, "job": who.job, "said": said}
        return made

    record.names_speakers = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(record)
