"""MySqlSource: the tables of a MariaDB or MySQL server as they are, and every change to them from then on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.base import Share, Source, SourceReader, SplitEnumerator
from millstream.datastream.connectors.cdc import startup
from millstream.datastream.connectors.cdc.changes import DebeziumDeserializationSchema, RowDeserializationSchema
from millstream.datastream.connectors.cdc.mysql_enumerator import MySqlEnumerator, Settings, prepare
from millstream.datastream.connectors.cdc.mysql_session import Database, library
from millstream.datastream.connectors.cdc.startup import StartupOptions

__all__ = ["MySqlSource", "MySqlSourceBuilder"]


class _Reader(SourceReader):
    def __init__(self, schema: DebeziumDeserializationSchema) -> None:
        self._deserialize = schema.deserialize

    def read(self, share: Share) -> Iterator[Collection[Any]]:
        deserialize = self._deserialize
        kind, changes = share
        # Rows of tables have no time of their own: they must not make what the log brings late.
        of_table = kind == "tables"
        yield [(record, 0 if of_table else change.ms) for change in changes for record in deserialize(change)]

    def split_of(self, share: Share) -> str:
        return str(share[0])

    def ends_split(self, share: Share) -> bool:
        return bool(share[0] == "tables")


class MySqlSource(Source[Any]):
    """Reads tables of MariaDB and then their changes, by the binlog; of MySQL the changes.

    Example:
        >>> source = (
        ...     MySqlSource.builder()
        ...     .hostname("localhost")
        ...     .table_list("shop.orders")
        ...     .username("flink")
        ...     .password("secret")
        ...     .build()
        ... )
        >>> source.is_bounded
        False
    """

    timestamped = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.name = f"MySqlSource-{', '.join(settings.tables)}"

    @staticmethod
    def builder() -> MySqlSourceBuilder:
        """Begin a source."""
        return MySqlSourceBuilder()

    @property
    def is_bounded(self) -> bool:
        return self._settings.startup.mode == startup.SNAPSHOT

    def check(self) -> None:
        library()
        with self._settings.database.connect() as connection:
            prepare(connection, self._settings)

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return MySqlEnumerator(self._settings, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._settings.schema)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return 0


class MySqlSourceBuilder:
    """Builds a MySqlSource."""

    def __init__(self) -> None:
        self._settings = Settings(Database("localhost", 3306, ""), (), RowDeserializationSchema())

    def _with(self, **changes: Any) -> MySqlSourceBuilder:
        self._settings = replace(self._settings, **changes)
        return self

    def _at(self, **changes: Any) -> MySqlSourceBuilder:
        return self._with(database=replace(self._settings.database, **changes))

    def hostname(self, hostname: str) -> MySqlSourceBuilder:
        """Say on which machine the server is; the path of a Unix socket. Default: localhost."""
        return self._at(host=hostname)

    def port(self, port: int) -> MySqlSourceBuilder:
        """Say at which port. Default: 3306."""
        return self._at(port=port)

    def username(self, username: str) -> MySqlSourceBuilder:
        """Say who asks: a user who may SELECT, REPLICATION SLAVE and REPLICATION CLIENT (BINLOG MONITOR)."""
        return self._at(user=username)

    def password(self, password: str) -> MySqlSourceBuilder:
        """Give the password."""
        return self._at(password=password)

    def connect_timeout(self, seconds: int) -> MySqlSourceBuilder:
        """Say how long a connection may take. Default: 10 s."""
        return self._at(timeout=seconds)

    def table_list(self, *tables: str) -> MySqlSourceBuilder:
        """Name tables with their database, in full or by a regular expression that tables made later may match, too."""
        return self._with(tables=tables)

    def server_id(self, server_id: int) -> MySqlSourceBuilder:
        """Give the number under which the job reads the binlog; no other reader may have it. Default: by chance."""
        return self._with(server_id=server_id)

    def deserializer(self, schema: DebeziumDeserializationSchema) -> MySqlSourceBuilder:
        """Say what becomes of changes. Default: RowDeserializationSchema()."""
        return self._with(schema=schema)

    def startup_options(self, options: StartupOptions) -> MySqlSourceBuilder:
        """Say where to begin. Default: StartupOptions.initial()."""
        return self._with(startup=options)

    def split_size(self, rows: int) -> MySqlSourceBuilder:
        """Say how many rows a chunk of a table has at most. Default: 8096."""
        return self._with(chunk_rows=rows)

    def snapshot_parallelism(self, connections: int) -> MySqlSourceBuilder:
        """Say how many chunks are read at once. Default: 2."""
        return self._with(threads=connections)

    def heartbeat_interval(self, seconds: float) -> MySqlSourceBuilder:
        """Say how often a checkpoint learns how far the log is while nothing happens in the tables. Default: 30 s."""
        return self._with(heartbeat_seconds=seconds)

    def discovery_interval(self, seconds: float) -> MySqlSourceBuilder:
        """Say how often to look for new tables. Default: 30 s."""
        return self._with(discovery_seconds=seconds)

    def build(self) -> MySqlSource:
        """Return the source; refuses what cannot be read."""
        settings = self._settings
        if not settings.database.user:
            raise InvalidProgramError("MySqlSource: say username(...).")
        if not settings.tables:
            raise InvalidProgramError("MySqlSource: say what to read with table_list('shop.orders', ...).")
        if settings.chunk_rows < 1 or settings.threads < 1:
            raise InvalidProgramError("MySqlSource: split_size and snapshot_parallelism are at least 1.")
        return MySqlSource(settings)
