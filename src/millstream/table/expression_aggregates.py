"""Expression methods that aggregate the values of many rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from millstream.common.aliases import T
from millstream.common.errors import InvalidProgramError
from millstream.sql.language import syntax
from millstream.table.api_syntax import InlineCall, Operand, OverNamed
from millstream.table.expression_operators import ExpressionBase, tree_of


class AggregateExpression(ExpressionBase[T]):
    """Aggregates."""

    @property
    def distinct(self) -> Self:
        """The aggregate over distinct values: `col("a").sum.distinct`."""
        if not isinstance(self._tree, syntax.Call):
            raise InvalidProgramError(f"distinct follows an aggregate, as in col('a').sum.distinct, not {self}.")
        return self._as(replace(self._tree, distinct=True))

    @property
    def sum(self) -> Self:
        """The sum; null without values."""
        return self._call("SUM")

    @property
    def sum0(self) -> Self:
        """The sum; 0 without values."""
        return self._call("$SUM0")

    @property
    def min(self) -> Self:
        """The minimum."""
        return self._call("MIN")

    @property
    def max(self) -> Self:
        """The maximum."""
        return self._call("MAX")

    @property
    def count(self) -> Self:
        """The number of non-null values."""
        return self._call("COUNT")

    @property
    def avg(self) -> Self:
        """The average."""
        return self._call("AVG")

    @property
    def first_value(self) -> Self:
        """The first value in arrival order."""
        return self._call("FIRST_VALUE")

    @property
    def last_value(self) -> Self:
        """The last value in arrival order."""
        return self._call("LAST_VALUE")

    def list_agg(self, separator: Operand = None) -> Self:
        """Concatenate the values with a separator, by default a comma."""
        return self._call("LISTAGG", separator)

    @property
    def stddev_pop(self) -> Self:
        """The population standard deviation."""
        return self._call("STDDEV_POP")

    @property
    def stddev_samp(self) -> Self:
        """The sample standard deviation."""
        return self._call("STDDEV_SAMP")

    @property
    def var_pop(self) -> Self:
        """The population variance."""
        return self._call("VAR_POP")

    @property
    def var_samp(self) -> Self:
        """The sample variance."""
        return self._call("VAR_SAMP")

    @property
    def collect(self) -> Self:
        """All values as a multiset."""
        return self._call("COLLECT")

    @property
    def array_agg(self) -> Self:
        """All values as an array."""
        return self._call("ARRAY_AGG")

    def percentile(self, percentage: Operand, frequency: Operand = None) -> Self:
        """Return a percentile of the values; values may have frequencies."""
        return self._call("PERCENTILE", percentage, frequency)

    def over(self, alias: Operand) -> Self:
        """Return the aggregate over a window of `over_window()`, by its alias."""
        window = tree_of(alias)
        if not isinstance(window, syntax.Name):
            raise InvalidProgramError(f"over() takes the alias of a window, as in over(col('w')), not {alias!r}.")
        if not isinstance(self._tree, (syntax.Call, InlineCall)):
            raise InvalidProgramError(f"over() follows an aggregate, as in col('a').sum.over(col('w')), not {self}.")
        return self._as(OverNamed(self._tree, window.parts[0]))
