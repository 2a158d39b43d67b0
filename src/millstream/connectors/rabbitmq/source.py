"""RMQSource: reads a RabbitMQ queue on the driver and acknowledges messages with checkpoints."""

from __future__ import annotations

import math
import threading
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from millstream.common.aliases import Value
from millstream.common.serialization import DeserializationSchema
from millstream.common.tags import tagged
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.connectors.push_source import PushReader
from millstream.connectors.rabbitmq.connection import (
    Pika,
    RabbitFailure,
    RMQConnectionConfig,
    Server,
    error_text,
    library,
    open_queue,
)

# AMQP's maximum of unacknowledged messages, the default.
PREFETCH = 65_535
_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 30.0


class Message(NamedTuple):
    """A received message: its delivery tag, its correlation id if ids are used, and its bytes.

    The body is None for a duplicate, which is acknowledged after the first message with its id.
    """

    tag: int
    id: str | None
    body: bytes | None


@tagged("rabbitmq-position")
@dataclass(frozen=True)
class Position:
    """The position of a queue in a checkpoint.

    Attributes:
        next: the number of the next message, counted over all executions.
        channel: the channel that delivered the messages; the server redelivers messages of other channels.
        tag: the delivery tag of the last assigned message; 0 for none.
        ids: the correlation ids of assigned messages that the server may redeliver.
    """

    next: int
    channel: str
    tag: int
    ids: frozenset[str]


class MessageBuffer:
    """The messages received on one channel; without I/O or clock.

    The server redelivers messages of a checkpoint if the execution ended before their acknowledgement. Their ids
    identify them, and they are only acknowledged.
    """

    def __init__(self, channel: str, restored: Position | None) -> None:
        self._channel = channel
        self._next = 0 if restored is None else restored.next
        # Ids of the checkpoint's messages that may be redelivered.
        self._restored_ids: set[str] = set() if restored is None else set(restored.ids)
        self._pending: deque[Message] = deque()
        # Assigned and not acknowledged, in order.
        self._assigned: deque[tuple[int, str | None]] = deque()
        self._ids: set[str] = set()
        self._tag = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, message: Message, redelivered: bool) -> bool:
        """Add a message; return whether to acknowledge it at once, because the checkpoint contains it.

        Args:
            message: the message.
            redelivered: whether the server may have delivered it before.
        """
        id = message.id
        if id is not None:
            if id in self._restored_ids:
                self._restored_ids.discard(id)
                return True
            if id in self._ids:
                message = Message(message.tag, None, None)
            else:
                self._ids.add(id)
                if not redelivered:
                    # The server redelivers before it delivers new messages.
                    self._restored_ids.clear()
        self._pending.append(message)
        return False

    def assign(self, max_messages: int) -> tuple[int, list[bytes]]:
        """Return the number of the first message and the next messages."""
        bodies: list[bytes] = []
        while self._pending and (len(bodies) < max_messages or self._pending[0].body is None):
            message = self._pending.popleft()
            self._assigned.append((message.tag, message.id))
            self._tag = message.tag
            if message.body is not None:
                bodies.append(message.body)
        start, self._next = self._next, self._next + len(bodies)
        return start, bodies

    def position(self) -> Position:
        """Return the position after the assigned messages."""
        ids = {id for _, id in self._assigned if id is not None}
        return Position(self._next, self._channel, self._tag, frozenset(ids | self._restored_ids))

    def acknowledge(self, position: Position) -> int | None:
        """Drop the messages up to a position; return the last delivery tag to acknowledge, if any."""
        if position.channel != self._channel:
            return None
        last = None
        while self._assigned and self._assigned[0][0] <= position.tag:
            last, id = self._assigned.popleft()
            if id is not None:
                self._ids.discard(id)
        return last


