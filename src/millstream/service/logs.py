"""The last lines of this process's log, for who asks over REST."""

from __future__ import annotations

import logging
from collections import deque

from millstream.common.masking import masked_text

_LINES = 5000
_FORMAT = "%(asctime)s %(levelname)-5s %(name)s - %(message)s"


class RecentLines(logging.Handler):
    """Keeps the last lines that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT))
        self._lines: deque[str] = deque(maxlen=_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(masked_text(self.format(record)))

    def text(self) -> str:
        """Return the lines, the oldest first."""
        lines = list(self._lines)
        return "\n".join(lines) + "\n" if lines else ""
