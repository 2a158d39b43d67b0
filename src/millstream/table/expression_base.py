"""What every expression of the Table API can do: operators, and how methods make trees of SQL's syntax."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from millstream.sql.language import syntax
from millstream.table.trees import literal

T = TypeVar("T")

_Self = TypeVar("_Self", bound="ExpressionBase[Any]")


class ExpressionBase(Generic[T]):
    """A tree, the names that were given to it, and how rows are ordered by it."""

    def __init__(self, tree: syntax.Expression, names: tuple[str, ...] = (), descending: bool | None = None) -> None:
        self._tree = tree
        self._names = names
        self._descending = descending

    def _as(self: _Self, tree: syntax.Expression) -> _Self:
        return type(self)(tree)

    def _call(self: _Self, function: str, *arguments: Any) -> _Self:
        """Return a function of this and of more, leaving out what was not given at the end."""
        given = [self, *arguments]
        while given[-1] is None:
            given.pop()
        return self._as(syntax.Call(function, tuple(map(tree_of, given))))

    def _swapped(self: _Self, function: str, other: Any) -> _Self:
        return self._as(syntax.Call(function, (tree_of(other), self._tree)))

    def __str__(self) -> str:
        from millstream.table.summary import summary

        return summary(self._tree, self._names)

    def __repr__(self) -> str:
        return f"<Expression {self}>"

    __hash__ = object.__hash__

    def __abs__(self: _Self) -> _Self:
        return self._call("ABS")

    def __eq__(self: _Self, other: Any) -> _Self:  # type: ignore[override]
        return self._call("=", _given(other))

    def __ne__(self: _Self, other: Any) -> _Self:  # type: ignore[override]
        return self._call("<>", _given(other))

    def __lt__(self: _Self, other: Any) -> _Self:
        return self._call("<", _given(other))

    def __gt__(self: _Self, other: Any) -> _Self:
        return self._call(">", _given(other))

    def __le__(self: _Self, other: Any) -> _Self:
        return self._call("<=", _given(other))

    def __ge__(self: _Self, other: Any) -> _Self:
        return self._call(">=", _given(other))

    def __and__(self: _Self, other: Any) -> _Self:
        return self._call("AND", _given(other))

    def __or__(self: _Self, other: Any) -> _Self:
        return self._call("OR", _given(other))

    def __invert__(self: _Self) -> _Self:
        return self._call("IS NOT TRUE")

    def __rand__(self: _Self, other: Any) -> _Self:
        return self._call("AND", _given(other))

    def __ror__(self: _Self, other: Any) -> _Self:
        return self._call("OR", _given(other))

    def __add__(self: _Self, other: Any) -> _Self:
        return self._call("+", _given(other))

    def __sub__(self: _Self, other: Any) -> _Self:
        return self._call("-", _given(other))

    def __mul__(self: _Self, other: Any) -> _Self:
        return self._call("*", _given(other))

    def __truediv__(self: _Self, other: Any) -> _Self:
        return self._call("/", _given(other))

    def __mod__(self: _Self, other: Any) -> _Self:
        return self._call("%", _given(other))

    def __pow__(self: _Self, other: Any) -> _Self:
        return self._call("POWER", _given(other))

    def __neg__(self: _Self) -> _Self:
        return self._call("UNARY -")

    def __radd__(self: _Self, other: Any) -> _Self:
        return self._swapped("+", other)

    def __rsub__(self: _Self, other: Any) -> _Self:
        return self._swapped("-", other)

    def __rmul__(self: _Self, other: Any) -> _Self:
        return self._call("*", _given(other))

    def __rtruediv__(self: _Self, other: Any) -> _Self:
        return self._swapped("/", other)

    def __rmod__(self: _Self, other: Any) -> _Self:
        return self._swapped("%", other)

    def __rpow__(self: _Self, other: Any) -> _Self:
        return self._swapped("POWER", other)


def tree_of(value: Any) -> syntax.Expression:
    """Return the tree of an expression, or of a Python value."""
    if isinstance(value, ExpressionBase):
        return value._tree
    return value if isinstance(value, syntax.Expression) else literal(value)


def _given(other: Any) -> syntax.Expression:
    """Return a tree, of None too: `col("a") == None` is a comparison with NULL."""
    return tree_of(other)
