"""What every expression of the Table API can do: operators, and how methods make trees of SQL's syntax."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from millstream.sql.language import syntax
from millstream.table.api_syntax import literal

T = TypeVar("T")


class ExpressionBase(Generic[T]):
    """A tree, the names that were given to it, and how rows are ordered by it."""

    def __init__(self, tree: syntax.Expression, names: tuple[str, ...] = (), descending: bool | None = None) -> None:
        self._tree = tree
        self._names = names
        self._descending = descending

    def _as(self, tree: syntax.Expression) -> Self:
        return type(self)(tree)

    def _call(self, function: str, *arguments: Any) -> Self:
        """Return a function of this and of more, leaving out what was not given at the end."""
        given = [self, *arguments]
        while given[-1] is None:
            given.pop()
        return self._as(syntax.Call(function, tuple(map(tree_of, given))))

    def _swapped(self, function: str, other: Any) -> Self:
        return self._as(syntax.Call(function, (tree_of(other), self._tree)))

    def __str__(self) -> str:
        from millstream.table.summary import summary

        return summary(self._tree, self._names)

    def __repr__(self) -> str:
        return f"<Expression {self}>"

    __hash__ = object.__hash__

    def __abs__(self) -> Self:
        return self._call("ABS")

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self._call("=", _given(other))

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self._call("<>", _given(other))

    def __lt__(self, other: Any) -> Self:
        return self._call("<", _given(other))

    def __gt__(self, other: Any) -> Self:
        return self._call(">", _given(other))

    def __le__(self, other: Any) -> Self:
        return self._call("<=", _given(other))

    def __ge__(self, other: Any) -> Self:
        return self._call(">=", _given(other))

    def __and__(self, other: Any) -> Self:
        return self._call("AND", _given(other))

    def __or__(self, other: Any) -> Self:
        return self._call("OR", _given(other))

    def __invert__(self) -> Self:
        return self._call("IS NOT TRUE")

    def __rand__(self, other: Any) -> Self:
        return self._call("AND", _given(other))

    def __ror__(self, other: Any) -> Self:
        return self._call("OR", _given(other))

    def __add__(self, other: Any) -> Self:
        return self._call("+", _given(other))

    def __sub__(self, other: Any) -> Self:
        return self._call("-", _given(other))

    def __mul__(self, other: Any) -> Self:
        return self._call("*", _given(other))

    def __truediv__(self, other: Any) -> Self:
        return self._call("/", _given(other))

    def __mod__(self, other: Any) -> Self:
        return self._call("%", _given(other))

    def __pow__(self, other: Any) -> Self:
        return self._call("POWER", _given(other))

    def __neg__(self) -> Self:
        return self._call("UNARY -")

    def __radd__(self, other: Any) -> Self:
        return self._swapped("+", other)

    def __rsub__(self, other: Any) -> Self:
        return self._swapped("-", other)

    def __rmul__(self, other: Any) -> Self:
        return self._call("*", _given(other))

    def __rtruediv__(self, other: Any) -> Self:
        return self._swapped("/", other)

    def __rmod__(self, other: Any) -> Self:
        return self._swapped("%", other)

    def __rpow__(self, other: Any) -> Self:
        return self._swapped("POWER", other)


def tree_of(value: Any) -> syntax.Expression:
    """Return the tree of an expression, or of a Python value."""
    if isinstance(value, ExpressionBase):
        return value._tree
    return value if isinstance(value, syntax.Expression) else literal(value)


def _given(other: Any) -> syntax.Expression:
    """Return a tree, of None too: `col("a") == None` is a comparison with NULL."""
    return tree_of(other)
