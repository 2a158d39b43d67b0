"""An exactly-once sink for database tables."""

from millstream.connectors.jdbc.sql_sink import SqlSink

__all__ = ["SqlSink"]
