"""Forwards log records of user code in workers to the driver's log, with the report of the epoch."""

from __future__ import annotations

import inspect
import logging

from millstream.common.log_format import USER_LOG
from millstream.operators.diagnostics.user_code_guard import caller
from millstream.operators.runtime.messages import LogLine

# Maximum lines per epoch; further lines are only counted.
MAX_LINES = 10_000


class Logged(logging.Handler):
    """Collects the log records of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[LogLine] = []
        self._dropped_lines = 0

    def listen(self, levels: dict[str, int]) -> None:
        """Set the levels of the driver's loggers, and collect what they emit."""
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        root = logging.getLogger()
        if self not in root.handlers:
            root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) >= MAX_LINES:
            self._dropped_lines += 1
            return
        operator = caller(inspect.currentframe())
        text, about = self.format(record), vars(record).get(USER_LOG)
        if about is not None:
            # The operator is already in the text, because a job has run in this process before.
            text = text.replace(record.getMessage(), about["message"], 1)
        fields = record.name, record.levelno, text, record.created
        origin = (None,) if operator is None else (operator.operator, operator.subtask, operator.job)
        self._lines.append(LogLine(*fields, *origin))

    def take(self) -> list[LogLine]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        if self._dropped_lines:
            text = f"... and {self._dropped_lines:,} more lines in this epoch"
            lines.append(LogLine("millstream", logging.WARNING, text, lines[-1].created, None))
            self._dropped_lines = 0
        return lines


def levels() -> dict[str, int]:
    """Return the levels that are set in this process, by logger; that of the root logger under an empty name."""
    named = {name: lg.level for name, lg in logging.root.manager.loggerDict.items() if isinstance(lg, logging.Logger)}
    return {"": logging.root.level, **{name: level for name, level in named.items() if level != logging.NOTSET}}


def pass_on(line: LogLine) -> None:
    """Log in this process a line of another process."""
    logger = logging.getLogger(line.name)
    if not logger.isEnabledFor(line.level):
        return
    text = line_text(line)
    if not logger.hasHandlers():
        # Without handlers Python writes only the text of warnings and errors to standard error.
        text = f"{logging.getLevelName(line.level)} {text}"
    about = {"operator": line.operator, "subtask": line.subtask, "job": line.job, "message": line.message}
    record = logger.makeRecord(line.name, line.level, "", 0, text, (), None, extra={USER_LOG: about})
    record.created = line.created
    record.msecs = line.created % 1 * 1000
    logger.handle(record)


def line_text(line: LogLine) -> str:
    """Return the text of a line with its operator."""
    return line.message if line.operator is None else f"[{_of(line)}] {line.message}"


def _of(line: LogLine) -> str:
    job = "" if line.job is None else f"{line.job}, "
    return f"{job}{line.operator}" + ("" if line.subtask is None else f", subtask {line.subtask}")


def name_operators_in_logs() -> None:
    """Add the operator to log records of user functions in this process, in which a job runs without workers."""
    before = logging.getLogRecordFactory()
    if getattr(before, "names_operators", False):
        return

    def record(*args: object, **kwargs: object) -> logging.LogRecord:
        created = before(*args, **kwargs)
        origin = caller(inspect.currentframe())
        if origin is not None:
            text = created.getMessage()
            operator, subtask, job = origin.operator, origin.subtask, origin.job
            line = LogLine(created.name, created.levelno, text, created.created, operator, subtask, job)
            created.msg, created.args = f"[{_of(line)}] {text}", ()
            # One attribute, with a name that no program uses in `extra`.
            vars(created)[USER_LOG] = {"operator": operator, "subtask": subtask, "job": job, "message": text}
        return created

    record.names_operators = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(record)
