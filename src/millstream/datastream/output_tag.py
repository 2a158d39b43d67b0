"""OutputTag: the name of a side output."""

from millstream.operators.output_tag import OutputTag

__all__ = ["OutputTag"]
