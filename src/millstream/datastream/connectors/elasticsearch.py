"""Elasticsearch and OpenSearch sinks, under PyFlink's names."""

from typing import TYPE_CHECKING

from millstream.common.unsupported import missing_names
from millstream.connectors.elasticsearch import (
    Elasticsearch7SinkBuilder,
    ElasticsearchEmitter,
    ElasticsearchSink,
    ElasticsearchSinkBuilderBase,
    FlushBackoffType,
)

__all__ = [
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]

# With __getattr__, type checkers would accept any name.
if not TYPE_CHECKING:
    __getattr__ = missing_names(
        __name__,
        "there is no Elasticsearch 6 server to test it with; use Elasticsearch7SinkBuilder for 7 and later",
        "Elasticsearch6SinkBuilder",
    )
