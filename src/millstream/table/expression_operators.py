"""Expression operators: arithmetic, comparisons and logic, as trees of SQL syntax."""

from __future__ import annotations

from typing import Generic, Self

from millstream.common.aliases import T
from millstream.sql.language import syntax
from millstream.table.api_syntax import Operand, Subquery, literal
from millstream.table.sql_text import summary


class ExpressionBase(Generic[T]):
    """A syntax tree with aliases and a sort direction."""

    def __init__(self, tree: syntax.Expression, names: tuple[str, ...] = (), descending: bool | None = None) -> None:
        self._tree = tree
        self._names = names
        self._descending = descending

    def _as(self, tree: syntax.Expression) -> Self:
        return type(self)(tree)

    def _call(self, function: str, *arguments: Operand) -> Self:
        """Return a function call with this as first argument, without trailing Nones."""
        operands = [self, *arguments]
        while operands[-1] is None:
            operands.pop()
        return self._as(syntax.Call(function, tuple(map(tree_of, operands))))

    def _swapped(self, function: str, other: Operand) -> Self:
        return self._as(syntax.Call(function, (tree_of(other), self._tree)))

    def __str__(self) -> str:
        return summary(self._tree, self._names)

    def __repr__(self) -> str:
        return f"<Expression {self}>"

    __hash__ = object.__hash__

    def __abs__(self) -> Self:
        return self._call("ABS")

    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]
        return self._call("=", _operand(other))

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]
        return self._call("<>", _operand(other))

    def __lt__(self, other: Operand) -> Self:
        return self._call("<", _operand(other))

    def __gt__(self, other: Operand) -> Self:
        return self._call(">", _operand(other))

    def __le__(self, other: Operand) -> Self:
        return self._call("<=", _operand(other))

    def __ge__(self, other: Operand) -> Self:
        return self._call(">=", _operand(other))

    def __and__(self, other: Operand) -> Self:
        return self._call("AND", _operand(other))

    def __or__(self, other: Operand) -> Self:
        return self._call("OR", _operand(other))

    def __invert__(self) -> Self:
        return self._call("IS NOT TRUE")

    def __rand__(self, other: Operand) -> Self:
        return self._call("AND", _operand(other))

    def __ror__(self, other: Operand) -> Self:
        return self._call("OR", _operand(other))

    def __add__(self, other: Operand) -> Self:
        return self._call("+", _operand(other))

    def __sub__(self, other: Operand) -> Self:
        return self._call("-", _operand(other))

    def __mul__(self, other: Operand) -> Self:
        return self._call("*", _operand(other))

    def __truediv__(self, other: Operand) -> Self:
        return self._call("/", _operand(other))

    def __mod__(self, other: Operand) -> Self:
        return self._call("%", _operand(other))

    def __pow__(self, other: Operand) -> Self:
        return self._call("POWER", _operand(other))

    def __neg__(self) -> Self:
        return self._call("UNARY -")

    def __radd__(self, other: Operand) -> Self:
        return self._swapped("+", other)

    def __rsub__(self, other: Operand) -> Self:
        return self._swapped("-", other)

    def __rmul__(self, other: Operand) -> Self:
        return self._call("*", _operand(other))

    def __rtruediv__(self, other: Operand) -> Self:
        return self._swapped("/", other)

    def __rmod__(self, other: Operand) -> Self:
        return self._swapped("%", other)

    def __rpow__(self, other: Operand) -> Self:
        return self._swapped("POWER", other)


def tree_of(value: Operand) -> syntax.Expression:
    """Return the tree of an expression, or of a Python value."""
    if isinstance(value, ExpressionBase):
        return value._tree
    return value if isinstance(value, syntax.Expression) else literal(value)


def aliases_of(value: object) -> tuple[str, ...]:
    """Return the names that `alias()` has given to an expression; none for other values."""
    return value._names if isinstance(value, ExpressionBase) else ()


def is_descending(value: object) -> bool:
    """Return whether an expression has the order `desc`."""
    return isinstance(value, ExpressionBase) and bool(value._descending)


def _operand(other: Operand) -> syntax.Expression:
    """Return a tree, of None too: `col("a") == None` is a comparison with NULL."""
    return tree_of(other)


