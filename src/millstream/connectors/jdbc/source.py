"""JdbcSource: reads a table in partitions, or continuously by a column that only grows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TypedDict

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.tags import tagged
from millstream.common.types import Row
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.connectors.jdbc.connection import (
    Connection,
    Driver,
    JdbcConnectionOptions,
    connector,
    is_access_denied,
    is_permanent,
)
from millstream.connectors.jdbc.statements import (
    Unreachable,
    error_text,
    execute,
    fetch_rows,
    read_batches,
    streaming_cursor,
)

__all__ = ["JdbcSource", "JdbcSourceBuilder"]

_FETCH = 2048


@dataclass(frozen=True)
class _Settings:
    connect: Callable[[], Connection] | None = None
    query: str = ""
    # The table or the query, for errors.
    subject: str = ""
    partition_column: str | None = None
    partitions: int = 1
    bounds: tuple[Value, Value] | None = None
    incremental_column: str | None = None
    start: Value = None
    poll_seconds: float = 1.0

    def connection(self) -> Connection:
        assert self.connect is not None
        try:
            return self.connect()
        except Exception as e:
            if is_access_denied(e):
                raise MillstreamError(
                    f"JdbcSource: the database rejects this user: {error_text(e)}. Check its URL, the user name "
                    "and the password."
                ) from e
            raise Unreachable(f"JdbcSource: the database does not answer: {error_text(e)}.") from e

    def unreadable(self, error: Exception) -> MillstreamError:
        return MillstreamError(f"JdbcSource: {self.subject} cannot be read: {error_text(error)}.")


@tagged("jdbc-split-range")
@dataclass(frozen=True)
class _Range:
    """Rows by an interval of a column's values; a bound of None does not limit it.

    Attributes:
        grows: whether the interval is (low, high], for a column that only grows; otherwise it is [low, high).
        is_first: whether it includes rows whose column is NULL.
    """

    column: str | None
    low: Value
    high: Value
    grows: bool = False
    is_first: bool = False

    def condition(self, p: str) -> tuple[str, tuple[Value, ...]]:
        """Return the WHERE clause and its parameters; `p` is the driver's placeholder."""
        above, below = (">", "<=") if self.grows else (">=", "<")
        parts = [f"{self.column} {above} {p}"] if self.low is not None else []
        parts += [f"{self.column} {below} {p}"] if self.high is not None else []
        values = tuple(v for v in (self.low, self.high) if v is not None)
        if not parts:
            return "", ()
        text = " AND ".join(parts)
        if self.is_first:
            text = f"({text} OR {self.column} IS NULL)"
        return f" WHERE {text}", values


class _ScanSnapshot(TypedDict):
    ranges: list[_Range]
    next: int


class _ScanEnumerator(SplitEnumerator):
    """Assigns each partition once."""

    def __init__(self, settings: _Settings, parallelism: int, restored: _ScanSnapshot | None) -> None:
        self._parallelism = parallelism
        self._ranges: list[_Range] = self._partition(settings) if restored is None else restored["ranges"]
        self._next: int = 0 if restored is None else restored["next"]

    def _partition(self, settings: _Settings) -> list[_Range]:
        if settings.partition_column is None:
            return [_Range(None, None, None)]
        low, high = settings.bounds or self._bounds(settings)
        if low is None or low == high:
            return [_Range(None, None, None)]
        bounds = partition_bounds(low, high, settings.partitions)
        lows, highs = [None, *bounds], [*bounds, None]
        return [_Range(settings.partition_column, a, b, is_first=a is None) for a, b in zip(lows, highs, strict=True)]

    def _bounds(self, settings: _Settings) -> tuple[Value, Value]:
        column = settings.partition_column
        with closing(settings.connection()) as connection:
            try:
                ((low, high),) = fetch_rows(connection, f"SELECT MIN({column}), MAX({column}) FROM {settings.query}")
            except Exception as e:
                raise settings.unreadable(e) from e
        return low, high

    def poll(self, budget: int, now: float) -> SplitAssignment:
        ranges = self._ranges[self._next : self._next + self._parallelism]
        self._next += len(ranges)
        return SplitAssignment({i: [r] for i, r in enumerate(ranges)}, limited=self._next < len(self._ranges))

    def is_finished(self) -> bool:
        return self._next >= len(self._ranges)

    def snapshot(self) -> _ScanSnapshot:
        return {"ranges": self._ranges, "next": self._next}


