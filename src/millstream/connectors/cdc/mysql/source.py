"""MySqlSource: rows of MariaDB or MySQL tables and every change to them."""

from __future__ import annotations

from typing import Any

from millstream.connectors.base import SplitEnumerator
from millstream.connectors.cdc.mysql.connection import Database
from millstream.connectors.cdc.mysql.enumerator import MySqlEnumerator, MySqlSettings, prepare
from millstream.connectors.cdc.settings import CaptureBuilder
from millstream.connectors.cdc.source import CaptureSource

__all__ = ["MySqlSource", "MySqlSourceBuilder"]


class MySqlSource(CaptureSource):
    """Reads MariaDB's tables, then their changes from the binlog; from MySQL only changes.

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

    _settings: MySqlSettings

    @staticmethod
    def builder() -> MySqlSourceBuilder:
        """Return a builder."""
        return MySqlSourceBuilder()

    def _prepare(self, connection: Any) -> None:
        prepare(connection, self._settings)

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return MySqlEnumerator(self._settings, parallelism, restored)


class MySqlSourceBuilder(CaptureBuilder[MySqlSettings]):
    """Builds a MySqlSource."""

    _source, _example = "MySqlSource", "shop.orders"

    def __init__(self) -> None:
        super().__init__(MySqlSettings(database=Database("localhost", 3306, "")))

    def server_id(self, server_id: int) -> MySqlSourceBuilder:
        """Set the id under which the job reads the binlog; it must be unique. Default: a random number."""
        return self._with(server_id=server_id)

    def build(self) -> MySqlSource:
        """Return the source, or fail if the tables cannot be captured."""
        return MySqlSource(self._checked())
