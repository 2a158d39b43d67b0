"""Log formats: plain lines, or JSON for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import Enum

from millstream.common.configuration import Configuration
from millstream.common.setting import ChoiceSetting

__all__ = ["LOG_FORMAT", "USER_LOG", "JsonLines", "LogFormat", "write_log"]


class LogFormat(Enum):
    """The log format: as the program configures logging, or one JSON object a line."""

    TEXT = 0
    JSON = 1


# The attribute of a log record of user code that holds job, operator, subtask and the plain message.
USER_LOG = "millstream_user_log"

LOG_FORMAT = ChoiceSetting("millstream.log.format", LogFormat.TEXT)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message; job, operator and subtask of user code."""

    def format(self, record: logging.LogRecord) -> str:
        about = vars(record).get(USER_LOG, {})
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": about.get("message") or record.getMessage(),
        }
        line |= {name: about[name] for name in ("job", "operator", "subtask") if about.get(name) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def write_log(config: Configuration) -> None:
    """Configure logging; with `json`, all records are written to standard error as JSON lines."""
    if LOG_FORMAT.read(config) is LogFormat.TEXT:
        return
    root = logging.getLogger()
    if not any(isinstance(handler.formatter, JsonLines) for handler in root.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        root.addHandler(handler)
