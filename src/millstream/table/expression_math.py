"""What expressions can do with numbers, and how they are compared."""

from __future__ import annotations

from typing import Any, Self

from millstream.sql.language import syntax
from millstream.table.expression_base import ExpressionBase, T, tree_of


class MathExpression(ExpressionBase[T]):
    """Numbers, conditions and what compares."""

    @property
    def exp(self) -> Self:
        """The power of e."""
        return self._call("EXP")

    @property
    def log10(self) -> Self:
        """The logarithm to the base 10."""
        return self._call("LOG10")

    @property
    def log2(self) -> Self:
        """The logarithm to the base 2."""
        return self._call("LOG2")

    @property
    def ln(self) -> Self:
        """The natural logarithm."""
        return self._call("LN")

    def log(self, base: Any = None) -> Self:
        """Return the logarithm, the natural one or to a base."""
        return self._call("LOG") if base is None else self._swapped("LOG", base)

    @property
    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return self._call("COSH")

    @property
    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return self._call("SINH")

    @property
    def sin(self) -> Self:
        """The sine."""
        return self._call("SIN")

    @property
    def cos(self) -> Self:
        """The cosine."""
        return self._call("COS")

    @property
    def tan(self) -> Self:
        """The tangent."""
        return self._call("TAN")

    @property
    def cot(self) -> Self:
        """The cotangent."""
        return self._call("COT")

    @property
    def asin(self) -> Self:
        """The arc sine."""
        return self._call("ASIN")

    @property
    def acos(self) -> Self:
        """The arc cosine."""
        return self._call("ACOS")

    @property
    def atan(self) -> Self:
        """The arc tangent."""
        return self._call("ATAN")

    @property
    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self._call("TANH")

    @property
    def degrees(self) -> Self:
        """An angle in degrees, of one in radians."""
        return self._call("DEGREES")

    @property
    def radians(self) -> Self:
        """An angle in radians, of one in degrees."""
        return self._call("RADIANS")

    @property
    def sqrt(self) -> Self:
        """The square root."""
        return self._call("SQRT")

    @property
    def abs(self) -> Self:
        """The value without its sign."""
        return self._call("ABS")

    @property
    def sign(self) -> Self:
        """-1, 0 or 1."""
        return self._call("SIGN")

    def round(self, places: Any) -> Self:
        """Round to so many digits behind the point."""
        return self._call("ROUND", places)

    def truncate(self, n: Any = 0) -> Self:
        """Cut to so many digits behind the point."""
        return self._call("TRUNCATE", n)

    @property
    def bin(self) -> Self:
        """The number in binary, as text."""
        return self._call("BIN")

    @property
    def hex(self) -> Self:
        """The number or text in hexadecimal."""
        return self._call("HEX")

    @property
    def unhex(self) -> Self:
        """The bytes that hexadecimal text stands for."""
        return self._call("UNHEX")

    # --- conditions

    def between(self, lower_bound: Any, upper_bound: Any) -> Self:
        """Tell whether it is at least one value and at most another."""
        return self._call("BETWEEN", lower_bound, upper_bound)

    def not_between(self, lower_bound: Any, upper_bound: Any) -> Self:
        """Tell whether it is less than one value or more than another."""
        return self.between(lower_bound, upper_bound)._call("NOT")

    def then(self, if_true: Any, if_false: Any) -> Self:
        """Return one value where this is true, else another."""
        return self._as(syntax.Case(None, ((self._tree, tree_of(if_true)),), tree_of(if_false)))

    def if_null(self, null_replacement: Any) -> Self:
        """Return it, or another value where it is null."""
        return self._call("IFNULL", null_replacement)

    @property
    def is_null(self) -> Self:
        """Whether it is null."""
        return self._call("IS NULL")

    @property
    def is_not_null(self) -> Self:
        """Whether it is not null."""
        return self._call("IS NOT NULL")

    @property
    def is_true(self) -> Self:
        """Whether it is true."""
        return self._call("IS TRUE")

    @property
    def is_false(self) -> Self:
        """Whether it is false."""
        return self._call("IS FALSE")

    @property
    def is_not_true(self) -> Self:
        """Whether it is false or null."""
        return self._call("IS NOT TRUE")

    @property
    def is_not_false(self) -> Self:
        """Whether it is true or null."""
        return self._call("IS NOT FALSE")

    def in_(self, first_element_or_table: Any, *remaining_elements: Any) -> Self:
        """Tell whether it is one of some values, or of the rows of a table with one column."""
        from millstream.table.table import Table

        if isinstance(first_element_or_table, Table):
            named = syntax.TableQuery(syntax.TableName((str(first_element_or_table),)))
            return self._as(syntax.In(self._tree, named))
        among = (first_element_or_table, *remaining_elements)
        return self._as(syntax.In(self._tree, tuple(map(tree_of, among))))
