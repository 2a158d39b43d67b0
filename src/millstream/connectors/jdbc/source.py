"""JdbcSource: the rows of a database's table, read in partitions, or again and again by a column that only grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.tags import tagged
from millstream.common.types import Row
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.jdbc.connection import (
    Connection,
    Driver,
    JdbcConnectionOptions,
    connector,
    is_mistake,
    is_refusal,
)

__all__ = ["JdbcSource", "JdbcSourceBuilder"]

_FETCH = 2048
_TRIES = 4
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class _Settings:
    connect: Callable[[], Connection] | None = None
    query: str = ""
    what: str = ""
    # The column by which the rows are cut, and the column that only grows.
    partition: str | None = None
    partitions: int = 1
    bounds: tuple[Any, Any] | None = None
    incremental: str | None = None
    start: Any = None
    poll_seconds: float = 1.0
    parameters: tuple[Any, ...] = field(default=())

    def connected(self) -> Connection:
        assert self.connect is not None
        try:
            return self.connect()
        except Exception as e:
            if is_refusal(e):
                raise MillstreamError(
                    f"JdbcSource: the database does not let this user in: {_said(e)}. Check its URL, the user name "
                    "and the password."
                ) from e
            raise _Unreachable(f"JdbcSource: the database does not answer: {_said(e)}.") from e


class _Unreachable(MillstreamError):
    """A database that may answer the next time."""


def _said(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def _asked(connection: Connection, query: str, values: tuple[Any, ...]) -> list[Any]:
    with closing(connection.cursor()) as cursor:
        cursor.execute(query, values)
        return list(cursor.fetchall())


@tagged("jdbc-split-range")
@dataclass(frozen=True)
class _Range:
    """Rows by a column: `low` included or not, `high` excluded or included. None: no bound.

    Attributes:
        grows: (low, high], as for a column that only grows; else [low, high), rows without a value in the first one.
        is_first: whether rows without a value are among them.
    """

    column: str | None
    low: Any
    high: Any
    grows: bool = False
    is_first: bool = False

    def condition(self, p: str) -> tuple[str, tuple[Any, ...]]:
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


class _Scan(SplitEnumerator):
    """Deals the partitions out, each once."""

    def __init__(self, settings: _Settings, parallelism: int, restored: Any) -> None:
        self._parallelism = parallelism
        self._ranges: list[_Range] = self._cut(settings) if restored is None else restored["ranges"]
        self._next: int = 0 if restored is None else restored["next"]

    def _cut(self, settings: _Settings) -> list[_Range]:
        if settings.partition is None:
            return [_Range(None, None, None)]
        low, high = settings.bounds or self._found(settings)
        if low is None or low == high:
            return [_Range(None, None, None)]
        cuts = partition_cuts(low, high, settings.partitions)
        lows, highs = [None, *cuts], [*cuts, None]
        return [_Range(settings.partition, a, b, is_first=a is None) for a, b in zip(lows, highs, strict=True)]

    def _found(self, settings: _Settings) -> tuple[Any, Any]:
        with closing(settings.connected()) as connection:
            query = f"SELECT MIN({settings.partition}), MAX({settings.partition}) FROM {settings.query}"
            try:
                ((low, high),) = _asked(connection, query, ())
            except Exception as e:
                raise MillstreamError(f"JdbcSource: {settings.what} cannot be read: {_said(e)}.") from e
        return low, high

    def poll(self, budget: int, now: float) -> SplitAssignment:
        taken = self._ranges[self._next : self._next + self._parallelism]
        self._next += len(taken)
        return SplitAssignment({i: [share] for i, share in enumerate(taken)}, limited=self._next < len(self._ranges))

    def is_finished(self) -> bool:
        return self._next >= len(self._ranges)

    def snapshot(self) -> Any:
        return {"ranges": self._ranges, "next": self._next}


def partition_cuts(low: Any, high: Any, count: int) -> list[Any]:
    """Return where to cut an interval into so many parts; numbers, dates and times can be.

    Example:
        >>> partition_cuts(0, 100, 4)
        [25, 50, 75]
    """
    try:
        width = high - low
        cuts = [low + (width * i // count if isinstance(width, int) else width * i / count) for i in range(1, count)]
    except TypeError:
        raise InvalidProgramError(
            f"JdbcSource: a table is cut by a column of numbers, dates or times, not by one with {low!r} and {high!r}."
        ) from None
    return sorted(set(cuts) - {low})


class _Follow(SplitEnumerator):
    """Deals out what is new above the largest value there was."""

    def __init__(self, settings: _Settings, restored: Any) -> None:
        self._settings = settings
        self._at = settings.start if restored is None else restored
        self._connection: Connection = None
        self._next_look = 0.0

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if now < self._next_look:
            return SplitAssignment({})
        end, is_more = self._look(budget)
        if end is None or end == self._at:
            self._next_look = now + self._settings.poll_seconds
            return SplitAssignment({})
        share = _Range(self._settings.incremental, self._at, end, grows=True)
        self._at = end
        return SplitAssignment({0: [share]}, limited=is_more)

    def _look(self, budget: int) -> tuple[Any, bool]:
        """Return up to which value to read, and whether there may be more above it."""
        try:
            return self._ask(budget)
        except Exception as e:
            self.close()
            if is_mistake(e):
                raise MillstreamError(f"JdbcSource: {self._settings.what} cannot be read: {_said(e)}.") from e
        # The connection was lost: once more over another one.
        try:
            return self._ask(budget)
        except MillstreamError:
            raise
        except Exception as e:
            raise MillstreamError(f"JdbcSource: {self._settings.what} cannot be read: {_said(e)}.") from e

    def _ask(self, budget: int) -> tuple[Any, bool]:
        if self._connection is None:
            self._connection = self._settings.connected()
        connection, settings = self._connection, self._settings
        p = Driver.of(connection).placeholder
        column = settings.incremental
        where, values = _Range(column, self._at, None, grows=True).condition(p)
        query = f"SELECT {column} FROM {settings.query}{where} ORDER BY {column} LIMIT 1 OFFSET {budget - 1}"
        found = _asked(connection, query, values)
        if not found:
            found = _asked(connection, f"SELECT MAX({column}) FROM {settings.query}{where}", values)
            is_more = False
        else:
            is_more = True
        with suppress(Exception):
            # So that the next look sees what others have committed meanwhile.
            connection.rollback()
        return found[0][0], is_more

    def next_poll(self, now: float) -> float:
        return max(self._next_look, now)

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Any:
        return self._at

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


class _Reader(SourceReader):
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def read(self, share: SplitRange) -> Iterator[Collection[Any]]:
        """Yield rows; when the connection is lost in the middle, go on behind those over a new one."""
        read = 0
        for attempt in range(_TRIES):
            try:
                for batch in self._rows(share, read):
                    read += len(batch)
                    yield batch
                return
            except _Unreachable:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(_PAUSE_SECONDS * (attempt + 1))
            except MillstreamError:
                raise
            except Exception as e:
                if is_mistake(e) or attempt == _TRIES - 1:
                    raise MillstreamError(f"JdbcSource: {self._settings.what} cannot be read: {_said(e)}.") from e
                time.sleep(_PAUSE_SECONDS * attempt)

    def rest(self, share: SplitRange, read: int) -> Iterator[Collection[Any]]:
        for batch in self.read(share):
            if read < len(batch):
                yield batch if not read else list(batch)[read:]
            read = max(read - len(batch), 0)

    def _rows(self, share: _Range, skip: int) -> Iterator[list[Row]]:
        settings = self._settings
        with closing(settings.connected()) as connection:
            driver = Driver.of(connection)
            where, values = share.condition(driver.placeholder)
            # Always in the same order, so that it can go on in the middle.
            order = f" ORDER BY {share.column}" if share.column is not None else ""
            with closing(_streaming(connection, driver)) as cursor:
                cursor.execute(f"SELECT * FROM {settings.query}{where}{order}", values)
                while rows := cursor.fetchmany(_FETCH):
                    names = tuple(column[0] for column in cursor.description)
                    found = Row.many(names, rows)
                    if skip < len(found):
                        yield found[skip:]
                    skip = max(skip - len(found), 0)


def _streaming(connection: Connection, driver: Driver) -> Any:
    """Return a cursor that does not fetch all rows at once."""
    if driver.copies:
        return connection.cursor(name="millstream")
    if driver.is_mysql:
        from pymysql.cursors import SSCursor

        return connection.cursor(SSCursor)
    return connection.cursor()


class JdbcSource(Source[Row]):
    """Reads a table or a query of PostgreSQL, MySQL, MariaDB or SQLite as Rows with the names of its columns.

    Example:
        >>> options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:/tmp/shop.db").build()
        >>> source = JdbcSource.builder().set_connection_options(options).set_table("orders")
        >>> source.set_partitions("id", 4).build().is_bounded
        True
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self.name = f"JdbcSource-{settings.what}"

    @staticmethod
    def builder() -> JdbcSourceBuilder:
        """Begin a source."""
        return JdbcSourceBuilder()

    @property
    def is_bounded(self) -> bool:
        return self._settings.incremental is None

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        if self._settings.incremental is not None:
            return _Follow(self._settings, restored)
        return _Scan(self._settings, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._settings)


