"""Which messages of a queue are new, and which may be acknowledged: no I/O, no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from millstream.common.tags import tagged


class Message(NamedTuple):
    """A message as it came: its number on the channel, its correlation id if they count, and its bytes.

    Without bytes it is one that came twice, which is acknowledged behind the first.
    """

    tag: int
    id: str | None
    body: bytes | None


@tagged("rabbitmq-position")
@dataclass(frozen=True)
class Position:
    """How far a queue was dealt out.

    Attributes:
        next: the number of the next message, over all executions.
        channel: on which channel they came: messages of another one come again by themselves.
        tag: the last one that was dealt out there; 0 for none.
        ids: the correlation ids of those that were dealt out and may come again.
    """

    next: int
    channel: str
    tag: int
    ids: frozenset[str]


class Intake:
    """The messages that have come on one channel.

    Messages that a checkpoint holds come again when its execution ended before they were acknowledged: by their ids
    they are known, and only acknowledged.
    """

    def __init__(self, channel: str, restored: Position | None) -> None:
        self._channel = channel
        self._next = 0 if restored is None else restored.next
        # Of those that a checkpoint holds, which may come again.
        self._held: set[str] = set() if restored is None else set(restored.ids)
        self._waiting: deque[Message] = deque()
        # SplitAssignment out and not acknowledged, in order.
        self._dealt: deque[tuple[int, str | None]] = deque()
        self._ids: set[str] = set()
        self._tag = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, message: Message, again: bool) -> bool:
        """Take a message; tell whether it is to be acknowledged now, since a checkpoint holds it.

        Args:
            message: it.
            again: whether the server says that it may have been sent before.
        """
        id = message.id
        if id is not None:
            if id in self._held:
                self._held.discard(id)
                return True
            if id in self._ids:
                message = Message(message.tag, None, None)
            else:
                self._ids.add(id)
                if not again:
                    # What comes again stands before what is new.
                    self._held.clear()
        self._waiting.append(message)
        return False

    def deal(self, most: int) -> tuple[int, list[bytes]]:
        """Return the next messages, and the number of the first."""
        found: list[bytes] = []
        while self._waiting and (len(found) < most or self._waiting[0].body is None):
            message = self._waiting.popleft()
            self._dealt.append((message.tag, message.id))
            self._tag = message.tag
            if message.body is not None:
                found.append(message.body)
        start, self._next = self._next, self._next + len(found)
        return start, found

    def position(self) -> Position:
        """Return how far they are dealt out."""
        ids = {id for _, id in self._dealt if id is not None}
        return Position(self._next, self._channel, self._tag, frozenset(ids | self._held))

    def acknowledge(self, position: Position) -> int | None:
        """Forget what was dealt out up to a position; return the last of it that is to be acknowledged, if any is."""
        if position.channel != self._channel:
            return None
        last = None
        while self._dealt and self._dealt[0][0] <= position.tag:
            last, id = self._dealt.popleft()
            if id is not None:
                self._ids.discard(id)
        return last
