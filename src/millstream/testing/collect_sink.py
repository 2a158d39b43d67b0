"""CollectSink: a sink whose records can be looked at when the job is done."""

from __future__ import annotations

from threading import Lock
from typing import Any

from millstream.connectors.values.collecting import DriverSink

__all__ = ["CollectSink"]


class CollectSink(DriverSink):
    """Keeps the records it gets, on the driver; for add_sink and sink_to.

    It may be looked at while the job runs and afterwards, from any thread.

    Example:
        >>> sink = CollectSink()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_collection([1, 2]).sink_to(sink)
        >>> _ = env.execute()
        >>> sink.results()
        [1, 2]
    """

    def __init__(self) -> None:
        self._results: list[Any] = []
        self._lock = Lock()
        super().__init__(self._add)

    def _add(self, values: list[Any]) -> None:
        with self._lock:
            self._results.extend(values)

    def results(self) -> list[Any]:
        """Return the records in the order they arrived."""
        with self._lock:
            return list(self._results)

    def clear(self) -> None:
        """Forget the records."""
        with self._lock:
            self._results.clear()
