"""PostgresSource: the tables of a PostgreSQL database as they are, and every change to them from then on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.base import Share, Source, SourceReader, SplitEnumerator
from millstream.datastream.connectors.cdc import startup
from millstream.datastream.connectors.cdc.changes import Change, DebeziumDeserializationSchema, RowDeserializationSchema
from millstream.datastream.connectors.cdc.postgres_enumerator import PostgresEnumerator, Settings, prepare
from millstream.datastream.connectors.cdc.postgres_session import Database, library
from millstream.datastream.connectors.cdc.postgres_shares import ChunkShare, LogShare, changes_of, rows_of
from millstream.datastream.connectors.cdc.startup import StartupOptions

__all__ = ["PostgresSource", "PostgresSourceBuilder"]

_BATCH = 2048
_LOG, _TABLES = "log", "tables"


class _Reader(SourceReader):
    def __init__(self, schema: DebeziumDeserializationSchema) -> None:
        self._deserialize = schema.deserialize

    def read(self, share: Share) -> Iterator[Collection[Any]]:
        changes: Iterator[Change] = changes_of(share) if isinstance(share, LogShare) else rows_of(share)
        deserialize = self._deserialize
        # Rows of tables have no time of their own: they must not make what the log brings late.
        of_table = isinstance(share, ChunkShare)
        while batch := list(islice(changes, _BATCH)):
            yield [(record, 0 if of_table else change.ms) for change in batch for record in deserialize(change)]

    def split_of(self, share: Share) -> str:
        return _TABLES if isinstance(share, ChunkShare) else _LOG

    def ends_split(self, share: Share) -> bool:
        return isinstance(share, ChunkShare)


class PostgresSource(Source[Any]):
    """Reads tables of PostgreSQL and then their changes, by logical replication.

    Example:
        >>> source = (
        ...     PostgresSource.builder()
        ...     .hostname("localhost")
        ...     .database("shop")
        ...     .table_list("public.orders")
        ...     .username("flink")
        ...     .password("secret")
        ...     .slot_name("orders")
        ...     .build()
        ... )
        >>> source.is_bounded
        False
    """

    timestamped = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.name = f"PostgresSource-{', '.join(settings.tables)}"

    @staticmethod
    def builder() -> PostgresSourceBuilder:
        """Begin a source."""
        return PostgresSourceBuilder()

    @property
    def is_bounded(self) -> bool:
        return self._settings.startup.mode == startup.SNAPSHOT

    def check(self) -> None:
        library()
        with self._settings.database.connect() as connection:
            prepare(connection, self._settings)

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return PostgresEnumerator(self._settings, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._settings.schema)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return 0


class PostgresSourceBuilder:
    """Builds a PostgresSource."""

    def __init__(self) -> None:
        database = Database("localhost", 5432, "", "")
        self._settings = Settings(database, (), "", "", True, RowDeserializationSchema())

    def _with(self, **changes: Any) -> PostgresSourceBuilder:
        self._settings = replace(self._settings, **changes)
        return self

    def _at(self, **changes: Any) -> PostgresSourceBuilder:
        return self._with(database=replace(self._settings.database, **changes))

    def hostname(self, hostname: str) -> PostgresSourceBuilder:
        """Say on which machine the database is; a directory for a Unix socket. Default: localhost."""
        return self._at(host=hostname)

    def port(self, port: int) -> PostgresSourceBuilder:
        """Say at which port. Default: 5432."""
        return self._at(port=port)

    def database(self, database: str) -> PostgresSourceBuilder:
        """Name the database."""
        return self._at(name=database)

    def username(self, username: str) -> PostgresSourceBuilder:
        """Say who asks: a user with the attribute REPLICATION who may read the tables."""
        return self._at(user=username)

    def password(self, password: str) -> PostgresSourceBuilder:
        """Give the password."""
        return self._at(password=password)

    def connection_options(self, **options: str) -> PostgresSourceBuilder:
        """Set other words of libpq's connection, such as sslmode."""
        return self._at(options=options)

    def connect_timeout(self, seconds: int) -> PostgresSourceBuilder:
        """Say how long a connection may take. Default: 10 s."""
        return self._at(timeout=seconds)

    def table_list(self, *tables: str) -> PostgresSourceBuilder:
        """Name tables with their schema, in full or by a regular expression that tables made later may match, too."""
        return self._with(tables=tables)

    def slot_name(self, slot_name: str) -> PostgresSourceBuilder:
        """Name the replication slot, which is made if it is not there; one for each source."""
        return self._with(slot=slot_name)

    def publication(self, name: str, create: bool = True) -> PostgresSourceBuilder:
        """Name the publication; `create` makes it, or adds tables to it, as needed. Default: `dbz_publication`."""
        return self._with(publication=name, creates_publication=create)

    def deserializer(self, schema: DebeziumDeserializationSchema) -> PostgresSourceBuilder:
        """Say what becomes of changes. Default: RowDeserializationSchema()."""
        return self._with(schema=schema)

    def startup_options(self, options: StartupOptions) -> PostgresSourceBuilder:
        """Say where to begin. Default: StartupOptions.initial()."""
        return self._with(startup=options)

    def split_size(self, rows: int) -> PostgresSourceBuilder:
        """Say how many rows a chunk of a table has at most. Default: 8096."""
        return self._with(chunk_rows=rows)

    def snapshot_parallelism(self, connections: int) -> PostgresSourceBuilder:
        """Say how many chunks are read at once. Default: 2."""
        return self._with(threads=connections)

    def heartbeat_interval(self, seconds: float) -> PostgresSourceBuilder:
        """Say how often a checkpoint learns how far the log is while nothing happens in the tables. Default: 30 s."""
        return self._with(heartbeat_seconds=seconds)

    def discovery_interval(self, seconds: float) -> PostgresSourceBuilder:
        """Say how often to look for new tables. Default: 30 s."""
        return self._with(discovery_seconds=seconds)

    def build(self) -> PostgresSource:
        """Return the source; refuses what cannot be read."""
        settings = self._settings
        for what, value in (
            ("database", settings.database.name),
            ("username", settings.database.user),
            ("slot_name", settings.slot),
        ):
            if not value:
                raise InvalidProgramError(f"PostgresSource: say {what}(...).")
        if not settings.tables:
            raise InvalidProgramError("PostgresSource: say what to read with table_list('public.orders', ...).")
        if settings.chunk_rows < 1 or settings.threads < 1:
            raise InvalidProgramError("PostgresSource: split_size and snapshot_parallelism are at least 1.")
        if not all(c.islower() or c.isdigit() or c == "_" for c in settings.slot):
            raise InvalidProgramError(
                f"PostgresSource: slot_name has lower case letters, digits and underscores only, not {settings.slot!r}."
            )
        if not settings.publication:
            settings = replace(settings, publication="dbz_publication")
        return PostgresSource(settings)
