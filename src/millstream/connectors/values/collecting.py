"""The sink behind execute_and_collect: its records come back to the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.operators.functions.context import RuntimeContext


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._values: list[Any] = []
        self._transaction = ""

    def begin(self, transaction: str) -> None:
        self._transaction = transaction
        # What an epoch that failed has left.
        self._values.clear()

    def write(self, value: Any) -> None:
        self._values.append(value)

    def prepare_commit(self, flush: bool) -> tuple[str, list[Any]] | None:
        if not self._values:
            return None
        values = self._values[:]
        self._values.clear()
        return self._transaction, values


class _Committer(Committer):
    def __init__(self, take: Callable[[list[Any]], None]) -> None:
        self._take = take
        # What was committed in the last two calls: nothing older comes again.
        self._before: set[str] = set()
        self._last: set[str] = set()

    def commit(self, committables: list[tuple[int, Any]]) -> None:
        known = self._before | self._last
        self._before, self._last = self._last, set()
        for _, (transaction, values) in committables:
            self._last.add(transaction)
            if transaction not in known:
                self._take(values)


class DriverSink(Sink):
    """Hands every epoch's records to a function on the driver, subtask by subtask."""

    name = "Collect Sink"

    def __init__(self, take: Callable[[list[Any]], None]) -> None:
        self._take: Callable[[list[Any]], None] | None = take

    def __getstate__(self) -> dict[str, Any]:
        # The function belongs to the driver; the workers' copy only writes.
        return {"_take": None}

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer()

    def create_committer(self, context: CommitContext) -> Committer:
        assert self._take is not None
        return _Committer(self._take)