class MathExpression(ExpressionBase[T]):
    """Numeric and logical functions."""

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

    def log(self, base: Operand = None) -> Self:
        """Return the logarithm, the natural one or to a base.

        Example:
            >>> list(t_env.from_elements([lit(8).log(2)]).execute().collect())
            [<Row(3.0)>]
        """
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
        """Convert radians to degrees.

        Example:
            >>> list(t_env.from_elements([lit(3.141592653589793).degrees]).execute().collect())
            [<Row(180.0)>]
        """
        return self._call("DEGREES")

    @property
    def radians(self) -> Self:
        """Convert degrees to radians."""
        return self._call("RADIANS")

    @property
    def sqrt(self) -> Self:
        """The square root."""
        return self._call("SQRT")

    @property
    def abs(self) -> Self:
        """The absolute value."""
        return self._call("ABS")

    @property
    def sign(self) -> Self:
        """The sign: -1, 0 or 1.

        Example:
            >>> list(t_env.from_elements([lit(-7).sign]).execute().collect())
            [<Row(-1)>]
        """
        return self._call("SIGN")

    def round(self, places: Operand) -> Self:
        """Round to a number of decimal places; a negative number rounds before the decimal point.

        Example:
            >>> list(t_env.from_elements([lit(1234.567).round(1), lit(1234.567).round(-2)]).execute().collect())
            [<Row(1234.6)>, <Row(1200.0)>]
        """
        return self._call("ROUND", places)

    def truncate(self, n: Operand = 0) -> Self:
        """Truncate to a number of decimal places, by default 0.

        Example:
            >>> list(t_env.from_elements([lit(1.987).truncate(1)]).execute().collect())
            [<Row(1.9)>]
        """
        return self._call("TRUNCATE", n)

    @property
    def bin(self) -> Self:
        """The number in binary, as text.

        Example:
            >>> list(t_env.from_elements([lit(10).bin]).execute().collect())
            [<Row('1010')>]
        """
        return self._call("BIN")

    @property
    def hex(self) -> Self:
        """The number or text in hexadecimal.

        Example:
            >>> list(t_env.from_elements([lit(255).hex, lit("hi").hex]).execute().collect())
            [<Row('FF')>, <Row('6869')>]
        """
        return self._call("HEX")

    @property
    def unhex(self) -> Self:
        """The bytes of hexadecimal text.

        Example:
            >>> list(t_env.from_elements([lit("6869").unhex]).execute().collect())
            [<Row(b'hi')>]
        """
        return self._call("UNHEX")

    # --- conditions

    def between(self, lower_bound: Operand, upper_bound: Operand) -> Self:
        """Return whether the value is between two bounds, inclusive.

        Example:
            >>> numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
            >>> list(numbers.filter(col("n").between(2, 3)).execute().collect())
            [<Row(2)>, <Row(3)>]
        """
        return self._call("BETWEEN", lower_bound, upper_bound)

    def not_between(self, lower_bound: Operand, upper_bound: Operand) -> Self:
        """Return whether the value is outside of two bounds.

        Example:
            >>> numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
            >>> list(numbers.filter(col("n").not_between(2, 3)).execute().collect())
            [<Row(1)>]
        """
        return self.between(lower_bound, upper_bound)._call("NOT")

    def then(self, if_true: Operand, if_false: Operand) -> Self:
        """Return one value if this condition is true, else another; a null condition gives the other.

        Example:
            >>> numbers = t_env.from_elements([(1,), (20,)], ["n"])
            >>> list(numbers.select((col("n") > 10).then("large", "small")).execute().collect())
            [<Row('small')>, <Row('large')>]
        """
        return self._as(syntax.Case(None, ((self._tree, tree_of(if_true)),), tree_of(if_false)))

    def if_null(self, null_replacement: Operand) -> Self:
        """Return this value, or another if it is null.

        Example:
            >>> words = t_env.from_elements([("to",), (None,)], ["word"])
            >>> list(words.select(col("word").if_null("-")).execute().collect())
            [<Row('to')>, <Row('-')>]
        """
        return self._call("IFNULL", null_replacement)

    @property
    def is_null(self) -> Self:
        """Whether it is null; unlike `== None`, which is null.

        Example:
            >>> words = t_env.from_elements([("to",), (None,)], ["word"])
            >>> list(words.select(col("word").is_null).execute().collect())
            [<Row(False)>, <Row(True)>]
        """
        return self._call("IS NULL")

    @property
    def is_not_null(self) -> Self:
        """Whether it is not null.

        Example:
            >>> words = t_env.from_elements([("to",), (None,)], ["word"])
            >>> list(words.filter(col("word").is_not_null).execute().collect())
            [<Row('to')>]
        """
        return self._call("IS NOT NULL")

    @property
    def is_true(self) -> Self:
        """Whether it is true; false for null.

        Example:
            >>> list(t_env.from_elements([(lit(1) > 0).is_true]).execute().collect())
            [<Row(True)>]
        """
        return self._call("IS TRUE")

    @property
    def is_false(self) -> Self:
        """Whether it is false; false for null.

        Example:
            >>> list(t_env.from_elements([(lit(1) > 0).is_false]).execute().collect())
            [<Row(False)>]
        """
        return self._call("IS FALSE")

    @property
    def is_not_true(self) -> Self:
        """Whether it is false or null.

        Example:
            >>> list(t_env.from_elements([lit(None, DataTypes.BOOLEAN()).is_not_true]).execute().collect())
            [<Row(True)>]
        """
        return self._call("IS NOT TRUE")

    @property
    def is_not_false(self) -> Self:
        """Whether it is true or null.

        Example:
            >>> list(t_env.from_elements([lit(None, DataTypes.BOOLEAN()).is_not_false]).execute().collect())
            [<Row(True)>]
        """
        return self._call("IS NOT FALSE")

    def in_(self, first_element_or_table: Operand, *remaining_elements: Operand) -> Self:
        """Return whether the value is in a list of values, or in a table of one column.

        Example:
            >>> words = t_env.from_elements([("to",), ("be",), ("or",)], ["word"])
            >>> list(words.filter(col("word").in_("be", "or")).execute().collect())
            [<Row('be')>, <Row('or')>]
            >>> small = t_env.from_elements([("to",)], ["small"])
            >>> list(words.filter(col("word").in_(small)).execute().collect())
            [<Row('to')>]
        """
        if isinstance(first_element_or_table, Subquery):
            named = syntax.TableQuery(syntax.TableName((str(first_element_or_table),)))
            return self._as(syntax.In(self._tree, named))
        operands = (first_element_or_table, *remaining_elements)
        return self._as(syntax.In(self._tree, tuple(map(tree_of, operands))))
