"""SqlDialect: the SQL dialect of statements."""

from __future__ import annotations

__all__ = ["SqlDialect"]


class SqlDialect:
    """Names the dialects of SQL; only Flink's own, DEFAULT, is supported."""

    DEFAULT = 0
    HIVE = 1
