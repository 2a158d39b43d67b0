"""Change data capture: the rows of database tables and every change to them."""

from millstream.connectors.cdc.changes import (
    Change,
    DebeziumDeserializationSchema,
    JsonDebeziumDeserializationSchema,
    RowDeserializationSchema,
)
from millstream.connectors.cdc.mysql.source import MySqlSource, MySqlSourceBuilder
from millstream.connectors.cdc.postgres.source import PostgresSource, PostgresSourceBuilder
from millstream.connectors.cdc.source import StartupOptions

__all__ = [
    "Change",
    "DebeziumDeserializationSchema",
    "JsonDebeziumDeserializationSchema",
    "MySqlSource",
    "MySqlSourceBuilder",
    "PostgresSource",
    "PostgresSourceBuilder",
    "RowDeserializationSchema",
    "StartupOptions",
]