def partition_bounds(low: Value, high: Value, count: int) -> list[Value]:
    """Return the values that divide an interval of numbers, dates or times into `count` parts.

    Example:
        >>> partition_bounds(0, 100, 4)
        [25, 50, 75]
    """
    try:
        width = high - low
        bounds = [low + (width * i // count if isinstance(width, int) else width * i / count) for i in range(1, count)]
    except TypeError:
        raise InvalidProgramError(
            f"JdbcSource: a partition column must have numbers, dates or times, not {low!r} and {high!r}."
        ) from None
    return sorted(set(bounds) - {low})


class _IncrementalEnumerator(SplitEnumerator):
    """Assigns the rows above the largest value that was assigned before."""

    def __init__(self, settings: _Settings, restored: Value) -> None:
        self._settings = settings
        self._last = settings.start if restored is None else restored
        self._connection: Connection = None
        self._next_query = 0.0

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if now < self._next_query:
            return SplitAssignment({})
        end, has_more = self._query_end(budget)
        if end is None or end == self._last:
            self._next_query = now + self._settings.poll_seconds
            return SplitAssignment({})
        split_range = _Range(self._settings.incremental_column, self._last, end, grows=True)
        self._last = end
        return SplitAssignment({0: [split_range]}, limited=has_more)

    def _query_end(self, budget: int) -> tuple[Value, bool]:
        """Return the last value to read, and whether there may be larger ones; retry once after a lost connection."""
        try:
            return self._query_end_once(budget)
        except Exception as e:
            self.close()
            if is_permanent(e):
                raise self._settings.unreadable(e) from e
        try:
            return self._query_end_once(budget)
        except MillstreamError:
            raise
        except Exception as e:
            raise self._settings.unreadable(e) from e

    def _query_end_once(self, budget: int) -> tuple[Value, bool]:
        if self._connection is None:
            self._connection = self._settings.connection()
        connection, settings = self._connection, self._settings
        placeholder = Driver.of(connection).placeholder
        column = settings.incremental_column
        where, values = _Range(column, self._last, None, grows=True).condition(placeholder)
        query = f"SELECT {column} FROM {settings.query}{where} ORDER BY {column} LIMIT 1 OFFSET {budget - 1}"
        rows = fetch_rows(connection, query, values)
        has_more = bool(rows)
        if not rows:
            rows = fetch_rows(connection, f"SELECT MAX({column}) FROM {settings.query}{where}", values)
        with suppress(Exception):
            # A new transaction sees rows that are committed in the meantime.
            connection.rollback()
        return rows[0][0], has_more

    def next_poll(self, now: float) -> float:
        return max(self._next_query, now)

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Value:
        return self._last

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


class _Reader(SourceReader):
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def read(self, split_range: _Range) -> Iterator[Collection[Row]]:
        return self.rest(split_range, 0)

    def rest(self, split_range: _Range, read: int) -> Iterator[Collection[Row]]:
        subject = f"JdbcSource: {self._settings.subject}"
        return read_batches(lambda skip: self._rows(split_range, skip), read, subject)

    def _rows(self, split_range: _Range, skip: int) -> Iterator[list[Row]]:
        settings = self._settings
        with closing(settings.connection()) as connection:
            driver = Driver.of(connection)
            where, values = split_range.condition(driver.placeholder)
            # A repeatable order, so that reading can continue in the middle.
            order = f" ORDER BY {split_range.column}" if split_range.column is not None else ""
            with closing(streaming_cursor(connection, driver)) as cursor:
                execute(cursor, f"SELECT * FROM {settings.query}{where}{order}", values)
                while rows := cursor.fetchmany(_FETCH):
                    names = tuple(column[0] for column in cursor.description)
                    batch = Row.many(names, rows)
                    if skip < len(batch):
                        yield batch[skip:]
                    skip = max(skip - len(batch), 0)


class JdbcSource(Source[Row]):
    """Reads a table or a query of PostgreSQL, MySQL, MariaDB or SQLite as Rows with the names of its columns.

    Example:
        >>> import sqlite3
        >>> from millstream.common import WatermarkStrategy
        >>> database = sqlite3.connect("shop.db")
        >>> _ = database.executescript("CREATE TABLE orders (id INT, item TEXT); INSERT INTO orders VALUES (1, 'pen')")
        >>> database.close()
        >>> options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:shop.db").build()
        >>> source = JdbcSource.builder().set_connection_options(options).set_table("orders").set_partitions("id", 4)
        >>> list(env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders").execute_and_collect())
        [Row(id=1, item='pen')]
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self.name = f"JdbcSource-{settings.subject}"

    @staticmethod
    def builder() -> JdbcSourceBuilder:
        """Return a builder."""
        return JdbcSourceBuilder()

    @property
    def is_bounded(self) -> bool:
        return self._settings.incremental_column is None

    def create_enumerator(self, parallelism: int, restored: Value = None) -> SplitEnumerator:
        if self._settings.incremental_column is not None:
            return _IncrementalEnumerator(self._settings, restored)
        return _ScanEnumerator(self._settings, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._settings)


class JdbcSourceBuilder:
    """Builds a JdbcSource; see JdbcSource for an example."""

    def __init__(self) -> None:
        self._settings = _Settings()

    def set_connection_options(self, options: JdbcConnectionOptions) -> JdbcSourceBuilder:
        """Set the URL and the user."""
        return self.set_connection(connector(options))

    def set_connection(self, connect: Callable[[], Connection]) -> JdbcSourceBuilder:
        """Set a function that returns a DB-API connection; the driver and the workers call it.

        Example:
            >>> import sqlite3
            >>> builder = JdbcSource.builder().set_connection(lambda: sqlite3.connect("shop.db"))
            >>> builder.set_sql("SELECT 1 AS n").build().name
            "JdbcSource-the query 'SELECT 1 AS n'"
        """
        self._settings = replace(self._settings, connect=connect)
        return self

    def set_table(self, table: str) -> JdbcSourceBuilder:
        """Set the table, as SQL writes it, possibly with its schema."""
        self._settings = replace(self._settings, query=table, subject=f"table {table}")
        return self

    def set_sql(self, sql: str) -> JdbcSourceBuilder:
        """Set a query without parameters instead of a table; see `set_connection` for an example."""
        self._settings = replace(self._settings, query=f"({sql}) AS query", subject=f"the query {sql!r}")
        return self

    def set_partitions(self, column: str, count: int, lower: Value = None, upper: Value = None) -> JdbcSourceBuilder:
        """Read `count` partitions in parallel, by a column of numbers, dates or times.

        Args:
            column: preferably unique, with an index. The first partition includes rows where it is NULL.
            count: the number of partitions.
            lower: with `upper`, the range of values; by default both are queried. Rows outside are read, too.
            upper: the end of the range.
        """
        bounds = None if lower is None or upper is None else (lower, upper)
        self._settings = replace(self._settings, partition_column=column, partitions=count, bounds=bounds)
        return self

    def set_incremental_column(self, column: str, start: Value = None, poll_interval: float = 1.0) -> JdbcSourceBuilder:
        """Read continuously the rows whose column is above the largest value so far; each is read once.

        Args:
            column: a number or time that only grows, without gaps that are filled later: a transaction that
                commits late with a smaller value is missed. Use change data capture if that can happen.
            start: read only rows above this value.
            poll_interval: seconds between queries if there are no new rows.

        Example:
            >>> import sqlite3
            >>> source = JdbcSource.builder().set_connection(lambda: sqlite3.connect("shop.db")).set_table("orders")
            >>> source.set_incremental_column("id", start=100, poll_interval=5.0).build().is_bounded
            False
        """
        self._settings = replace(self._settings, incremental_column=column, start=start, poll_seconds=poll_interval)
        return self

    def build(self) -> JdbcSource:
        """Return the source; an incomplete configuration is an error."""
        settings = self._settings
        if settings.connect is None:
            raise InvalidProgramError("JdbcSource: set the database with set_connection_options(...).")
        if not settings.query:
            raise InvalidProgramError("JdbcSource: set the table with set_table(...) or a query with set_sql(...).")
        if settings.partitions < 1:
            raise InvalidProgramError(f"JdbcSource: {settings.partitions} partitions are not possible: set at least 1.")
        if settings.partition_column is not None and settings.incremental_column is not None:
            raise InvalidProgramError(
                "JdbcSource: set_partitions(...) and set_incremental_column(...) exclude each other: set one of them, "
                "not both."
            )
        return JdbcSource(settings)
