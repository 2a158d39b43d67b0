"""Descriptors of `connect()`, removed in Flink 2."""

from __future__ import annotations

from millstream.common.unsupported import missing_names

_REMOVED = "Flink 2 has removed connect() and its descriptors; declare tables with TableDescriptor or CREATE TABLE"

__getattr__ = missing_names(
    __name__,
    _REMOVED,
    "Descriptor Rowtime Schema OldCsv FileSystem Kafka Json Csv Avro Elasticsearch ConnectTableDescriptor "
    "StreamTableDescriptor BatchTableDescriptor CustomConnectorDescriptor CustomFormatDescriptor",
)
