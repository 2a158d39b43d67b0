"""Connections to PostgreSQL, and what goes wrong with them in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.common.errors import IncurableError, InvalidProgramError, MillstreamError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Database", "PostgresFailure", "error_text", "library"]

# How values are written is the server's choice, unless it is rows.
_SETTINGS = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    # Rows that the user may not see are an error, not left out.
    "row_security": "off",
}


class PostgresFailure(MillstreamError):
    """PostgreSQL could not do what it was asked to."""


class PostgresLogLost(PostgresFailure, IncurableError):
    """What is to be read is no longer there: to start the job again would not help."""


def library() -> Any:
    """Return the client library, which is a package of its own."""
    try:
        import psycopg
    except ImportError:
        raise InvalidProgramError(
            "The PostgreSQL connector needs the package psycopg: run  pip install 'psycopg[binary]'  (or install "
            "millstream[postgresql])."
        ) from None
    return psycopg


def error_text(error: Exception) -> str:
    """Return a database's words in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).removeprefix("ERROR:").strip().rstrip(".")


@dataclass(frozen=True)
class Database:
    """Where a database is and who asks."""

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

    def connect(self, replication: bool = False, autocommit: bool = True) -> psycopg.Connection[Any]:
        """Return a connection; fails in bounded time, with a sentence."""
        psycopg = library()
        rows = {name: str(value) for name, value in self.options.items()}
        if self.password is not None:
            rows["password"] = self.password
        if replication:
            rows["replication"] = "database"
        try:
            connection = psycopg.connect(
                host=self.host,
                port=self.port,
                dbname=self.name,
                user=self.user,
                connect_timeout=self.timeout,
                options=" ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
                # A server that is gone without a word is noticed.
                keepalives_idle=30,
                tcp_user_timeout=60_000,
                autocommit=autocommit,
                **rows,
            )
        except psycopg.OperationalError as e:
            raise self._refused(e) from e
        return connection  # type: ignore[no-any-return]

    def _refused(self, error: Exception) -> PostgresFailure:
        words = error_text(error)
        # Each address that was tried has a line of its own; the last words tell.
        reason = words.rpartition("FATAL:")[2].strip() or words
        if "max_wal_senders" in words or "too many" in words or "remaining connection slots" in words:
            return PostgresFailure(f"PostgreSQL at {self.address} has no connection left: {reason}.")
        if "authentication" in words or "password" in words or "role" in words or "pg_hba" in words:
            return PostgresFailure(
                f"PostgreSQL at {self.address} refuses user {self.user!r}: {reason}. Check username and password."
            )
        if "does not exist" in words:
            return PostgresFailure(f"PostgreSQL at {self.host}:{self.port} has no such database: {reason}.")
        return PostgresFailure(
            f"PostgreSQL at {self.address} does not answer: {reason}. Check hostname, port and the network."
        )
