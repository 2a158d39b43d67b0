"""A source of numbers, under PyFlink's name."""

from millstream.connectors.datagen.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
