"""Descriptors of `connect()`, removed in Flink 2."""

from __future__ import annotations

from millstream.common.unsupported import missing_names

_GONE = "connect() and its descriptors are gone in Flink 2; declare tables with TableDescriptor or CREATE TABLE"

__getattr__ = missing_names(
    __name__,
    _GONE,
    "Descriptor Rowtime Schema OldCsv FileSystem Kafka Json Csv Avro Elasticsearch ConnectTableDescriptor "
    "StreamTableDescriptor BatchTableDescriptor CustomConnectorDescriptor CustomFormatDescriptor",
)
