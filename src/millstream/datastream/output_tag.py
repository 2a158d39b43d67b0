"""OutputTag: the name of a side output."""

from millstream.operators.functions.output_tag import OutputTag

__all__ = ["OutputTag"]
