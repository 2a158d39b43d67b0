"""Running statements: reads in batches and writes in batches, which survive a lost connection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from typing import TypeVar

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.connectors.jdbc.connection import Connection, Cursor, Driver, is_permanent
from millstream.connectors.retries import Retries, linear

_READ_RETRIES = 3
# A pause also before the first retry: the server may be restarting.
_READ_BACKOFF = linear(0.5, first=0.5)
# As in Flink.
_WRITE_BACKOFF = linear(1.0)

T = TypeVar("T")


class Unreachable(MillstreamError):
    """A database that may answer at the next attempt."""


def error_text(error: Exception) -> str:
    """Return the first line of a driver's error; the next lines may repeat the statement."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def execute(cursor: Cursor, statement: str, values: Sequence[Value]) -> None:
    """Run a statement; without parameters none are passed, or drivers would interpret its percent signs."""
    if values:
        cursor.execute(statement, values)
    else:
        cursor.execute(statement)


def fetch_rows(connection: Connection, statement: str, values: Sequence[Value] = ()) -> list[Sequence[Value]]:
    """Return all rows of a query."""
    with closing(connection.cursor()) as cursor:
        execute(cursor, statement, values)
        return list(cursor.fetchall())


def streaming_cursor(connection: Connection, driver: Driver) -> Cursor:
    """Return a cursor that does not fetch all rows at once."""
    if driver.copies:
        return connection.cursor(name="millstream")
    if driver.is_mysql:
        # An optional package.
        from pymysql.cursors import SSCursor

        return connection.cursor(SSCursor)
    return connection.cursor()


def read_batches(
    open_batches: Callable[[int], Iterator[Collection[T]]], read: int, subject: str
) -> Iterator[Collection[T]]:
    """Yield batches of records; after a lost connection continue over a new one.

    Args:
        open_batches: connects and yields the batches after a number of records.
        read: the number of records that were read before.
        subject: the connector and the table, for errors.
    """
    retries = Retries(_READ_BACKOFF, _READ_RETRIES)
    while True:
        try:
            for batch in open_batches(read):
                read += len(batch)
                yield batch
            return
        except Unreachable:
            if not retries.wait():
                raise
        except MillstreamError:
            raise
        except Exception as e:
            if is_permanent(e) or not retries.wait():
                raise MillstreamError(f"{subject} cannot be read: {error_text(e)}.") from e


class BatchExecutor:
    """Writes batches over one connection; after a failure it reconnects and retries the batch."""

    def __init__(self, connect: Callable[[], Connection], max_retries: int) -> None:
        self._connect = connect
        self._max_retries = max_retries
        self._connection: Connection = None

    def execute(self, write: Callable[[Connection, Cursor], None], failure: Callable[[str], str]) -> None:
        """Run and commit a batch.

        Args:
            write: executes the statements.
            failure: returns the message of the final error from the driver's own text.
        """
        retries = Retries(_WRITE_BACKOFF, self._max_retries)
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with closing(self._connection.cursor()) as cursor:
                    write(self._connection, cursor)
                self._connection.commit()
                return
            except Exception as e:
                # The database rolls back what the connection has not committed.
                self.close()
                if is_permanent(e) or not retries.wait():
                    raise MillstreamError(failure(error_text(e))) from e

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # A broken connection cannot be closed.
            with suppress(Exception):
                connection.close()


def conflict_clause(columns: Sequence[str], keys: Sequence[str], is_mysql: bool) -> str:
    """Return the clause that makes an INSERT an upsert; names are as SQL has them.

    Example:
        >>> conflict_clause(["id", "n"], ["id"], False)
        'ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n'
        >>> conflict_clause(["id"], ["id"], True)
        'ON DUPLICATE KEY UPDATE id = VALUES(id)'
    """
    others = [c for c in columns if c not in keys]
    if is_mysql:
        # MySQL has no DO NOTHING: without other columns the key is set to itself.
        return f"ON DUPLICATE KEY UPDATE {', '.join(f'{c} = VALUES({c})' for c in others or keys)}"
    changes = ", ".join(f"{c} = EXCLUDED.{c}" for c in others)
    return f"ON CONFLICT ({', '.join(keys)}) " + (f"DO UPDATE SET {changes}" if changes else "DO NOTHING")
