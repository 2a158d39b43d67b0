"""A source of rows from a database."""

from millstream.connectors.jdbc.source import JdbcSource, JdbcSourceBuilder

__all__ = ["JdbcSource", "JdbcSourceBuilder"]
