"""The sessions of a gateway with their operations; idle ones are closed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millstream.common.configuration import Configuration
from millstream.common.setting import DurationSetting, IntegerSetting, at_least
from millstream.gateway.operation import Operation
from millstream.gateway.session import Outcome, Session
from millstream.sql.errors import TableException

IDLE = DurationSetting("sql-gateway.session.idle-timeout", 600_000)
MAX_SESSIONS = IntegerSetting("sql-gateway.session.max-num", 1_000_000, limit=at_least(1))
CHECK = DurationSetting("sql-gateway.session.check-interval", 60_000)


@dataclass
class OpenSession:
    """A session that is open.

    Attributes:
        session: the session.
        used_at: the time of its last use, by a steady clock.
        operations: its open operations by handle.
    """

    session: Session
    used_at: float
    operations: dict[str, Operation] = field(default_factory=dict)

    def operation(self, handle: str) -> Operation:
        """Return one of its operations."""
        operation = self.operations.get(handle)
        if operation is None:
            raise TableException(f"Can not find the submitted operation in the OperationManager with the {handle}.")
        return operation

    def submit(self, execute: Callable[[], Outcome], timeout_ms: int = 0) -> Operation:
        """Start a statement."""
        operation = Operation(execute, timeout_ms / 1000)
        self.operations[operation.handle] = operation
        operation.start()
        return operation

    def close(self) -> None:
        """Stop its operations."""
        for operation in list(self.operations.values()):
            operation.close()
        self.operations.clear()


class Sessions:
    """The sessions of a gateway."""

    def __init__(
        self,
        begin: Callable[[Mapping[str, str]], Session],
        config: Configuration | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty set of sessions.

        Args:
            begin: creates a session with settings.
            config: the maximum number of sessions and their idle timeout.
            clock: a steady clock.
        """
        config = config or Configuration()
        self._begin = begin
        self._clock = clock
        self._max_sessions = MAX_SESSIONS.read(config)
        self._idle_seconds = IDLE.read(config) / 1000
        self._check_seconds = max(CHECK.read(config) / 1000, 0.01)
        self._lock = threading.Lock()
        self._open: dict[str, OpenSession] = {}
        self._is_stopped = threading.Event()

    def start(self) -> None:
        """Start the periodic check for idle sessions."""
        if self._idle_seconds > 0:
            threading.Thread(target=self._close_idle_periodically, name="millstream-sessions", daemon=True).start()

    def _close_idle_periodically(self) -> None:
        while not self._is_stopped.wait(self._check_seconds):
            self.close_idle()

    def stop(self) -> None:
        """Close all sessions."""
        self._is_stopped.set()
        for handle in list(self._open):
            self.close(handle)

    def open(self, properties: Mapping[str, str]) -> str:
        """Open a session; return its handle."""
        with self._lock:
            if len(self._open) >= self._max_sessions:
                raise TableException(
                    "Failed to create session, the count of active sessions exceeds the max count: "
                    f"{self._max_sessions}"
                )
        handle, session = str(uuid.uuid4()), self._begin(properties)
        with self._lock:
            self._open[handle] = OpenSession(session, self._clock())
        return handle

    def find(self, handle: str) -> OpenSession:
        """Return a session and update the time of its last use."""
        with self._lock:
            session = self._open.get(handle)
            if session is None:
                raise TableException(f"Session '{handle}' does not exist.")
            session.used_at = self._clock()
            return session

    def close(self, handle: str) -> None:
        """Close a session."""
        self.find(handle)
        with self._lock:
            session = self._open.pop(handle)
        session.close()

    def close_idle(self) -> None:
        """Close sessions that have been idle for longer than the timeout."""
        oldest = self._clock() - self._idle_seconds
        with self._lock:
            idle = [h for h, s in self._open.items() if s.used_at < oldest]
        for handle in idle:
            self.close(handle)
