"""RabbitMQ connections: RMQConnectionConfig, and the client that source and sink share."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import urlsplit

from millstream.common.aliases import LibraryObject
from millstream.common.errors import InvalidProgramError, MillstreamError

# pika has no type annotations.
Pika: TypeAlias = LibraryObject
Connection: TypeAlias = LibraryObject
Channel: TypeAlias = LibraryObject

# Seconds to wait for the server to accept a connection, and for a blocked channel.
TIMEOUT = 10.0


class RabbitFailure(MillstreamError):
    """RabbitMQ refused a request or is not reachable."""


def library() -> Pika:
    """Return the client library, an optional package."""
    try:
        import pika
    except ImportError:
        raise InvalidProgramError(
            "The RabbitMQ connector needs the package pika: run  pip install pika  (or install millstream[rabbitmq])."
        ) from None
    # Failures are reported as errors of the job.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    return pika


@dataclass(frozen=True)
class Server:
    """The address and credentials of a RabbitMQ server.

    Attributes:
        uri: replaces the other fields: `amqp://user:password@host:5672/vhost`.
        timeout: seconds to wait for the server.
        more: further parameters of pika's connection.
    """

    host: str | None = None
    port: int | None = None
    virtual_host: str | None = None
    user_name: str | None = None
    password: str | None = None
    uri: str | None = None
    timeout: float = TIMEOUT
    more: tuple[tuple[str, int], ...] = ()

    @property
    def address(self) -> str:
        """The address without the password."""
        if self.uri is None:
            return f"{self.host}:{self.port}, virtual host {self.virtual_host!r}"
        url = urlsplit(self.uri)
        return f"{url.hostname}:{url.port or 5672}, virtual host {url.path.lstrip('/') or '/'!r}"

    def _parameters(self) -> Pika:
        pika = library()
        if self.uri is not None:
            parameters = pika.URLParameters(self.uri)
        else:
            credentials = pika.PlainCredentials(self.user_name, self.password)
            parameters = pika.ConnectionParameters(self.host, self.port, self.virtual_host, credentials)
        parameters.socket_timeout = parameters.stack_timeout = self.timeout
        parameters.blocked_connection_timeout = self.timeout
        for name, value in self.more:
            setattr(parameters, name, value)
        return parameters

    def connect(self) -> Connection:
        """Return a connection."""
        errors = library().exceptions
        try:
            return library().BlockingConnection(self._parameters())
        except (errors.ProbableAuthenticationError, errors.AuthenticationError) as e:
            reason = f"rejects this user ({error_text(e)}): check user name and password"
        except errors.ProbableAccessDeniedError as e:
            reason = (
                f"denies this user access to the virtual host ({error_text(e)}): check its name and the user's "
                "permissions"
            )
        except (errors.AMQPError, OSError) as e:
            reason = f"does not answer ({error_text(e)}): check host and port, and that it runs"
        # Raised outside the handlers: as a cause, the error would keep the library's sockets open.
        raise RabbitFailure(f"RabbitMQ at {self.address} {reason}.")


def open_queue(connection: Connection, server: Server, queue: str) -> Channel:
    """Return a channel for a queue; a missing queue is created durable, as Flink does."""
    errors = library().exceptions
    channel = connection.channel()
    try:
        # A passive declaration accepts an existing queue with any attributes.
        channel.queue_declare(queue, passive=True)
        return channel
    except errors.ChannelClosedByBroker as e:
        if e.reply_code != 404:
            raise _refused(server, queue, e) from e
    channel = connection.channel()
    try:
        channel.queue_declare(queue, durable=True)
    except errors.ChannelClosedByBroker as e:
        raise _refused(server, queue, e) from e
    return channel


def _refused(server: Server, queue: str, error: Exception) -> RabbitFailure:
    return RabbitFailure(f"RabbitMQ at {server.address}: queue {queue!r} cannot be used: {error_text(error)}.")


def error_text(error: BaseException) -> str:
    """Return the message of an error of the client library."""
    inner = next((a for a in error.args if isinstance(a, BaseException)), None)
    if inner is not None:
        return error_text(getattr(inner, "exception", None) or inner)
    text = getattr(error, "reply_text", None) or getattr(error, "exception", None) or str(error) or repr(error)
    return str(text).strip().rstrip(".")


@dataclass(frozen=True)
class _Settings:
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
    """Holds the address of a RabbitMQ server, and the settings of its connections.

    Example:
        >>> config = (
        ...     RMQConnectionConfig.Builder()
        ...     .set_host("localhost")
        ...     .set_port(5672)
        ...     .set_virtual_host("/")
        ...     .set_user_name("guest")
        ...     .set_password("guest")
        ...     .set_connection_timeout(5000)
        ...     .set_requested_heartbeat(30)
        ...     .set_prefetch_count(1000)
        ...     .build()
        ... )
        >>> config.get_host(), config.get_port(), config.prefetch_count
        ('localhost', 5672, 1000)
        >>> RMQConnectionConfig.Builder().set_uri("amqp://guest:guest@localhost:5672/%2f").build().get_uri()
        'amqp://guest:guest@localhost:5672/%2f'
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def server(self) -> Server:
        """Return the server that source and sink connect to."""
        settings = self._settings
        limits = {
            "channel_max": settings.requested_channel_max,
            "frame_max": settings.requested_frame_max,
            "heartbeat": settings.requested_heartbeat,
        }
        return Server(
            settings.host,
            settings.port,
            settings.virtual_host,
            settings.user_name,
            settings.password,
            settings.uri,
            TIMEOUT if settings.connection_timeout is None else settings.connection_timeout / 1000,
            tuple((name, value) for name, value in limits.items() if value is not None),
        )

    @property
    def prefetch_count(self) -> int | None:
        """The maximum number of messages that await acknowledgement."""
        return self._settings.prefetch_count

    def get_host(self) -> str | None:
        """Return the host."""
        return self._settings.host

    def get_port(self) -> int | None:
        """Return the port."""
        return self._settings.port

    def get_virtual_host(self) -> str | None:
        """Return the virtual host."""
        return self._settings.virtual_host

    def get_user_name(self) -> str | None:
        """Return the user."""
        return self._settings.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self._settings.password

    def get_uri(self) -> str | None:
        """Return the URI, or None if the address was set part by part."""
        return self._settings.uri

    def get_network_recovery_interval(self) -> int | None:
        """Return the setting, which has no effect: a lost connection fails the job."""
        return self._settings.network_recovery_interval

    def is_automatic_recovery(self) -> bool | None:
        """Return the setting, which has no effect: a lost connection fails the job."""
        return self._settings.automatic_recovery

    def is_topology_recovery(self) -> bool | None:
        """Return the setting, which has no effect: each start and restart of the job creates a missing queue."""
        return self._settings.topology_recovery

    def get_connection_timeout(self) -> int | None:
        """Return the connection timeout in milliseconds."""
        return self._settings.connection_timeout

    def get_requested_channel_max(self) -> int | None:
        """Return the maximum number of channels per connection."""
        return self._settings.requested_channel_max

    def get_requested_frame_max(self) -> int | None:
        """Return the maximum frame size in bytes."""
        return self._settings.requested_frame_max

    def get_requested_heartbeat(self) -> int | None:
        """Return the heartbeat timeout in seconds."""
        return self._settings.requested_heartbeat

    class Builder:
        """Builds an RMQConnectionConfig; a URI, or host, port, virtual host, user and password are required.

        See RMQConnectionConfig for an example.
        """

        def __init__(self) -> None:
            self._settings = _Settings()

        def _with(self, settings: _Settings) -> RMQConnectionConfig.Builder:
            self._settings = settings
            return self

        def set_port(self, port: int) -> RMQConnectionConfig.Builder:
            """Set the port, usually 5672. Required without a URI."""
            return self._with(replace(self._settings, port=port))

        def set_host(self, host: str) -> RMQConnectionConfig.Builder:
            """Set the host. Required without a URI."""
            return self._with(replace(self._settings, host=host))

        def set_virtual_host(self, vhost: str) -> RMQConnectionConfig.Builder:
            """Set the virtual host, usually `/`. Required without a URI."""
            return self._with(replace(self._settings, virtual_host=vhost))

        def set_user_name(self, user_name: str) -> RMQConnectionConfig.Builder:
            """Set the user. Required without a URI."""
            return self._with(replace(self._settings, user_name=user_name))

        def set_password(self, password: str) -> RMQConnectionConfig.Builder:
            """Set the password. Required without a URI."""
            return self._with(replace(self._settings, password=password))

        def set_uri(self, uri: str) -> RMQConnectionConfig.Builder:
            """Set address and credentials at once: `amqp://user:password@host:port/vhost`, `amqps://` with TLS."""
            return self._with(replace(self._settings, uri=uri))

        def set_topology_recovery_enabled(self, topology_recovery_enabled: bool) -> RMQConnectionConfig.Builder:
            """Accept Flink's setting, without effect: each start and restart of the job creates a missing queue."""
            return self._with(replace(self._settings, topology_recovery=topology_recovery_enabled))

        def set_requested_heartbeat(self, requested_heartbeat: int) -> RMQConnectionConfig.Builder:
            """Set the heartbeat timeout in seconds, by default that of the server."""
            return self._with(replace(self._settings, requested_heartbeat=requested_heartbeat))

        def set_requested_frame_max(self, requested_frame_max: int) -> RMQConnectionConfig.Builder:
            """Set the maximum frame size in bytes, by default that of the client library."""
            return self._with(replace(self._settings, requested_frame_max=requested_frame_max))

        def set_requested_channel_max(self, requested_channel_max: int) -> RMQConnectionConfig.Builder:
            """Set the maximum number of channels per connection, by default that of the client library."""
            return self._with(replace(self._settings, requested_channel_max=requested_channel_max))

        def set_network_recovery_interval(self, network_recovery_interval: int) -> RMQConnectionConfig.Builder:
            """Accept Flink's setting, without effect: a lost connection fails the job."""
            return self._with(replace(self._settings, network_recovery_interval=network_recovery_interval))

        def set_connection_timeout(self, connection_timeout: int) -> RMQConnectionConfig.Builder:
            """Set the connection timeout in milliseconds; 10,000 by default."""
            return self._with(replace(self._settings, connection_timeout=connection_timeout))

        def set_automatic_recovery(self, automatic_recovery: bool) -> RMQConnectionConfig.Builder:
            """Accept Flink's setting, without effect: a lost connection fails the job."""
            return self._with(replace(self._settings, automatic_recovery=automatic_recovery))

        def set_prefetch_count(self, prefetch_count: int) -> RMQConnectionConfig.Builder:
            """Set the maximum number of messages that await their checkpoint; 65,535 by default."""
            if not 0 < prefetch_count <= 65_535:
                raise InvalidProgramError(
                    f"RMQConnectionConfig: a prefetch count is from 1 to 65,535, it is {prefetch_count}."
                )
            return self._with(replace(self._settings, prefetch_count=prefetch_count))

        def build(self) -> RMQConnectionConfig:
            """Return the configuration; an incomplete address is an error."""
            if self._settings.uri is None:
                for name in ("host", "port", "virtual_host", "user_name", "password"):
                    if getattr(self._settings, name) is None:
                        raise InvalidProgramError(
                            f"RMQConnectionConfig: call set_{name}(...), or set everything at once with set_uri(...)."
                        )
            return RMQConnectionConfig(self._settings)
