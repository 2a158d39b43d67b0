"""RMQSource: the messages of a queue of RabbitMQ. They are taken on the driver and acknowledged with checkpoints."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from millstream.common.serialization import DeserializationSchema
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.connectors.push_source import ArrivalsReader
from millstream.connectors.rabbitmq.client import RabbitFailure, Server, library, open_queue, said
from millstream.connectors.rabbitmq.intake import Intake, Message, Position

# So many messages are sent to us before the first of them is acknowledged, unless it is said: the most there can be.
PREFETCH = 65_535
_LOOKS_SECONDS = 0.1
_CLOSE_SECONDS = 30.0


class _Consumer:
    """Takes messages on a thread of its own, which alone speaks with the server."""

    def __init__(self, server: Server, queue: str, prefetch: int, uses_ids: bool, intake: Intake) -> None:
        self._server, self._queue, self._uses_ids = server, queue, uses_ids
        self._connection = server.connect()
        try:
            self._channel = open_queue(self._connection, server, queue)
            self._channel.basic_qos(prefetch_count=prefetch)
        except BaseException:
            self._connection.close()
            raise
        self.lock = threading.Lock()
        self.intake = intake
        self.failure: RabbitFailure | None = None
        self.wake: Callable[[], None] = _nobody_listens
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq-{queue}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        errors = library().exceptions
        try:
            for method, properties, body in self._channel.consume(self._queue, inactivity_timeout=_LOOKS_SECONDS):
                if self._is_ending:
                    break
                if method is not None:
                    self._take(method, properties, body)
            if not self._is_ending:
                raise RabbitFailure("the queue was deleted")
            # What is to be acknowledged still.
            self._connection.process_data_events(0)
        except (RabbitFailure, errors.AMQPError, OSError) as e:
            if not self._is_ending:
                self._fail(said(e))
        finally:
            # The rest goes back to its place in the queue, for who comes next.
            with suppress(errors.AMQPError, OSError):
                self._connection.close()

    def _take(self, method: Any, properties: Any, body: bytes) -> None:
        id = properties.correlation_id if self._uses_ids else None
        if self._uses_ids and id is None:
            raise RabbitFailure(
                "a message has no correlation id, and RMQSource was told to use them: set one that no other message "
                "has where messages are published, or say use_correlation_id=False"
            )
        with self.lock:
            is_known = self.intake.take(Message(method.delivery_tag, id, body), method.redelivered)
            is_first = len(self.intake) == 1
        if is_known:
            self._channel.basic_ack(method.delivery_tag)
        elif is_first:
            self.wake()

    def _fail(self, why: str) -> None:
        self.failure = RabbitFailure(f"RMQSource: queue {self._queue!r} of RabbitMQ at {self._server.place}: {why}.")
        self.wake()

    def acknowledge(self, tag: int) -> None:
        """Acknowledge all messages up to one."""
        errors = library().exceptions
        try:
            self._connection.add_callback_threadsafe(partial(self._acknowledge, tag))
        except errors.AMQPError as e:
            # It comes again, on another connection.
            self._fail(said(e))

    def _acknowledge(self, tag: int) -> None:
        self._channel.basic_ack(tag, multiple=True)

    def close(self) -> None:
        self._is_ending = True
        self._thread.join(_CLOSE_SECONDS)


class _Enumerator(SplitEnumerator):
    """Deals out what has come, all to one subtask: in the order in which it came."""

    def __init__(self, consumer: _Consumer) -> None:
        self._consumer = consumer

    def poll(self, budget: int, now: float) -> SplitAssignment:
        consumer = self._consumer
        with consumer.lock:
            start, found = consumer.intake.deal(budget)
            left = len(consumer.intake)
        if not found and consumer.failure is not None:
            raise consumer.failure
        return SplitAssignment({0: [(start, found)]} if found else {}, limited=left > 0, pending={0: left})

    def next_poll(self, now: float) -> float:
        return math.inf

    def listen(self, wake: Callable[[], None]) -> None:
        self._consumer.wake = wake
        # Something may have come before.
        wake()

    def snapshot(self) -> Position:
        with self._consumer.lock:
            return self._consumer.intake.position()

    def committed(self, snapshot: Position) -> None:
        with self._consumer.lock:
            last = self._consumer.intake.acknowledge(snapshot)
        if last is not None:
            self._consumer.acknowledge(last)

    def close(self) -> None:
        self._consumer.close()


def _nobody_listens() -> None:
    pass


class QueueSource(Source[Any]):
    """The messages of a queue.

    Args:
        server: where RabbitMQ is.
        queue: the queue; where it is not there it is made.
        uses_ids: whether messages have correlation ids, which no two share: then each counts once.
        schema: how a message is read.
        prefetch: how many messages may wait for their checkpoint.
    """

    def __init__(
        self, server: Server, queue: str, uses_ids: bool, schema: DeserializationSchema, prefetch: int | None
    ) -> None:
        library()
        self.name = f"RabbitMQ {queue}"
        self.produced_type = schema.get_produced_type()
        self._server, self._queue, self._uses_ids = server, queue, uses_ids
        self._schema = schema
        self._prefetch = PREFETCH if prefetch is None else prefetch

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        intake = Intake(uuid.uuid4().hex, restored)
        return _Enumerator(_Consumer(self._server, self._queue, self._prefetch, self._uses_ids, intake))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return ArrivalsReader(self._schema, self.bad_records, f"queue {self._queue!r}")
