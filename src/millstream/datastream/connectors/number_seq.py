"""A source of numbers, under PyFlink's name."""

from millstream.connectors.datagen.source import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
