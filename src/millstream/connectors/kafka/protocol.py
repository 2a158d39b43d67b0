"""Requests of Kafka's protocol that the client library does not offer.

In the client library only the producer that began a transaction can end it. Here a worker begins it, and the driver
ends it when its checkpoint is complete, even if the worker has died. The coordinator needs only the id and the epoch of
the producer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from millstream.connectors.kafka.client import TIMEOUT, KafkaFailure, Setting
from millstream.connectors.retries import Retries, constant

_FIND_COORDINATOR, _END_TXN, _DESCRIBE, _LIST = 10, 26, 65, 66
_HANDSHAKE, _AUTHENTICATE = 17, 36
_TRANSACTION = 1
# Transient errors: the coordinator is loading, moving, or busy with the previous transaction.
_TRANSIENT = {14: "it is loading", 15: "it is not available", 16: "it has moved", 51: "it is busy with the transaction"}
_NOT_FOUND = 105

Address = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True)
class TransactionState:
    """A transaction as its coordinator knows it; `state` is Kafka's name, such as Ongoing or CompleteCommit."""

    id: str
    state: str
    producer_id: int
    epoch: int


class _Response:
    """Reads a response."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._offset = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._body, self._offset)
        self._offset += struct.calcsize(form)
        return int(value)

    def text(self) -> str | None:
        length = self.number("h")
        return None if length < 0 else self._take(length).decode()

    def data(self) -> bytes:
        return self._take(max(self.number("i"), 0))

    def _take(self, length: int) -> bytes:
        self._offset += length
        return self._body[self._offset - length : self._offset]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_text(self) -> str:
        return self._take(max(self.varint() - 1, 0)).decode()

    def compact_list(self, read: Callable[[], T]) -> list[T]:
        return [read() for _ in range(max(self.varint() - 1, 0))]

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self._take(self.varint())


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _compact_text(value: str) -> bytes:
    encoded = value.encode()
    return _varint(len(encoded) + 1) + encoded


def _compact_list(items: list[bytes]) -> bytes:
    return _varint(len(items) + 1) + b"".join(items)


class _Connection:
    """A connection to one broker."""

    def __init__(self, address: Address, settings: Mapping[str, Setting]) -> None:
        self._correlation = 0
        self._socket: socket.socket = socket.create_connection(address, TIMEOUT)
        try:
            protocol = str(settings.get("security.protocol", "plaintext")).lower()
            if protocol.endswith("ssl"):
                self._socket = _tls(settings).wrap_socket(self._socket, server_hostname=address[0])
            if protocol.startswith("sasl"):
                self._authenticate(settings)
        except BaseException:
            self._socket.close()
            raise

    def request(self, key: int, version: int, body: bytes, flexible: bool = False) -> _Response:
        """Send a request and return the response."""
        self._correlation += 1
        tags = b"\0" if flexible else b""
        header = struct.pack(">hhi", key, version, self._correlation) + _text("millstream") + tags
        message = header + body + tags
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        response = _Response(self._receive(struct.unpack(">i", self._receive(4))[0]))
        response.number("i")
        if flexible:
            response.tags()
        return response

    def _receive(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._socket.recv(length)
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _authenticate(self, settings: Mapping[str, Setting]) -> None:
        mechanism = str(settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "PLAIN").upper()
        name, password = str(settings.get("sasl.username", "")), str(settings.get("sasl.password", ""))
        if self.request(_HANDSHAKE, 1, _text(mechanism)).number("h"):
            raise KafkaFailure(f"Kafka rejects sasl.mechanism {mechanism}: set one that the broker supports.")
        if mechanism == "PLAIN":
            self._send_token(f"\0{name}\0{password}".encode())
        elif mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            _scram(self._send_token, "sha256" if mechanism.endswith("256") else "sha512", name, password)
        else:
            raise KafkaFailure(
                f"KafkaSink: EXACTLY_ONCE does not support sasl.mechanism {mechanism}: use PLAIN, SCRAM-SHA-256 or "
                "SCRAM-SHA-512."
            )

    def _send_token(self, token: bytes) -> bytes:
        response = self.request(_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        error, message = response.number("h"), response.text()
        if error:
            raise KafkaFailure(f"Kafka rejects this user: {message or error}. Check sasl.username and sasl.password.")
        return response.data()

    def close(self) -> None:
        self._socket.close()


def _tls(settings: Mapping[str, Setting]) -> ssl.SSLContext:
    texts = {name: str(value) for name, value in settings.items() if name.startswith("ssl.")}
    context = ssl.create_default_context(cafile=texts.get("ssl.ca.location"))
    if texts.get("ssl.certificate.location"):
        key = texts.get("ssl.key.location")
        context.load_cert_chain(texts["ssl.certificate.location"], key, texts.get("ssl.key.password"))
    if texts.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    return context


def _scram(send_token: Callable[[bytes], bytes], digest: str, name: str, password: str) -> None:
    """Authenticate with SCRAM, which proves the password without sending it."""
    user = name.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={base64.b64encode(os.urandom(24)).decode()}"
    challenge = send_token(f"n,,{first}".encode()).decode()
    parts = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    client = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={parts['r']}"
    signed = hmac.digest(hashlib.new(digest, client).digest(), f"{first},{challenge},{final}".encode(), digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client, signed, strict=True))).decode()
    send_token(f"{final},p={proof}".encode())


def _transaction_name(response: _Response) -> str:
    """Read one transaction of a list: its name, producer and state."""
    name = response.compact_text()
    response.number("q"), response.compact_text()
    response.tags()
    return name


class Coordinators:
    """Sends requests to the coordinators of transactions.

    Args:
        settings: the client's settings.
        brokers: returns the addresses of brokers.
    """

    def __init__(self, settings: Mapping[str, Setting], brokers: Callable[[], list[Address]]) -> None:
        self._settings = settings
        self._brokers = brokers
        self._connections: dict[Address, _Connection] = {}

    def commit(self, transaction: str, producer_id: int, epoch: int) -> None:
        """Commit a transaction; idempotent."""
        body = _text(transaction) + struct.pack(">qhb", producer_id, epoch, 1)

        def end(connection: _Connection) -> int:
            response = connection.request(_END_TXN, 1, body)
            response.number("i")
            return response.number("h")

        error = self._send_to_coordinator(transaction, end)
        if error:
            raise KafkaFailure(f"Kafka refuses to commit transaction {transaction} (error code {error}).")

    def state(self, transaction: str) -> TransactionState | None:
        """Return a transaction's state, or None if it is unknown."""
        state: TransactionState | None = None

        def describe(connection: _Connection) -> int:
            nonlocal state
            body = _compact_list([_compact_text(transaction)])
            response = connection.request(_DESCRIBE, 0, body, flexible=True)
            response.number("i")
            response.varint()
            error = response.number("h")
            name, state_name = response.compact_text(), response.compact_text()
            response.number("i"), response.number("q")
            state = TransactionState(name, state_name, response.number("q"), response.number("h"))
            return error

        error = self._send_to_coordinator(transaction, describe)
        if error == _NOT_FOUND:
            return None
        if error:
            raise KafkaFailure(f"Kafka does not return the state of transaction {transaction} (error code {error}).")
        return state

    def ongoing(self, prefix: str) -> list[str]:
        """Return the open transactions with a prefix."""
        names: set[str] = set()
        for address in self._brokers():

            def list_open(connection: _Connection) -> int:
                body = _compact_list([_compact_text("Ongoing")]) + _compact_list([])
                response = connection.request(_LIST, 0, body, flexible=True)
                response.number("i")
                error = response.number("h")
                response.compact_list(response.compact_text)
                names.update(response.compact_list(partial(_transaction_name, response)))
                return error

            error = self._retry(partial(self._connection, address), f"broker {address[0]}:{address[1]}", list_open)
            if error:
                raise KafkaFailure(f"Kafka does not return the open transactions (error code {error}).")
        return sorted(name for name in names if name.startswith(prefix))

    def _send_to_coordinator(self, transaction: str, request: Callable[[_Connection], int]) -> int:
        return self._retry(
            partial(self._coordinator, transaction), f"the coordinator of transaction {transaction}", request
        )

    def _retry(self, connect: Callable[[], _Connection], broker: str, request: Callable[[_Connection], int]) -> int:
        """Send a request, and retry it while the broker is not ready; return its error code, 0 for none."""
        retries = Retries(constant(0.05), max_seconds=3 * TIMEOUT)
        while True:
            try:
                error = request(connect())
                reason = _TRANSIENT.get(error)
                if reason is None:
                    return error
            except OSError as e:
                reason = str(e)
            self.close()
            if not retries.wait():
                raise KafkaFailure(f"Kafka: {broker} does not answer: {reason}.")

    def _coordinator(self, transaction: str) -> _Connection:
        for address in self._brokers():
            body = _text(transaction) + bytes([_TRANSACTION])
            response = self._connection(address).request(_FIND_COORDINATOR, 1, body)
            response.number("i")
            error = response.number("h")
            response.text(), response.number("i")
            if not error:
                host = response.text() or ""
                return self._connection((host, response.number("i")))
        raise ConnectionError("no broker knows the coordinator")

    def _connection(self, address: Address) -> _Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = _Connection(address, self._settings)
        return connection

    def close(self) -> None:
        """Disconnect; the next request reconnects."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
