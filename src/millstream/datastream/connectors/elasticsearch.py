"""Elasticsearch: only the names so far."""

from typing import TYPE_CHECKING

from millstream.common.missing import missing_names

_NAMES = """
    Elasticsearch6SinkBuilder Elasticsearch7SinkBuilder ElasticsearchEmitter ElasticsearchSink
    ElasticsearchSinkBuilderBase FlushBackoffType
"""

# Type checkers would take any name for one of the module's.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, "the Elasticsearch connector is not built yet", _NAMES)
