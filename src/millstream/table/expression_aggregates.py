"""What expressions can do with all rows of a group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from millstream.common.errors import InvalidProgramError
from millstream.sql.language import syntax
from millstream.table.api_syntax import InlineCall, OverNamed
from millstream.table.expression_base import ExpressionBase, T, tree_of


class AggregateExpression(ExpressionBase[T]):
    """Aggregates."""

    @property
    def distinct(self) -> Self:
        """The aggregate with every value once: `col("a").sum.distinct`."""
        if not isinstance(self._tree, syntax.Call):
            raise InvalidProgramError(f"distinct follows an aggregate, as in col('a').sum.distinct, not {self}.")
        return self._as(replace(self._tree, distinct=True))

    @property
    def sum(self) -> Self:
        """The sum; null when there is no value."""
        return self._call("SUM")

    @property
    def sum0(self) -> Self:
        """The sum; 0 when there is no value."""
        return self._call("$SUM0")

    @property
    def min(self) -> Self:
        """The least value."""
        return self._call("MIN")

    @property
    def max(self) -> Self:
        """The greatest value."""
        return self._call("MAX")

    @property
    def count(self) -> Self:
        """How many values there are that are not null."""
        return self._call("COUNT")

    @property
    def avg(self) -> Self:
        """The average."""
        return self._call("AVG")

    @property
    def first_value(self) -> Self:
        """The first value that came."""
        return self._call("FIRST_VALUE")

    @property
    def last_value(self) -> Self:
        """The last value that came."""
        return self._call("LAST_VALUE")

    def list_agg(self, separator: Any = None) -> Self:
        """Join the values to one text, with commas or something else between them."""
        return self._call("LISTAGG", separator)

    @property
    def stddev_pop(self) -> Self:
        """The standard deviation of all."""
        return self._call("STDDEV_POP")

    @property
    def stddev_samp(self) -> Self:
        """The standard deviation of a sample."""
        return self._call("STDDEV_SAMP")

    @property
    def var_pop(self) -> Self:
        """The variance of all."""
        return self._call("VAR_POP")

    @property
    def var_samp(self) -> Self:
        """The variance of a sample."""
        return self._call("VAR_SAMP")

    @property
    def collect(self) -> Self:
        """All values as a multiset."""
        return self._call("COLLECT")

    @property
    def array_agg(self) -> Self:
        """All values as an array."""
        return self._call("ARRAY_AGG")

    def percentile(self, percentage: Any, frequency: Any = None) -> Self:
        """Return the value below which a share of all values is; values may have frequencies."""
        return self._call("PERCENTILE", percentage, frequency)

    def over(self, alias: Any) -> Self:
        """Return the aggregate over a window of `over_window()`, which is known by its alias."""
        window = tree_of(alias)
        if not isinstance(window, syntax.Name):
            raise InvalidProgramError(f"over() takes the alias of a window, as in over(col('w')), not {alias!r}.")
        if not isinstance(self._tree, (syntax.Call, InlineCall)):
            raise InvalidProgramError(f"over() follows an aggregate, as in col('a').sum.over(col('w')), not {self}.")
        return self._as(OverNamed(self._tree, window.parts[0]))
