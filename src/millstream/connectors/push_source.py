"""Push sources: the driver receives records and buffers them until a checkpoint contains them."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from millstream.common.aliases import Value
from millstream.common.errors import JobExecutionError
from millstream.common.serialization import DeserializationSchema
from millstream.connectors.base import (
    BadRecord,
    BadRecords,
    Source,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
)

# Maximum buffered records.
CAPACITY = 100_000
# A restart closes and reopens sources immediately; the listener stays open for this time.
_GRACE_SECONDS = 1.0


class PushBuffer:
    """A thread-safe buffer of received records, numbered in order."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._records: deque[Value] = deque()
        # The number of the first buffered record.
        self._first = 0
        self._changed = threading.Condition()
        self._wake: Callable[[], None] = _no_listener
        self._failure: str | None = None
        self.has_ended = False

    def begin(self, number: int) -> None:
        """Set the number of the first record, if the buffer was never used."""
        with self._changed:
            if not self._first and not self._records:
                self._first = number

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def put(self, records: Sequence[Value], wait: bool) -> int | None:
        """Add records; return the number after the last.

        If the buffer is full, wait, or return None without adding. An empty buffer accepts a list of any length.
        """
        with self._changed:
            while self._records and len(self._records) + len(records) > self._capacity:
                if not wait or self.has_ended:
                    return None
                self._changed.wait(0.1)
            self._records.extend(records)
            end = self._first + len(self._records)
        self._wake()
        return end

    def end(self, failure: str | None = None) -> None:
        """End the input, optionally with a failure."""
        with self._changed:
            self.has_ended, self._failure = True, failure
            self._changed.notify_all()
        self._wake()

    def read(self, number: int, max_records: int) -> list[Value]:
        """Return records from a number on."""
        with self._changed:
            if number < self._first:
                raise JobExecutionError(
                    f"Records {number} to {self._first} of a push source are lost: only a newer checkpoint contains "
                    "them."
                )
            start = number - self._first
            records = list(islice(self._records, start, start + max_records))
            if not records and self._failure is not None:
                raise JobExecutionError(self._failure)
            return records

    def count(self, number: int) -> int:
        """Return the number of buffered records from a number on."""
        with self._changed:
            return self._first + len(self._records) - number

    def discard(self, before: int) -> None:
        """Discard the records before a number: a checkpoint contains them."""
        with self._changed:
            while self._records and self._first < before:
                self._records.popleft()
                self._first += 1
            self._changed.notify_all()


def _no_listener() -> None:
    pass


class Receiver(ABC):
    """Receives records on the driver while a source is open."""

    def __init__(self, capacity: int) -> None:
        self.buffer = PushBuffer(capacity)
        self._closing: threading.Timer | None = None
        self._is_open = False

    def acquire(self, number: int) -> None:
        """Open the receiver for a reader that starts at a number."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if not self._is_open:
            self.buffer.begin(number)
            self._is_open = True
            self.open()

    def release(self) -> None:
        """Close the receiver unless a reader reopens it soon."""
        self._closing = threading.Timer(_GRACE_SECONDS, self._close)
        self._closing.daemon = True
        self._closing.start()

    def _close(self) -> None:
        self._is_open = False
        self.close()

    @abstractmethod
    def open(self) -> None:
        """Start to receive records."""

    @abstractmethod
    def close(self) -> None:
        """Stop."""

    def discard(self, before: int) -> None:
        """Discard the records before a number: a checkpoint contains them."""
        self.buffer.discard(before)


class _Enumerator(SplitEnumerator):
    """Assigns all records to one subtask, which preserves their order."""

    def __init__(self, receiver: Receiver, restored: int | None) -> None:
        self._receiver = receiver
        self._next = restored or 0
        receiver.acquire(self._next)

    def poll(self, budget: int, now: float) -> SplitAssignment:
        records = self._receiver.buffer.read(self._next, budget)
        start, self._next = self._next, self._next + len(records)
        left = self._receiver.buffer.count(self._next)
        return SplitAssignment({0: [(start, records)]} if records else {}, limited=left > 0, unassigned={0: left})

    def is_finished(self) -> bool:
        buffer = self._receiver.buffer
        return buffer.has_ended and not buffer.count(self._next)

    def next_poll(self, now: float) -> float:
        return math.inf

    def listen(self, wake: Callable[[], None]) -> None:
        self._receiver.buffer.listen(wake)

    def snapshot(self) -> int:
        return self._next

    def committed(self, snapshot: int) -> None:
        self._receiver.discard(snapshot)

    def close(self) -> None:
        self._receiver.release()


class PushReader(SourceReader):
    """Deserializes records; split ranges contain their bytes."""

    def __init__(self, schema: DeserializationSchema, bad: BadRecords, name: str) -> None:
        self._deserialize = schema.deserialize
        self._bad = bad
        self._name = name

    def read(self, split_range: tuple[int, list[bytes]]) -> Iterator[list[Value]]:
        start, messages = split_range
        values = []
        for number, message in enumerate(messages, start):
            try:
                value = self._deserialize(message)
            except Exception as e:
                value = self._bad.handle(BadRecord(f"record {number} of {self._name}", message, str(e) or repr(e)))
            if value is not None:
                values.append(value)
        yield values


class PushSource(Source[Value]):
    """A source of records that the driver receives.

    The driver retains records until a checkpoint contains them, so they survive a failure of workers, but not of the
    driver. One subtask reads them.
    """

    def __init__(self, schema: DeserializationSchema, capacity: int) -> None:
        self._schema = schema
        self._capacity = capacity
        self._receiver: Receiver | None = None
        self.produced_type = schema.get_produced_type()

    def __getstate__(self) -> dict[str, object]:
        # The receiver stays on the driver.
        return {**self.__dict__, "_receiver": None}

    @abstractmethod
    def create_receiver(self) -> Receiver:
        """Return a new receiver."""

    def receiver(self) -> Receiver:
        """Return the receiver, which is the same for the whole program."""
        if self._receiver is None:
            self._receiver = self.create_receiver()
        return self._receiver

    def create_enumerator(self, parallelism: int, restored: int | None = None) -> SplitEnumerator:
        return _Enumerator(self.receiver(), restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return PushReader(self._schema, self.bad_records, self.name)
