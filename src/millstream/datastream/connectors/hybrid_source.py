"""HybridSource, under PyFlink's names."""

from millstream.connectors.hybrid_source import (
    HybridSource,
    HybridSourceBuilder,
)

__all__ = ["HybridSource", "HybridSourceBuilder"]
