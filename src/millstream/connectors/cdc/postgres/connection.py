"""Connections to PostgreSQL, and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from millstream.common.errors import InvalidProgramError, MillstreamError, UnrecoverableError

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow

    Connection: TypeAlias = psycopg.Connection[TupleRow]

__all__ = ["Database", "PostgresFailure", "error_text", "library"]

# Settings of the session that determine the format of values.
_SETTINGS = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    # Rows that the user may not see are an error instead of skipped.
    "row_security": "off",
}


class PostgresFailure(MillstreamError):
    """A request that PostgreSQL refused or could not answer."""


class PostgresLogLost(PostgresFailure, UnrecoverableError):
    """Data to read no longer exists; restarting the job does not help."""


def library() -> ModuleType:
    """Return the client library, an optional package."""
    try:
        import psycopg
    except ImportError:
        raise InvalidProgramError(
            "The PostgreSQL connector needs the package psycopg: run  pip install 'psycopg[binary]'  (or install "
            "millstream[postgresql])."
        ) from None
    return psycopg


def error_text(error: Exception) -> str:
    """Return a database's error message in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).removeprefix("ERROR:").strip().rstrip(".")


@dataclass(frozen=True)
class Database:
    """A database's address and credentials."""

    host: str
    port: int
    name: str
    user: str
    password: str | None = None
    timeout: int = 10
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}/{self.name}"

    def connect(self, replication: bool = False, autocommit: bool = True) -> Connection:
        """Return a connection, or fail within the timeout."""
        psycopg = library()
        settings = {name: str(value) for name, value in self.options.items()}
        if self.password is not None:
            settings["password"] = self.password
        if replication:
            settings["replication"] = "database"
        try:
            connection = psycopg.connect(
                host=self.host,
                port=self.port,
                dbname=self.name,
                user=self.user,
                connect_timeout=self.timeout,
                options=" ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
                # Detect a server that disappears without closing the connection.
                keepalives_idle=30,
                tcp_user_timeout=60_000,
                autocommit=autocommit,
                **settings,
            )
        except psycopg.OperationalError as e:
            raise self._refused(e) from e
        return connection  # type: ignore[no-any-return]

    def _refused(self, error: Exception) -> PostgresFailure:
        message = error_text(error)
        # The message has a line for each attempted address; the text after FATAL is the reason.
        reason = message.rpartition("FATAL:")[2].strip() or message
        if "max_wal_senders" in message or "too many" in message or "remaining connection slots" in message:
            return PostgresFailure(f"PostgreSQL at {self.address} has no connection left: {reason}.")
        if "authentication" in message or "password" in message or "role" in message or "pg_hba" in message:
            return PostgresFailure(
                f"PostgreSQL at {self.address} refuses user {self.user!r}: {reason}. Check username and password."
            )
        if "does not exist" in message:
            return PostgresFailure(f"PostgreSQL at {self.host}:{self.port} has no such database: {reason}.")
        return PostgresFailure(
            f"PostgreSQL at {self.address} does not answer: {reason}. Check hostname, port and the network."
        )
