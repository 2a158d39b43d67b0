"""What source and sink of RabbitMQ share: how to get there, and errors in a sentence."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from millstream.common.errors import InvalidProgramError, MillstreamError

# How long a server may take to let us in, and a channel may be blocked, in seconds.
TIMEOUT = 10.0


class RabbitFailure(MillstreamError):
    """RabbitMQ could not do what it was asked to."""


def library() -> Any:
    """Return the client library, which is a package of its own."""
    try:
        import pika
    except ImportError:
        raise InvalidProgramError(
            "The RabbitMQ connector needs the package pika: run  pip install pika  (or install millstream[rabbitmq])."
        ) from None
    # What is wrong is told as an error.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    return pika


@dataclass(frozen=True)
class Server:
    """Where RabbitMQ is, and as whom to come.

    Attributes:
        uri: instead of the others: `amqp://user:password@host:5672/vhost`.
        timeout: seconds to wait for it.
        more: settings of the client library's connection.
    """

    host: str | None = None
    port: int | None = None
    virtual_host: str | None = None
    user_name: str | None = None
    password: str | None = None
    uri: str | None = None
    timeout: float = TIMEOUT
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def place(self) -> str:
        """Where it is, without the password."""
        if self.uri is None:
            return f"{self.host}:{self.port}, virtual host {self.virtual_host!r}"
        found = urlsplit(self.uri)
        return f"{found.hostname}:{found.port or 5672}, virtual host {found.path.lstrip('/') or '/'!r}"

    def _parameters(self) -> Any:
        pika = library()
        if self.uri is not None:
            found = pika.URLParameters(self.uri)
        else:
            who = pika.PlainCredentials(self.user_name, self.password)
            found = pika.ConnectionParameters(self.host, self.port, self.virtual_host, who)
        found.socket_timeout = found.stack_timeout = found.blocked_connection_timeout = self.timeout
        for name, value in self.more:
            setattr(found, name, value)
        return found

    def connect(self) -> Any:
        """Return a connection."""
        errors = library().exceptions
        try:
            return library().BlockingConnection(self._parameters())
        except (errors.ProbableAuthenticationError, errors.AuthenticationError) as e:
            why = f"does not let this user in ({said(e)}): check user name and password"
        except errors.ProbableAccessDeniedError as e:
            why = f"does not let this user into the virtual host ({said(e)}): check its name and the user's permissions"
        except (errors.AMQPError, OSError) as e:
            why = f"does not answer ({said(e)}): check host and port, and that it runs"
        # Not as a cause of this: it would hold on to the sockets that the library has left open.
        raise RabbitFailure(f"RabbitMQ at {self.place} {why}.")


def open_queue(connection: Any, server: Server, queue: str) -> Any:
    """Return a channel on which a queue is known to be there; where it is not it is made, durable, as Flink does."""
    errors = library().exceptions
    channel = connection.channel()
    try:
        # One that is there may be of any kind.
        channel.queue_declare(queue, passive=True)
        return channel
    except errors.ChannelClosedByBroker as e:
        if e.reply_code != 404:
            raise refused(server, queue, e) from e
    channel = connection.channel()
    try:
        channel.queue_declare(queue, durable=True)
    except errors.ChannelClosedByBroker as e:
        raise refused(server, queue, e) from e
    return channel


def refused(server: Server, queue: str, error: Exception) -> RabbitFailure:
    """Return the failure of what was asked of a queue."""
    return RabbitFailure(f"RabbitMQ at {server.place}: queue {queue!r} cannot be used: {said(error)}.")


def said(error: Exception) -> str:
    """Return what an error of the client library says."""
    inner = next((a for a in error.args if isinstance(a, BaseException)), None)
    if inner is not None:
        return said(getattr(inner, "exception", None) or inner)  # type: ignore[arg-type]
    text = getattr(error, "reply_text", None) or getattr(error, "exception", None) or str(error) or repr(error)
    return str(text).strip().rstrip(".")
