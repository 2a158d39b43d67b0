"""PostgresSource: the tables of a PostgreSQL database as they are, and every change to them from then on."""

from __future__ import annotations

from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.connectors.base import SplitEnumerator
from millstream.connectors.cdc.postgres.connection import Database
from millstream.connectors.cdc.postgres.enumerator import PostgresEnumerator, PostgresSettings, prepare
from millstream.connectors.cdc.settings import CaptureBuilder
from millstream.connectors.cdc.source import CaptureSource

__all__ = ["PostgresSource", "PostgresSourceBuilder"]


class PostgresSource(CaptureSource):
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

    _settings: PostgresSettings

    @staticmethod
    def builder() -> PostgresSourceBuilder:
        """Begin a source."""
        return PostgresSourceBuilder()

    def _prepare(self, connection: Any) -> None:
        prepare(connection, self._settings)

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return PostgresEnumerator(self._settings, parallelism, restored)


class PostgresSourceBuilder(CaptureBuilder[PostgresSettings]):
    """Builds a PostgresSource."""

    _source, _example = "PostgresSource", "public.orders"

    def __init__(self) -> None:
        super().__init__(PostgresSettings(database=Database("localhost", 5432, "", "")))

    def database(self, database: str) -> PostgresSourceBuilder:
        """Name the database."""
        return self._at(name=database)

    def connection_options(self, **options: str) -> PostgresSourceBuilder:
        """Set other words of libpq's connection, such as sslmode."""
        return self._at(options=options)

    def slot_name(self, slot_name: str) -> PostgresSourceBuilder:
        """Name the replication slot, which is made if it is not there; one for each source."""
        return self._with(slot=slot_name)

    def publication(self, name: str, create: bool = True) -> PostgresSourceBuilder:
        """Name the publication; `create` makes it, or adds tables to it, as needed. Default: `dbz_publication`."""
        return self._with(publication=name, creates_publication=create)

    def build(self) -> PostgresSource:
        """Return the source; refuses what cannot be read."""
        settings = self._checked(database=self._settings.database.name, slot_name=self._settings.slot)
        if not all(c.islower() or c.isdigit() or c == "_" for c in settings.slot):
            raise InvalidProgramError(
                f"PostgresSource: slot_name has lower case letters, digits and underscores only, not {settings.slot!r}."
            )
        return PostgresSource(settings)