class JdbcSourceBuilder:
    """Builds a JdbcSource."""

    def __init__(self) -> None:
        self._settings = _Settings()

    def _with(self, **changes: Any) -> JdbcSourceBuilder:
        self._settings = replace(self._settings, **changes)
        return self

    def set_connection_options(self, options: JdbcConnectionOptions) -> JdbcSourceBuilder:
        """Say where the database is."""
        return self._with(connect=connector(options))

    def set_connection(self, connect: Callable[[], Connection]) -> JdbcSourceBuilder:
        """Say it with a function that returns a DB-API connection; it is called on the driver and in the workers."""
        return self._with(connect=connect)

    def set_table(self, table: str) -> JdbcSourceBuilder:
        """Name the table, as SQL writes it."""
        return self._with(query=table, what=f"table {table}")

    def set_sql(self, sql: str) -> JdbcSourceBuilder:
        """Give a query, without parameters, in place of a table."""
        return self._with(query=f"({sql}) AS query", what=f"the query {sql!r}")

    def set_partitions(self, column: str, count: int, lower: Any = None, upper: Any = None) -> JdbcSourceBuilder:
        """Read in so many parts at once, cut by a column of numbers, dates or times.

        Args:
            column: best a unique one with an index. Rows that have no value there are in the first part.
            lower: with `upper`, where values lie; both are looked up if not given. Rows outside are read, too.
        """
        bounds = None if lower is None or upper is None else (lower, upper)
        return self._with(partition=column, partitions=count, bounds=bounds)

    def set_incremental_column(self, column: str, start: Any = None, poll_interval: float = 1.0) -> JdbcSourceBuilder:
        """Go on for ever with rows whose column is above the largest there was; each is read once.

        Args:
            column: a number or time that only grows, without gaps that others fill later: a transaction that is
                committed late with a smaller value is not seen. Where that can be, take change data capture.
            start: read only rows above this value.
            poll_interval: seconds between two looks when there is nothing new.
        """
        return self._with(incremental=column, start=start, poll_seconds=poll_interval)

    def build(self) -> JdbcSource:
        """Return the source; refuses what cannot be read."""
        settings = self._settings
        if settings.connect is None:
            raise InvalidProgramError("JdbcSource: say where the database is with set_connection_options(...).")
        if not settings.query:
            raise InvalidProgramError("JdbcSource: say what to read with set_table(...) or set_sql(...).")
        if settings.partitions < 1:
            raise InvalidProgramError(f"JdbcSource: there is at least 1 partition, not {settings.partitions}.")
        if settings.partition is not None and settings.incremental is not None:
            raise InvalidProgramError(
                "JdbcSource: a table is read in partitions or by an incremental column, not both."
            )
        return JdbcSource(settings)
