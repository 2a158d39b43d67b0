"""Change data capture: the rows of database tables and every change to them."""

from millstream.connectors.cdc import (
    Change,
    DebeziumDeserializationSchema,
    JsonDebeziumDeserializationSchema,
    MySqlSource,
    MySqlSourceBuilder,
    PostgresSource,
    PostgresSourceBuilder,
    RowDeserializationSchema,
    StartupOptions,
)

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
