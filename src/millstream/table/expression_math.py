"""What expressions can do with numbers, and how they are compared."""

from __future__ import annotations

from typing import Any

from millstream.sql.language import syntax
from millstream.table.expression_base import ExpressionBase, T, _Self, tree_of


class MathExpression(ExpressionBase[T]):
    """Numbers, conditions and what compares."""

    @property
    def exp(self: _Self) -> _Self:
        """The power of e."""
        return self._call("EXP")

    @property
    def log10(self: _Self) -> _Self:
        """The logarithm to the base 10."""
        return self._call("LOG10")

    @property
    def log2(self: _Self) -> _Self:
        """The logarithm to the base 2."""
        return self._call("LOG2")

    @property
    def ln(self: _Self) -> _Self:
        """The natural logarithm."""
        return self._call("LN")

    def log(self: _Self, base: Any = None) -> _Self:
        """Return the logarithm, the natural one or to a base."""
        return self._call("LOG") if base is None else self._swapped("LOG", base)

    @property
    def cosh(self: _Self) -> _Self:
        """The hyperbolic cosine."""
        return self._call("COSH")

    @property
    def sinh(self: _Self) -> _Self:
        """The hyperbolic sine."""
        return self._call("SINH")

    @property
    def sin(self: _Self) -> _Self:
        """The sine."""
        return self._call("SIN")

    @property
    def cos(self: _Self) -> _Self:
        """The cosine."""
        return self._call("COS")

    @property
    def tan(self: _Self) -> _Self:
        """The tangent."""
        return self._call("TAN")

    @property
    def cot(self: _Self) -> _Self:
        """The cotangent."""
        return self._call("COT")

    @property
    def asin(self: _Self) -> _Self:
        """The arc sine."""
        return self._call("ASIN")

    @property
    def acos(self: _Self) -> _Self:
        """The arc cosine."""
        return self._call("ACOS")

    @property
    def atan(self: _Self) -> _Self:
        """The arc tangent."""
        return self._call("ATAN")

    @property
    def tanh(self: _Self) -> _Self:
        """The hyperbolic tangent."""
        return self._call("TANH")

    @property
    def degrees(self: _Self) -> _Self:
        """An angle in degrees, of one in radians."""
        return self._call("DEGREES")

    @property
    def radians(self: _Self) -> _Self:
        """An angle in radians, of one in degrees."""
        return self._call("RADIANS")

    @property
    def sqrt(self: _Self) -> _Self:
        """The square root."""
        return self._call("SQRT")

    @property
    def abs(self: _Self) -> _Self:
        """The value without its sign."""
        return self._call("ABS")

    @property
    def sign(self: _Self) -> _Self:
        """-1, 0 or 1."""
        return self._call("SIGN")

    def round(self: _Self, places: Any) -> _Self:
        """Round to so many digits behind the point."""
        return self._call("ROUND", places)

    def truncate(self: _Self, n: Any = 0) -> _Self:
        """Cut to so many digits behind the point."""
        return self._call("TRUNCATE", n)

    @property
    def bin(self: _Self) -> _Self:
        """The number in binary, as text."""
        return self._call("BIN")

    @property
    def hex(self: _Self) -> _Self:
        """The number or text in hexadecimal."""
        return self._call("HEX")

    @property
    def unhex(self: _Self) -> _Self:
        """The bytes that hexadecimal text stands for."""
        return self._call("UNHEX")

    # --- conditions

    def between(self: _Self, lower_bound: Any, upper_bound: Any) -> _Self:
        """Tell whether it is at least one value and at most another."""
        return self._call("BETWEEN", lower_bound, upper_bound)

    def not_between(self: _Self, lower_bound: Any, upper_bound: Any) -> _Self:
        """Tell whether it is less than one value or more than another."""
        return self.between(lower_bound, upper_bound)._call("NOT")

    def then(self: _Self, if_true: Any, if_false: Any) -> _Self:
        """Return one value where this is true, else another."""
        return self._as(syntax.Case(None, ((self._tree, tree_of(if_true)),), tree_of(if_false)))

    def if_null(self: _Self, null_replacement: Any) -> _Self:
        """Return it, or another value where it is null."""
        return self._call("IFNULL", null_replacement)

    @property
    def is_null(self: _Self) -> _Self:
        """Whether it is null."""
        return self._call("IS NULL")

    @property
    def is_not_null(self: _Self) -> _Self:
        """Whether it is not null."""
        return self._call("IS NOT NULL")

    @property
    def is_true(self: _Self) -> _Self:
        """Whether it is true."""
        return self._call("IS TRUE")

    @property
    def is_false(self: _Self) -> _Self:
        """Whether it is false."""
        return self._call("IS FALSE")

    @property
    def is_not_true(self: _Self) -> _Self:
        """Whether it is false or null."""
        return self._call("IS NOT TRUE")

    @property
    def is_not_false(self: _Self) -> _Self:
        """Whether it is true or null."""
        return self._call("IS NOT FALSE")

    def in_(self: _Self, first_element_or_table: Any, *remaining_elements: Any) -> _Self:
        """Tell whether it is one of some values, or of the rows of a table with one column."""
        from millstream.table.table import Table

        if isinstance(first_element_or_table, Table):
            named = syntax.TableQuery(syntax.TableName((str(first_element_or_table),)))
            return self._as(syntax.In(self._tree, named))
        among = (first_element_or_table, *remaining_elements)
        return self._as(syntax.In(self._tree, tuple(map(tree_of, among))))
