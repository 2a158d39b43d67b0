"""A source of HTTP requests."""

from millstream.connectors.http_source import (
    HttpSource,
)

__all__ = ["HttpSource"]
