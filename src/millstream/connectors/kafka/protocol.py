"""The few requests of Kafka's protocol that the client library has no words for.

A transaction is ended by who began it, as far as the library goes. Here it is begun in a worker and ended by the driver
when its checkpoint is complete, perhaps after the worker has died: with the id and epoch of the producer, which is all
that the coordinator asks for.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.connectors.kafka.client import TIMEOUT, KafkaFailure

_FIND_COORDINATOR, _END_TXN, _DESCRIBE, _LIST = 10, 26, 65, 66
_HANDSHAKE, _AUTHENTICATE = 17, 36
_TRANSACTION = 1
# Errors that pass: the coordinator is loading, moving, or still busy with the transaction before.
_PASSING = {14: "it is loading", 15: "it is not available", 16: "it has moved", 51: "it is busy with the transaction"}
_NOT_FOUND = 105

Address = tuple[str, int]


@dataclass(frozen=True)
class TransactionState:
    """What a coordinator knows of a transaction; state is Kafka's word: Ongoing, CompleteCommit, ..."""

    id: str
    state: str
    producer_id: int
    epoch: int


class _Reader:
    """Reads an answer."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._body, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str | None:
        length = self.number("h")
        return None if length < 0 else self._taken(length).decode()

    def data(self) -> bytes:
        return self._taken(max(self.number("i"), 0))

    def _taken(self, length: int) -> bytes:
        self._at += length
        return self._body[self._at - length : self._at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._taken(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_text(self) -> str:
        return self._taken(max(self.varint() - 1, 0)).decode()

    def compact_list(self, read: Callable[[], Any]) -> list[Any]:
        return [read() for _ in range(max(self.varint() - 1, 0))]

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self._taken(self.varint())


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

    def __init__(self, address: Address, settings: Mapping[str, Any]) -> None:
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

    def ask(self, key: int, version: int, body: bytes, flexible: bool = False) -> _Reader:
        self._correlation += 1
        tags = b"\0" if flexible else b""
        header = struct.pack(">hhi", key, version, self._correlation) + _text("millstream") + tags
        message = header + body + tags
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        answer = _Reader(self._received(struct.unpack(">i", self._received(4))[0]))
        answer.number("i")
        if flexible:
            answer.tags()
        return answer

    def _received(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._socket.recv(length)
            if not part:
                raise ConnectionError("the broker hung up")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _authenticate(self, settings: Mapping[str, Any]) -> None:
        mechanism = str(settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "PLAIN").upper()
        name, password = str(settings.get("sasl.username", "")), str(settings.get("sasl.password", ""))
        answer = self.ask(_HANDSHAKE, 1, _text(mechanism))
        if answer.number("h"):
            raise KafkaFailure(f"Kafka does not let clients in by {mechanism}.")
        if mechanism == "PLAIN":
            self._say(f"\0{name}\0{password}".encode())
        elif mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            _scram(self._say, "sha256" if mechanism.endswith("256") else "sha512", name, password)
        else:
            raise KafkaFailure(f"KafkaSink: exactly-once delivery with sasl.mechanism {mechanism} is not known here.")

    def _say(self, token: bytes) -> bytes:
        answer = self.ask(_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        error, said = answer.number("h"), answer.text()
        if error:
            raise KafkaFailure(f"Kafka does not let this user in: {said or error}.")
        return answer.data()

    def close(self) -> None:
        self._socket.close()


def _tls(settings: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
    if settings.get("ssl.certificate.location"):
        key = settings.get("ssl.key.location")
        context.load_cert_chain(settings["ssl.certificate.location"], key, settings.get("ssl.key.password"))
    if str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() in ("", "none"):
        context.check_hostname = False
    return context


def _scram(say: Callable[[bytes], bytes], digest: str, name: str, password: str) -> None:
    """Show that the password is known, without saying it."""
    user = name.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={base64.b64encode(os.urandom(24)).decode()}"
    answer = say(f"n,,{first}".encode()).decode()
    parts = dict(part.split("=", 1) for part in answer.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    client = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={parts['r']}"
    signed = hmac.digest(hashlib.new(digest, client).digest(), f"{first},{answer},{final}".encode(), digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client, signed, strict=True))).decode()
    say(f"{final},p={proof}".encode())


def _transaction_name(answer: _Reader) -> str:
    """Read one transaction of a list: its name, producer and state."""
    name = answer.compact_text()
    answer.number("q"), answer.compact_text()
    answer.tags()
    return name


class Coordinators:
    """Asks the coordinators of transactions."""

    def __init__(self, settings: Mapping[str, Any], brokers: Callable[[], list[Address]]) -> None:
        """Take the client's settings, and what tells where brokers are."""
        self._settings = settings
        self._brokers = brokers
        self._connections: dict[Address, _Connection] = {}

    def commit(self, transaction: str, producer_id: int, epoch: int) -> None:
        """Commit a transaction; one that is committed already stays so."""
        body = _text(transaction) + struct.pack(">qhb", producer_id, epoch, 1)

        def end(connection: _Connection) -> int:
            answer = connection.ask(_END_TXN, 1, body)
            answer.number("i")
            return answer.number("h")

        error = self._ask_coordinator(transaction, end)
        if error:
            raise KafkaFailure(f"Kafka refuses to commit transaction {transaction} (its error {error}).")

    def state(self, transaction: str) -> TransactionState | None:
        """Return what is known of a transaction, None when nothing is."""
        found: list[TransactionState] = []

        def describe(connection: _Connection) -> int:
            answer = connection.ask(_DESCRIBE, 0, _compact_list([_compact_text(transaction)]), flexible=True)
            answer.number("i")
            answer.varint()
            error = answer.number("h")
            name, state = answer.compact_text(), answer.compact_text()
            answer.number("i"), answer.number("q")
            found[:] = [TransactionState(name, state, answer.number("q"), answer.number("h"))]
            return error

        error = self._ask_coordinator(transaction, describe)
        if error == _NOT_FOUND:
            return None
        if error:
            raise KafkaFailure(f"Kafka does not tell the state of transaction {transaction} (its error {error}).")
        return found[0]

    def ongoing(self, prefix: str) -> list[str]:
        """Return the transactions that are open and whose names begin like this."""
        found: set[str] = set()
        for address in self._brokers():

            def listed(connection: _Connection) -> int:
                asked = _compact_list([_compact_text("Ongoing")]) + _compact_list([])
                answer = connection.ask(_LIST, 0, asked, flexible=True)
                answer.number("i")
                error = answer.number("h")
                answer.compact_list(answer.compact_text)
                found.update(answer.compact_list(partial(_transaction_name, answer)))
                return error

            error = self._persist(partial(self._connection, address), f"broker {address[0]}:{address[1]}", listed)
            if error:
                raise KafkaFailure(f"Kafka does not tell which transactions are open (its error {error}).")
        return sorted(name for name in found if name.startswith(prefix))

    def _ask_coordinator(self, transaction: str, ask: Callable[[_Connection], int]) -> int:
        return self._persist(
            partial(self._coordinator, transaction), f"the coordinator of transaction {transaction}", ask
        )

    def _persist(self, connect: Callable[[], _Connection], who: str, ask: Callable[[_Connection], int]) -> int:
        """Ask somebody, again while they are not ready; return their error, 0 for none."""
        end = time.monotonic() + 3 * TIMEOUT
        while True:
            try:
                error = ask(connect())
                why = _PASSING.get(error)
                if why is None:
                    return error
            except OSError as e:
                why = str(e)
            self.close()
            if time.monotonic() > end:
                raise KafkaFailure(f"Kafka: {who} does not answer: {why}.")
            time.sleep(0.05)

    def _coordinator(self, transaction: str) -> _Connection:
        for address in self._brokers():
            answer = self._connection(address).ask(_FIND_COORDINATOR, 1, _text(transaction) + bytes([_TRANSACTION]))
            answer.number("i")
            error = answer.number("h")
            answer.text(), answer.number("i")
            if not error:
                host = answer.text() or ""
                return self._connection((host, answer.number("i")))
        raise ConnectionError("no broker knows the coordinator")

    def _connection(self, address: Address) -> _Connection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = _Connection(address, self._settings)
        return found

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
