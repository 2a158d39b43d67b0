"""What a source of changes reads, and how; and what says so."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc.changes import DebeziumDeserializationSchema, RowDeserializationSchema

__all__ = ["CaptureBuilder", "CaptureSettings", "StartupOptions", "check_named", "is_wanted"]


INITIAL, LATEST, OFFSET, COMMITTED, SNAPSHOT = (
    "initial",
    "latest-offset",
    "specific-offset",
    "committed-offset",
    "snapshot",
)


@dataclass(frozen=True)
class StartupOptions:
    """Where to begin when there is no checkpoint to go on from.

    Example:
        >>> StartupOptions.specific_offset("0/1528C90").offset
        '0/1528C90'
    """

    mode: str
    offset: Any = None

    @staticmethod
    def initial() -> StartupOptions:
        """Read the tables as they are, then the log from exactly there."""
        return StartupOptions(INITIAL)

    @staticmethod
    def latest() -> StartupOptions:
        """Read only what is committed from now on."""
        return StartupOptions(LATEST)

    @staticmethod
    def snapshot() -> StartupOptions:
        """Read the tables as they are, and end."""
        return StartupOptions(SNAPSHOT)

    @staticmethod
    def committed_offset() -> StartupOptions:
        """Read the log from where its slot was confirmed: PostgreSQL only."""
        return StartupOptions(COMMITTED)

    @staticmethod
    def specific_offset(offset: str, position: int | None = None) -> StartupOptions:
        """Read the log from a place on.

        Args:
            offset: PostgreSQL's LSN as in `0/1528C90`; for MariaDB and MySQL the binlog's file, or the GTIDs of what is
                done, as in `0-1-270`.
            position: for MariaDB and MySQL, the place in that file.
        """
        if not offset:
            raise InvalidProgramError(
                "StartupOptions.specific_offset takes a place in the log, for example '0/1528C90'."
            )
        return StartupOptions(OFFSET, offset if position is None else (offset, position))

    @property
    def reads_tables(self) -> bool:
        """Whether tables are read as they are."""
        return self.mode in (INITIAL, SNAPSHOT)


def is_wanted(table: str, patterns: Iterable[str]) -> bool:
    """Tell whether a table is one of those that a list names, in full or by a pattern."""
    return any(table == p or _matches(p, table) for p in patterns)


def _matches(pattern: str, table: str) -> bool:
    try:
        return re.fullmatch(pattern, table) is not None
    except re.error:
        # It is a name, then.
        return False


def _is_name(pattern: str) -> bool:
    """Tell whether a pattern can only be a name: without anything that patterns have, or no pattern at all."""
    try:
        re.compile(pattern)
    except re.error:
        return True
    return not re.search(r"[\\*+?\[\](){}|^]", pattern)


def check_named(patterns: Iterable[str], found: Collection[str], server: str, inside: str) -> None:
    """Refuse a list that names a table in full that is not there.

    Args:
        server: what is asked, for the sentence.
        inside: what a table is in, and an example.
    """
    for pattern in patterns:
        if not any(is_wanted(table, (pattern,)) for table in found) and _is_name(pattern):
            raise InvalidProgramError(
                f"{server} has no table {pattern!r}: name tables with their {inside}, and see that the user may see it."
            )


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