class _Consumer:
    """Receives messages on its own thread, the only one that uses the connection."""

    def __init__(self, server: Server, queue: str, prefetch: int, uses_ids: bool, buffer: MessageBuffer) -> None:
        self._server, self._queue, self._uses_ids = server, queue, uses_ids
        self._connection = server.connect()
        try:
            self._channel = open_queue(self._connection, server, queue)
            self._channel.basic_qos(prefetch_count=prefetch)
        except BaseException:
            self._connection.close()
            raise
        self.lock = threading.Lock()
        self.buffer = buffer
        self.failure: RabbitFailure | None = None
        self.wake: Callable[[], None] = _no_listener
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq-{queue}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        errors = library().exceptions
        try:
            for method, properties, body in self._channel.consume(self._queue, inactivity_timeout=_POLL_SECONDS):
                if self._is_closing:
                    break
                if method is not None:
                    self._add(method, properties, body)
            if not self._is_closing:
                raise RabbitFailure("the queue was deleted")
            # Sends outstanding acknowledgements.
            self._connection.process_data_events(0)
        except (RabbitFailure, errors.AMQPError, OSError) as e:
            if not self._is_closing:
                self._fail(error_text(e))
        finally:
            # The server puts unacknowledged messages back into the queue.
            with suppress(errors.AMQPError, OSError):
                self._connection.close()

    def _add(self, method: Pika, properties: Pika, body: bytes) -> None:
        id = properties.correlation_id if self._uses_ids else None
        if self._uses_ids and id is None:
            raise RabbitFailure(
                "a message has no correlation id, but RMQSource uses them: publish each message with a unique id, or "
                "set use_correlation_id=False"
            )
        with self.lock:
            is_known = self.buffer.add(Message(method.delivery_tag, id, body), method.redelivered)
            is_first = len(self.buffer) == 1
        if is_known:
            self._channel.basic_ack(method.delivery_tag)
        elif is_first:
            self.wake()

    def _fail(self, reason: str) -> None:
        self.failure = RabbitFailure(
            f"RMQSource: queue {self._queue!r} of RabbitMQ at {self._server.address}: {reason}."
        )
        self.wake()

    def acknowledge(self, tag: int) -> None:
        """Acknowledge all messages up to a delivery tag."""
        errors = library().exceptions
        try:
            self._connection.add_callback_threadsafe(partial(self._acknowledge, tag))
        except errors.AMQPError as e:
            # The next connection receives the messages again.
            self._fail(error_text(e))

    def _acknowledge(self, tag: int) -> None:
        self._channel.basic_ack(tag, multiple=True)

    def close(self) -> None:
        self._is_closing = True
        self._thread.join(_CLOSE_SECONDS)


class _Enumerator(SplitEnumerator):
    """Assigns all messages to one subtask, which preserves their order."""

    def __init__(self, consumer: _Consumer) -> None:
        self._consumer = consumer

    def poll(self, budget: int, now: float) -> SplitAssignment:
        consumer = self._consumer
        with consumer.lock:
            start, bodies = consumer.buffer.assign(budget)
            left = len(consumer.buffer)
        if not bodies and consumer.failure is not None:
            raise consumer.failure
        return SplitAssignment({0: [(start, bodies)]} if bodies else {}, limited=left > 0, unassigned={0: left})

    def next_poll(self, now: float) -> float:
        return math.inf

    def listen(self, wake: Callable[[], None]) -> None:
        self._consumer.wake = wake
        # Messages may have arrived before.
        wake()

    def snapshot(self) -> Position:
        with self._consumer.lock:
            return self._consumer.buffer.position()

    def committed(self, snapshot: Position) -> None:
        with self._consumer.lock:
            last = self._consumer.buffer.acknowledge(snapshot)
        if last is not None:
            self._consumer.acknowledge(last)

    def close(self) -> None:
        self._consumer.close()


def _no_listener() -> None:
    pass


class RMQSource(Source[Value]):
    """Reads a RabbitMQ queue; `env.add_source` takes it.

    Messages are acknowledged when the checkpoint that contains them is complete. The server redelivers the others after
    a failure. With correlation ids, which must be unique, each message counts exactly once; without, at least once.

    Args:
        connection_config: the server.
        queue_name: the queue; a missing queue is created durable.
        use_correlation_id: whether messages have correlation ids, for exactly once.
        deserialization_schema: reads a message.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> config = RMQConnectionConfig.Builder().set_uri("amqp://guest:guest@localhost:5672/%2f").build()
        >>> RMQSource(config, "orders", True, SimpleStringSchema()).name
        'RabbitMQ orders'
    """

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool,
        deserialization_schema: DeserializationSchema,
    ) -> None:
        library()
        self.name = f"RabbitMQ {queue_name}"
        self.produced_type = deserialization_schema.get_produced_type()
        self._server, self._queue, self._uses_ids = connection_config.server(), queue_name, use_correlation_id
        self._schema = deserialization_schema
        self._prefetch = connection_config.prefetch_count or PREFETCH

    def create_enumerator(self, parallelism: int, restored: Position | None = None) -> SplitEnumerator:
        buffer = MessageBuffer(uuid.uuid4().hex, restored)
        return _Enumerator(_Consumer(self._server, self._queue, self._prefetch, self._uses_ids, buffer))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return PushReader(self._schema, self.bad_records, f"queue {self._queue!r}")
