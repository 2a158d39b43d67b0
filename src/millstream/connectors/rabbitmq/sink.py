"""RMQSink: writes records to a RabbitMQ queue, at least once."""

from __future__ import annotations

from contextlib import suppress

from millstream.common.aliases import Value
from millstream.common.serialization import SerializationSchema
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.rabbitmq.connection import (
    Channel,
    Connection,
    Pika,
    RabbitFailure,
    RMQConnectionConfig,
    Server,
    error_text,
    library,
    open_queue,
)
from millstream.operators.functions.context import RuntimeContext


class _Writer(SinkWriter):
    """Publishes the messages of an epoch in one AMQP transaction."""

    keeps_values = False

    def __init__(self, server: Server, queue: str, schema: SerializationSchema) -> None:
        self._server, self._queue, self._serialize = server, queue, schema.serialize
        pika = library()
        self._errors: tuple[type[Exception], ...] = (pika.exceptions.AMQPError, OSError)
        # Persistent messages survive a restart of the server.
        self._persistent: Pika = pika.BasicProperties(delivery_mode=2)
        self._connection: Connection | None = None
        self._channel: Channel = None
        self._published = self._returned = 0

    def begin(self, transaction: str) -> None:
        if self._published:
            # Discards the messages of an epoch that failed.
            self.close()
        if self._connection is not None:
            try:
                # Answers heartbeats: the server closes silent connections.
                self._connection.process_data_events(0)
            except self._errors:
                self.close()

    def _open(self) -> None:
        self._connection = self._server.connect()
        self._channel = open_queue(self._connection, self._server, self._queue)
        self._channel.tx_select()
        self._channel.add_on_return_callback(self._on_return)

    def _on_return(self, *_: Pika) -> None:
        self._returned += 1

    def write(self, value: Value) -> None:
        message = self._serialize(value)
        try:
            if self._connection is None:
                self._open()
            self._published += 1
            self._channel.basic_publish("", self._queue, message, self._persistent, mandatory=True)
        except self._errors as e:
            raise self._failed(f"a message of {len(message):,} bytes was not accepted: {error_text(e)}") from e

    def prepare_commit(self, flush: bool) -> None:
        if not self._published:
            return
        try:
            self._channel.tx_commit()
        except self._errors as e:
            raise self._failed(f"{self._published:,} messages were not accepted: {error_text(e)}") from e
        if self._returned:
            raise self._failed(f"{self._returned:,} messages were returned: the queue no longer exists")
        self._published = 0

    def _failed(self, reason: str) -> RabbitFailure:
        self.close()
        return RabbitFailure(f"RMQSink: queue {self._queue!r} of RabbitMQ at {self._server.address}: {reason}.")

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._published = self._returned = 0
        if connection is not None:
            with suppress(*self._errors):
                connection.close()


class RMQSink(Sink[Value]):
    """Writes to a RabbitMQ queue, at least once; `add_sink` takes it.

    Args:
        connection_config: the server.
        queue_name: the queue; a missing queue is created durable.
        serialization_schema: writes a record as a message.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> config = RMQConnectionConfig.Builder().set_uri("amqp://guest:guest@localhost:5672/%2f").build()
        >>> RMQSink(config, "orders", SimpleStringSchema()).name
        'RabbitMQ orders'
    """

    def __init__(
        self, connection_config: RMQConnectionConfig, queue_name: str, serialization_schema: SerializationSchema
    ) -> None:
        library()
        self.name = f"RabbitMQ {queue_name}"
        self._server, self._queue, self._schema = connection_config.server(), queue_name, serialization_schema

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._server, self._queue, self._schema)

    def create_committer(self, context: CommitContext) -> Committer | None:
        # Checks before the job runs that the queue can be used.
        connection = self._server.connect()
        try:
            open_queue(connection, self._server, self._queue)
        finally:
            connection.close()
        return None
