"""RabbitMQ: queues as sources and sinks, under PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.connectors.rabbitmq.client import TIMEOUT, Server
from millstream.connectors.rabbitmq.sink import QueueSink
from millstream.connectors.rabbitmq.source import QueueSource

__all__ = ["RMQConnectionConfig", "RMQSink", "RMQSource"]


@dataclass(frozen=True)
class _Said:
    host: str | None = None
    port: int | None = None
    virtual_host: str | None = None
    user_name: str | None = None
    password: str | None = None
    uri: str | None = None
    network_recovery_interval: int | None = None
    automatic_recovery: bool | None = None
    topology_recovery: bool | None = None
    connection_timeout: int | None = None
    requested_channel_max: int | None = None
    requested_frame_max: int | None = None
    requested_heartbeat: int | None = None
    prefetch_count: int | None = None


class RMQConnectionConfig:
    """Where RabbitMQ is, and how to speak with it.

    Example:
        >>> config = RMQConnectionConfig.Builder().set_uri("amqp://guest:guest@localhost:5672/%2f").build()
        >>> config.get_uri()
        'amqp://guest:guest@localhost:5672/%2f'
    """

    def __init__(self, said: _Said) -> None:
        self._said = said

    def server(self) -> Server:
        """Return where it is, for those who connect."""
        said = self._said
        limits = {
            "channel_max": said.requested_channel_max,
            "frame_max": said.requested_frame_max,
            "heartbeat": said.requested_heartbeat,
        }
        about = said.host, said.port, said.virtual_host, said.user_name, said.password, said.uri
        timeout = TIMEOUT if said.connection_timeout is None else said.connection_timeout / 1000
        return Server(*about, timeout, tuple((name, value) for name, value in limits.items() if value is not None))

    @property
    def prefetch_count(self) -> int | None:
        """How many messages may be sent before the first is acknowledged."""
        return self._said.prefetch_count

    def get_host(self) -> str | None:
        """Return the host."""
        return self._said.host

    def get_port(self) -> int | None:
        """Return the port."""
        return self._said.port

    def get_virtual_host(self) -> str | None:
        """Return the virtual host."""
        return self._said.virtual_host

    def get_user_name(self) -> str | None:
        """Return the user."""
        return self._said.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self._said.password

    def get_uri(self) -> str | None:
        """Return the URI, None if its parts were given."""
        return self._said.uri

    def get_network_recovery_interval(self) -> int | None:
        """Return what was said; a connection that is lost fails the job, and the restart strategy is next."""
        return self._said.network_recovery_interval

    def is_automatic_recovery(self) -> bool | None:
        """Return what was said; a connection that is lost fails the job, and the restart strategy is next."""
        return self._said.automatic_recovery

    def is_topology_recovery(self) -> bool | None:
        """Return what was said; a queue that is not there is made when the job starts, and restarts."""
        return self._said.topology_recovery

    def get_connection_timeout(self) -> int | None:
        """Return how many milliseconds the server is waited for."""
        return self._said.connection_timeout

    def get_requested_channel_max(self) -> int | None:
        """Return how many channels a connection may have."""
        return self._said.requested_channel_max

    def get_requested_frame_max(self) -> int | None:
        """Return how many bytes a frame may have."""
        return self._said.requested_frame_max

    def get_requested_heartbeat(self) -> int | None:
        """Return after how many silent seconds the other side counts as gone."""
        return self._said.requested_heartbeat

    class Builder:
        """Builds an RMQConnectionConfig."""

        def __init__(self) -> None:
            self._said = _Said()

        def _with(self, **changes: Any) -> RMQConnectionConfig.Builder:
            self._said = replace(self._said, **changes)
            return self

        def set_port(self, port: int) -> RMQConnectionConfig.Builder:
            """Say the port: 5672 most often."""
            return self._with(port=port)

        def set_host(self, host: str) -> RMQConnectionConfig.Builder:
            """Say the host."""
            return self._with(host=host)

        def set_virtual_host(self, vhost: str) -> RMQConnectionConfig.Builder:
            """Say the virtual host: `/` most often."""
            return self._with(virtual_host=vhost)

        def set_user_name(self, user_name: str) -> RMQConnectionConfig.Builder:
            """Say the user."""
            return self._with(user_name=user_name)

        def set_password(self, password: str) -> RMQConnectionConfig.Builder:
            """Say the password."""
            return self._with(password=password)

        def set_uri(self, uri: str) -> RMQConnectionConfig.Builder:
            """Say all in one: `amqp://user:password@host:port/vhost`, `amqps://` with TLS."""
            return self._with(uri=uri)

        def set_topology_recovery_enabled(self, topology_recovery_enabled: bool) -> RMQConnectionConfig.Builder:
            """Accepted for Flink's sake: a queue that is not there is made when the job starts, and restarts."""
            return self._with(topology_recovery=topology_recovery_enabled)

        def set_requested_heartbeat(self, requested_heartbeat: int) -> RMQConnectionConfig.Builder:
            """Say after how many silent seconds the other side counts as gone."""
            return self._with(requested_heartbeat=requested_heartbeat)

        def set_requested_frame_max(self, requested_frame_max: int) -> RMQConnectionConfig.Builder:
            """Say how many bytes a frame may have."""
            return self._with(requested_frame_max=requested_frame_max)

        def set_requested_channel_max(self, requested_channel_max: int) -> RMQConnectionConfig.Builder:
            """Say how many channels a connection may have."""
            return self._with(requested_channel_max=requested_channel_max)

        def set_network_recovery_interval(self, network_recovery_interval: int) -> RMQConnectionConfig.Builder:
            """Accepted for Flink's sake: a connection that is lost fails the job, and the restart strategy is next."""
            return self._with(network_recovery_interval=network_recovery_interval)

        def set_connection_timeout(self, connection_timeout: int) -> RMQConnectionConfig.Builder:
            """Say how many milliseconds the server is waited for; 10,000 if not said."""
            return self._with(connection_timeout=connection_timeout)

        def set_automatic_recovery(self, automatic_recovery: bool) -> RMQConnectionConfig.Builder:
            """Accepted for Flink's sake: a connection that is lost fails the job, and the restart strategy is next."""
            return self._with(automatic_recovery=automatic_recovery)

        def set_prefetch_count(self, prefetch_count: int) -> RMQConnectionConfig.Builder:
            """Say how many messages may wait for their checkpoint; 65,535 if not said."""
            if not 0 < prefetch_count <= 65_535:
                raise InvalidProgramError(
                    f"RMQConnectionConfig: a prefetch count is from 1 to 65,535, it is {prefetch_count}."
                )
            return self._with(prefetch_count=prefetch_count)

        def build(self) -> RMQConnectionConfig:
            """Return the configuration; refuses what is not complete."""
            if self._said.uri is None:
                for name in ("host", "port", "virtual_host", "user_name", "password"):
                    if getattr(self._said, name) is None:
                        raise InvalidProgramError(
                            f"RMQConnectionConfig: say set_{name}(...), or everything at once with set_uri(...)."
                        )
            return RMQConnectionConfig(self._said)


class RMQSource(QueueSource):
    """Reads a queue of RabbitMQ; `env.add_source` takes it.

    Messages are acknowledged when the checkpoint that holds them is complete. Those that were not come again after a
    failure: with correlation ids, which no two messages may share, each counts once; without, some count twice.

    Args:
        connection_config: where RabbitMQ is.
        queue_name: the queue; where it is not there it is made, durable.
        use_correlation_id: whether messages have correlation ids, for exactly once.
        deserialization_schema: how a message is read.
    """

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool,
        deserialization_schema: DeserializationSchema,
    ) -> None:
        about = connection_config.server(), queue_name, use_correlation_id, deserialization_schema
        super().__init__(*about, connection_config.prefetch_count)


class RMQSink(QueueSink):
    """Writes to a queue of RabbitMQ, at least once; `add_sink` takes it.

    Args:
        connection_config: where RabbitMQ is.
        queue_name: the queue; where it is not there it is made, durable.
        serialization_schema: how a record becomes a message.
    """

    def __init__(
        self, connection_config: RMQConnectionConfig, queue_name: str, serialization_schema: SerializationSchema
    ) -> None:
        super().__init__(connection_config.server(), queue_name, serialization_schema)
