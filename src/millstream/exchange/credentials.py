"""The credentials of one execution: its secret, and its certificate for TLS."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache

from millstream.common.errors import MillstreamError
from millstream.exchange.handshake import Side
from millstream.exchange.socket_stream import PlainStream, Stream, TlsStream

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

    def context(self, is_called: bool) -> ssl.SSLContext:
        """Return the TLS context of a connection. Raises CertificateError."""
        return _context(self, is_called)


@lru_cache(maxsize=32)
def _context(identity: Identity, is_called: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_called else ssl.PROTOCOL_TLS_CLIENT)
    # TLS 1.3 has neither renegotiation nor weak ciphers.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if is_called:
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
        return TlsStream(connection, self.identity.context(side is Side.CALLED), side is Side.CALLED)
