"""The credentials of one execution, its secret and its certificate for TLS, and mutual authentication.

Both ends prove that they know the secret before any frame is sent or read. Each end sends a random challenge; the
client answers first, then the server. A proof covers both challenges and the side, so it can be neither replayed nor
reflected. No socket here: bytes in, bytes out.
"""

from __future__ import annotations

import datetime
import hmac
import os
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from millstream.common.errors import MillstreamError
from millstream.exchange.socket_stream import PlainStream, Stream, TlsStream

_MAGIC = b"MILLSTR1"
# The first byte of a TLS handshake record or alert.
_TLS = (b"\x16", b"\x15")
_CHALLENGE = 32
_PROOF = 32
_GREETING = len(_MAGIC) + _CHALLENGE


class Side(Enum):
    """The side of a connection."""

    CLIENT = b"client"
    SERVER = b"server"


class AuthenticationError(ConnectionError):
    """The peer does not know the job's secret."""


class Handshake:
    """One side of a handshake.

    Attributes:
        greeting: bytes to send at once.
        is_done: whether the peer is authenticated.
        rest: bytes received after the handshake.
    """

    def __init__(self, secret: bytes, side: Side) -> None:
        self._secret = secret
        self._side = side
        self._own_challenge = os.urandom(_CHALLENGE)
        self._peer_challenge: bytes | None = None
        self._received = b""
        self.greeting = _MAGIC + self._own_challenge
        self.is_done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Consume received bytes and return the answer. Raises AuthenticationError."""
        self._received += data
        reply = b""
        if self._peer_challenge is None:
            if not _MAGIC.startswith(self._received[: len(_MAGIC)]):
                raise AuthenticationError(
                    "the peer uses TLS, this side does not (security.ssl.internal.enabled is not true here)"
                    if self._received[:1] in _TLS
                    else "the peer does not use this protocol"
                )
            if len(self._received) < _GREETING:
                return b""
            self._peer_challenge = self._take(_GREETING)[len(_MAGIC) :]
            if self._side is Side.CLIENT:
                reply = self._proof_of(Side.CLIENT)
        if len(self._received) >= _PROOF:
            other = Side.SERVER if self._side is Side.CLIENT else Side.CLIENT
            if not hmac.compare_digest(self._take(_PROOF), self._proof_of(other)):
                raise AuthenticationError("the peer does not know the job's secret")
            self.is_done = True
            self.rest, self._received = self._received, b""
            if self._side is Side.SERVER:
                reply = self._proof_of(Side.SERVER)
        return reply

    def _take(self, count: int) -> bytes:
        data, self._received = self._received[:count], self._received[count:]
        return data

    def _proof_of(self, side: Side) -> bytes:
        assert self._peer_challenge is not None
        first, second = self._own_challenge, self._peer_challenge
        if self._side is Side.SERVER:
            first, second = second, first
        return hmac.digest(self._secret, side.value + first + second, "sha256")


# Longer than any execution.
_VALID_DAYS = 3650


class CertificateError(MillstreamError):
    """A certificate is missing or unusable."""


@dataclass(frozen=True)
class Identity:
    """A certificate, its private key, and the trusted certificates.

    Attributes:
        certificate, key, trusted: PEM files, which every host has at this place.
        pem: certificate and key created for one execution, which trusts only this certificate.
    """

    certificate: str = ""
    key: str = ""
    trusted: str = ""
    pem: str = field(default="", repr=False)

    def context(self, is_server: bool) -> ssl.SSLContext:
        """Return the TLS context of a connection. Raises CertificateError."""
        return _context(self, is_server)


@lru_cache(maxsize=32)
def _context(identity: Identity, is_server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    # TLS 1.3 has neither renegotiation nor weak ciphers.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if is_server:
        context.num_tickets = 0
    if identity.pem:
        _load_text(context, identity.pem)
    else:
        _load_files(context, identity)
    return context


def _load_text(context: ssl.SSLContext, pem: str) -> None:
    # Python reads keys only from files; this one is private and deleted at once.
    with tempfile.NamedTemporaryFile("w", prefix="millstream-", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=pem[: pem.index("-----BEGIN PRIVATE KEY")])


def _load_files(context: ssl.SSLContext, identity: Identity) -> None:
    for label, path in (("certificate", identity.certificate), ("key", identity.key), ("trusted", identity.trusted)):
        if not os.access(path, os.R_OK):
            raise CertificateError(f"The file for TLS {path!r} ({label}) cannot be read on host {os.uname().nodename}.")

    def refuse_password() -> str:
        raise CertificateError(f"The private key {identity.key!r} is encrypted; store it without a password.")

    try:
        context.load_cert_chain(identity.certificate, identity.key, refuse_password)
        context.load_verify_locations(identity.trusted)
    except ssl.SSLError as e:
        files = f"{identity.certificate!r}, {identity.key!r} and {identity.trusted!r}"
        raise CertificateError(f"{files} are not a certificate, its private key and certificates in PEM: {e}") from None


def make_identity() -> Identity:
    """Create a certificate for one execution. Raises CertificateError."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise CertificateError(
            "To make certificates for TLS, the package cryptography is needed: pip install 'millstream[tls]'."
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "millstream")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clocks of hosts differ.
        .not_valid_before(now - day)
        .not_valid_after(now + _VALID_DAYS * day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(pem=(certificate.public_bytes(serialization.Encoding.PEM) + secret).decode())


@dataclass(frozen=True)
class Credentials:
    """Created by the driver for one execution, and sent to its slots with their Spark task.

    Attributes:
        secret: the secret that both ends of a connection prove to know.
        identity: the certificate that both ends present and trust; None without encryption.
        keepalive_seconds: the keepalive timeout in seconds.
    """

    secret: bytes = field(repr=False)
    identity: Identity | None = None
    keepalive_seconds: float = 50.0

    def stream(self, connection: socket.socket, side: Side) -> Stream:
        """Return the stream for a socket: TLS between hosts if configured; a Unix socket never leaves its host."""
        if self.identity is None or connection.family == socket.AF_UNIX:
            return PlainStream(connection)
        return TlsStream(connection, self.identity.context(side is Side.SERVER), side is Side.SERVER)
