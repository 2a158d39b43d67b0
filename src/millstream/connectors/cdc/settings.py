"""What a source of changes reads, and how; and what says so."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc.changes import DebeziumDeserializationSchema, RowDeserializationSchema
from millstream.connectors.cdc.startup import StartupOptions

__all__ = ["CaptureBuilder", "CaptureSettings"]


@dataclass(frozen=True, kw_only=True)
class CaptureSettings:
    """What a source reads, and how.

    Attributes:
        database: where, and who asks.
        chunk_rows: so many rows of a table are read at once, at most.
        threads: so many chunks are read at once.
    """

    database: Any
    tables: tuple[str, ...] = ()
    schema: DebeziumDeserializationSchema = field(default_factory=RowDeserializationSchema)
    startup: StartupOptions = field(default_factory=StartupOptions.initial)
    chunk_rows: int = 8096
    threads: int = 2
    heartbeat_seconds: float = 30.0
    discovery_seconds: float = 30.0


S = TypeVar("S", bound=CaptureSettings)


class CaptureBuilder(Generic[S]):
    """What the builders of all sources of changes have."""

    # The source's name, and a table as one names it there.
    _source: ClassVar[str]
    _example: ClassVar[str]

    def __init__(self, settings: S) -> None:
        self._settings = settings

    def _with(self, **changes: Any) -> Self:
        self._settings = replace(self._settings, **changes)
        return self

    def _at(self, **changes: Any) -> Self:
        return self._with(database=replace(self._settings.database, **changes))

    def hostname(self, hostname: str) -> Self:
        """Say on which machine the server is; of a Unix socket the path. Default: localhost."""
        return self._at(host=hostname)

    def port(self, port: int) -> Self:
        """Say at which port. Default: 5432 for PostgreSQL, 3306 for MariaDB and MySQL."""
        return self._at(port=port)

    def username(self, username: str) -> Self:
        """Say who asks: a user who may read the tables and the log."""
        return self._at(user=username)

    def password(self, password: str) -> Self:
        """Give the password."""
        return self._at(password=password)

    def connect_timeout(self, seconds: int) -> Self:
        """Say how long a connection may take. Default: 10 s."""
        return self._at(timeout=seconds)

    def table_list(self, *tables: str) -> Self:
        """Name tables with what they are in, in full or by a regular expression that later ones may match, too."""
        return self._with(tables=tables)

    def deserializer(self, schema: DebeziumDeserializationSchema) -> Self:
        """Say what becomes of changes. Default: RowDeserializationSchema()."""
        return self._with(schema=schema)

    def startup_options(self, options: StartupOptions) -> Self:
        """Say where to begin. Default: StartupOptions.initial()."""
        return self._with(startup=options)

    def split_size(self, rows: int) -> Self:
        """Say how many rows a chunk of a table has at most. Default: 8096."""
        return self._with(chunk_rows=rows)

    def snapshot_parallelism(self, connections: int) -> Self:
        """Say how many chunks are read at once. Default: 2."""
        return self._with(threads=connections)

    def heartbeat_interval(self, seconds: float) -> Self:
        """Say how often a checkpoint learns how far the log is while nothing happens in the tables. Default: 30 s."""
        return self._with(heartbeat_seconds=seconds)

    def discovery_interval(self, seconds: float) -> Self:
        """Say how often to look for new tables. Default: 30 s."""
        return self._with(discovery_seconds=seconds)

    def _checked(self, **needed: str) -> S:
        """Return the settings; refuses those that lack what is needed."""
        settings = self._settings
        for what, value in {**needed, "username": settings.database.user}.items():
            if not value:
                raise InvalidProgramError(f"{self._source}: say {what}(...).")
        if not settings.tables:
            raise InvalidProgramError(f"{self._source}: say what to read with table_list('{self._example}', ...).")
        if settings.chunk_rows < 1 or settings.threads < 1:
            raise InvalidProgramError(f"{self._source}: split_size and snapshot_parallelism are at least 1.")
        return settings
