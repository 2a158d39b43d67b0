"""SqlDialect: the SQL dialect of statements."""

from __future__ import annotations

__all__ = ["SqlDialect"]


class SqlDialect:
    """Flink's own SQL, or Hive's, which is not supported."""

    DEFAULT = 0
    HIVE = 1
