"""RMQSink: records as messages of a queue of RabbitMQ, at least once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from millstream.common.serialization import SerializationSchema
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.rabbitmq.client import RabbitFailure, Server, library, open_queue, said
from millstream.operators.functions.context import RuntimeContext


class _Writer(SinkWriter):
    """Publishes the messages of an epoch in a transaction of AMQP, which is over when the server has all of them."""

    keeps_values = False

    def __init__(self, server: Server, queue: str, schema: SerializationSchema) -> None:
        self._server, self._queue, self._serialize = server, queue, schema.serialize
        pika = library()
        self._errors: tuple[type[Exception], ...] = (pika.exceptions.AMQPError, OSError)
        # They outlive the server's end.
        self._durable = pika.BasicProperties(delivery_mode=2)
        self._connection: Any = None
        self._channel: Any = None
        self._published = self._returned = 0

    def begin(self, transaction: str) -> None:
        if self._published:
            # Of an epoch that did not get to its end.
            self.close()
        if self._connection is not None:
            try:
                # Answers the server, which hangs up on those who are silent.
                self._connection.process_data_events(0)
            except self._errors:
                self.close()

    def _open(self) -> None:
        self._connection = self._server.connect()
        self._channel = open_queue(self._connection, self._server, self._queue)
        self._channel.tx_select()
        self._channel.add_on_return_callback(self._came_back)

    def _came_back(self, *_: Any) -> None:
        self._returned += 1

    def write(self, value: Any) -> None:
        message = self._serialize(value)
        try:
            if self._connection is None:
                self._open()
            self._published += 1
            self._channel.basic_publish("", self._queue, message, self._durable, mandatory=True)
        except self._errors as e:
            raise self._failed(f"a message of {len(message):,} bytes was not taken: {said(e)}") from e

    def prepare_commit(self, flush: bool) -> None:
        if not self._published:
            return
        try:
            self._channel.tx_commit()
        except self._errors as e:
            raise self._failed(f"{self._published:,} messages were not taken: {said(e)}") from e
        if self._returned:
            raise self._failed(f"{self._returned:,} messages came back: the queue is not there any more")
        self._published = 0

    def _failed(self, what: str) -> RabbitFailure:
        self.close()
        return RabbitFailure(f"RMQSink: queue {self._queue!r} of RabbitMQ at {self._server.place}: {what}.")

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._published = self._returned = 0
        if connection is not None:
            with suppress(*self._errors):
                connection.close()


class QueueSink(Sink[Any]):
    """Writes records to a queue."""

    def __init__(self, server: Server, queue: str, schema: SerializationSchema) -> None:
        library()
        self.name = f"RabbitMQ {queue}"
        self._server, self._queue, self._schema = server, queue, schema

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._server, self._queue, self._schema)

    def create_committer(self, context: CommitContext) -> Committer | None:
        # Said before anything runs, if it cannot be.
        connection = self._server.connect()
        try:
            open_queue(connection, self._server, self._queue)
        finally:
            connection.close()
        return None
