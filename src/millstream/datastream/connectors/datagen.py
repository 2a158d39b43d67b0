"""A source of generated records."""

from millstream.connectors.datagen.source import DataGeneratorSource

__all__ = ["DataGeneratorSource"]
