"""JDBC's sink, under PyFlink's names."""

from millstream.connectors.jdbc.connection import JdbcConnectionOptions, JdbcExecutionOptions
from millstream.connectors.jdbc.sink import JdbcSink

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"]
