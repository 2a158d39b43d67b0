"""The CDC source of all databases: its settings, startup options, reader and builder."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

from millstream.common.aliases import LibraryObject, Value
from millstream.common.errors import InvalidProgramError
from millstream.connectors.base import Source, SourceReader
from millstream.connectors.cdc.changes import (
    BatchDeserializationSchema,
    Change,
    DebeziumDeserializationSchema,
    RowDeserializationSchema,
)
from millstream.connectors.cdc.readers import Connection

__all__ = [
    "CaptureBuilder",
    "CaptureRange",
    "CaptureSettings",
    "CaptureSource",
    "StartupOptions",
    "check_named",
    "is_captured",
]

INITIAL, LATEST, OFFSET, COMMITTED, SNAPSHOT = (
    "initial",
    "latest-offset",
    "specific-offset",
    "committed-offset",
    "snapshot",
)


@dataclass(frozen=True)
class StartupOptions:
    """Says where a job without a checkpoint starts.

    Example:
        >>> StartupOptions.specific_offset("0/1528C90").offset
        '0/1528C90'
        >>> StartupOptions.specific_offset("mysql-bin.000003", 4).offset
        ('mysql-bin.000003', 4)
    """

    mode: str
    offset: str | tuple[str, int] | None = None

    @staticmethod
    def initial() -> StartupOptions:
        """Read a snapshot of the tables, then the log from that point; the default."""
        return StartupOptions(INITIAL)

    @staticmethod
    def latest() -> StartupOptions:
        """Read only changes committed from now on."""
        return StartupOptions(LATEST)

    @staticmethod
    def snapshot() -> StartupOptions:
        """Read a snapshot of the tables, and finish."""
        return StartupOptions(SNAPSHOT)

    @staticmethod
    def committed_offset() -> StartupOptions:
        """Read the log from the confirmed offset of the slot: PostgreSQL only."""
        return StartupOptions(COMMITTED)

    @staticmethod
    def specific_offset(offset: str, position: int | None = None) -> StartupOptions:
        """Read the log from an offset.

        Args:
            offset: PostgreSQL's LSN as in `0/1528C90`; for MariaDB and MySQL the binlog file, or the executed GTIDs
                as in `0-1-270`.
            position: for MariaDB and MySQL, the position in that file.
        """
        if not offset:
            raise InvalidProgramError("StartupOptions.specific_offset takes a log offset, for example '0/1528C90'.")
        return StartupOptions(OFFSET, offset if position is None else (offset, position))

    @property
    def reads_tables(self) -> bool:
        """Whether a snapshot of the tables is read."""
        return self.mode in (INITIAL, SNAPSHOT)


def is_captured(table: str, patterns: Iterable[str]) -> bool:
    """Return whether a list of names and patterns contains a table."""
    return any(table == p or _matches(p, table) for p in patterns)


def _matches(pattern: str, table: str) -> bool:
    try:
        return re.fullmatch(pattern, table) is not None
    except re.error:
        # An invalid pattern is a name.
        return False


def _is_name(pattern: str) -> bool:
    """Return whether a pattern can only be a name: it has no special characters, or is no valid pattern."""
    try:
        re.compile(pattern)
    except re.error:
        return True
    return not re.search(r"[\\*+?\[\](){}|^]", pattern)


def check_named(patterns: Iterable[str], tables: Collection[str], server: str, qualifier: str) -> None:
    """Refuse a list that names a table that does not exist.

    Args:
        patterns: the names and patterns of the list.
        tables: the existing tables.
        server: the server's name, for the error.
        qualifier: the qualifier of a table and an example, for the error.
    """
    for pattern in patterns:
        if not any(is_captured(table, (pattern,)) for table in tables) and _is_name(pattern):
            raise InvalidProgramError(
                f"{server} has no table {pattern!r}: write names with their {qualifier}, and check the user's "
                "permissions."
            )


# Address and credentials: a dataclass with `user` and `connect()`, one for each database.
DatabaseServer: TypeAlias = LibraryObject


@dataclass(frozen=True, kw_only=True)
class CaptureSettings:
    """The settings of a source.

    Attributes:
        database: address and credentials.
        chunk_rows: maximum rows per chunk.
        threads: number of chunks read concurrently.
    """

    database: DatabaseServer
    tables: tuple[str, ...] = ()
    schema: DebeziumDeserializationSchema = field(default_factory=RowDeserializationSchema)
    startup: StartupOptions = field(default_factory=StartupOptions.initial)
    chunk_rows: int = 8096
    threads: int = 2
    heartbeat_seconds: float = 30.0
    discovery_seconds: float = 30.0


S = TypeVar("S", bound=CaptureSettings)


class CaptureBuilder(Generic[S]):
    """Builds CDC sources: the options that all have in common."""

    # The source's name, and an example of a table name.
    _source: ClassVar[str]
    _example: ClassVar[str]

    def __init__(self, settings: S) -> None:
        self._settings = settings

    def _with(self, settings: S) -> Self:
        self._settings = settings
        return self

    def _with_server(self, server: DatabaseServer) -> Self:
        return self._with(replace(self._settings, database=server))

    def hostname(self, hostname: str) -> Self:
        """Set the server's host name, or the path of a Unix socket. Default: localhost."""
        return self._with_server(replace(self._settings.database, host=hostname))

    def port(self, port: int) -> Self:
        """Set the port. Default: 5432 for PostgreSQL, 3306 for MariaDB and MySQL."""
        return self._with_server(replace(self._settings.database, port=port))

    def username(self, username: str) -> Self:
        """Set the user, who must be allowed to read the tables and the log. Required."""
        return self._with_server(replace(self._settings.database, user=username))

    def password(self, password: str) -> Self:
        """Set the password. Default: none."""
        return self._with_server(replace(self._settings.database, password=password))

    def connect_timeout(self, seconds: int) -> Self:
        """Set the connection timeout. Default: 10 s."""
        return self._with_server(replace(self._settings.database, timeout=seconds))

    def table_list(self, *tables: str) -> Self:
        """Set the tables by qualified names or regular expressions, which later tables may match too. Required."""
        return self._with(replace(self._settings, tables=tables))

    def deserializer(self, schema: DebeziumDeserializationSchema) -> Self:
        """Set how changes become records. Default: RowDeserializationSchema()."""
        return self._with(replace(self._settings, schema=schema))

    def startup_options(self, options: StartupOptions) -> Self:
        """Set where a job without a checkpoint starts. Default: StartupOptions.initial()."""
        return self._with(replace(self._settings, startup=options))

    def split_size(self, rows: int) -> Self:
        """Set the maximum rows per chunk. Default: 8096."""
        return self._with(replace(self._settings, chunk_rows=rows))

    def snapshot_parallelism(self, connections: int) -> Self:
        """Set how many chunks are read concurrently. Default: 2."""
        return self._with(replace(self._settings, threads=connections))

    def heartbeat_interval(self, seconds: float) -> Self:
        """Set how often checkpoints record the log's progress while tables have no changes. Default: 30 s."""
        return self._with(replace(self._settings, heartbeat_seconds=seconds))

    def discovery_interval(self, seconds: float) -> Self:
        """Set how often to look for new tables. Default: 30 s."""
        return self._with(replace(self._settings, discovery_seconds=seconds))

    def _checked(self, **required: str) -> S:
        """Return the settings; refuse them if a required one is missing."""
        settings = self._settings
        for method, value in {**required, "username": settings.database.user}.items():
            if not value:
                raise InvalidProgramError(f"{self._source}: call {method}(...).")
        if not settings.tables:
            raise InvalidProgramError(f"{self._source}: name the tables with table_list('{self._example}', ...).")
        if settings.chunk_rows < 1 or settings.threads < 1:
            raise InvalidProgramError(f"{self._source}: split_size and snapshot_parallelism must be at least 1.")
        return settings


