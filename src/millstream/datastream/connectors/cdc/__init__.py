"""Change data capture: the tables of a database, and every change to them."""

from millstream.datastream.connectors.cdc.changes import (
    Change,
    DebeziumDeserializationSchema,
    JsonDebeziumDeserializationSchema,
    RowDeserializationSchema,
)
from millstream.datastream.connectors.cdc.mysql import MySqlSource, MySqlSourceBuilder
from millstream.datastream.connectors.cdc.postgres import PostgresSource, PostgresSourceBuilder
from millstream.datastream.connectors.cdc.startup import StartupOptions

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
