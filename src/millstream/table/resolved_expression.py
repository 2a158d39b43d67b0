"""ResolvedExpression: an expression with a type."""

from __future__ import annotations

from millstream.sql.types import DataType
from millstream.table.expression import Expression
from millstream.table.sql_text import read_expression

__all__ = ["ResolvedExpression"]


class ResolvedExpression(Expression[object]):
    """Holds an expression whose names and type are resolved."""

    def __init__(self, text: str, data_type: DataType) -> None:
        super().__init__(read_expression(text))
        self._text = text
        self._type = data_type

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return isinstance(other, ResolvedExpression) and (self._text, self._type) == (other._text, other._type)

    def __hash__(self) -> int:
        return hash((self._text, self._type))

    def get_output_data_type(self) -> DataType:
        """Return its type."""
        return self._type

    def get_resolved_children(self) -> list[ResolvedExpression]:
        """Return the children: empty, as the expression is SQL text."""
        return []

    def as_serializable_string(self) -> str:
        """Return it as SQL."""
        return self._text

    def as_summary_string(self) -> str:
        """Return it as SQL."""
        return self._text