_BATCH = 2048
_LOG, _TABLES = "log", "tables"


class CaptureRange(Protocol):
    """A chunk of a table or a range of the log, assigned to a subtask."""

    @property
    def of_table(self) -> bool:
        """Whether this is a chunk of a table."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no changes."""
        ...

    def changes(self) -> Iterator[Change]:
        """Yield the changes in order."""
        ...


class _Reader(SourceReader):
    def __init__(self, schema: DebeziumDeserializationSchema) -> None:
        self._deserialize = schema.deserialize

    def read(self, split_range: CaptureRange) -> Iterator[Collection[Value]]:
        deserialize, changes = self._deserialize, split_range.changes()
        # Snapshot rows have no timestamp: they must not make changes of the log late.
        of_table = split_range.of_table
        while batch := list(islice(changes, _BATCH)):
            yield [(record, 0 if of_table else change.ms) for change in batch for record in deserialize(change)]

    def split_of(self, split_range: CaptureRange) -> str:
        return _TABLES if split_range.of_table else _LOG

    def ends_split(self, split_range: CaptureRange) -> bool:
        return split_range.of_table


class _BatchReader(_Reader):
    """Converts batches of changes into one record each."""

    def __init__(self, schema: BatchDeserializationSchema) -> None:
        self._deserialize_all = schema.deserialize_all

    def read(self, split_range: CaptureRange) -> Iterator[Collection[Value]]:
        changes = split_range.changes()
        while batch := list(islice(changes, _BATCH)):
            yield [self._deserialize_all(batch)]


class CaptureSource(Source[Value]):
    """Reads tables, then their changes; base of PostgresSource and MySqlSource."""

    timestamped = True

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self.timestamped = not isinstance(settings.schema, BatchDeserializationSchema)
        self.name = f"{type(self).__name__}-{', '.join(settings.tables)}"

    @property
    def is_bounded(self) -> bool:
        return self._settings.startup.mode == SNAPSHOT

    def check(self) -> None:
        with self._settings.database.connect() as connection:
            self._prepare(connection)

    @abstractmethod
    def _prepare(self, connection: Connection) -> None:
        """Fail if tables cannot be captured."""

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        schema = self._settings.schema
        return _BatchReader(schema) if isinstance(schema, BatchDeserializationSchema) else _Reader(schema)

    def subtask_of(self, split: str, parallelism: int) -> int:
        return 0
