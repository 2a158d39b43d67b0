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
        """The aggregate over distinct values: `col("a").sum.distinct`.

        Example:
            >>> rows = t_env.from_elements([(1,), (1,), (2,)], ["n"])
            >>> rows.select(col("n").sum.distinct.alias("result")).to_pandas()["result"].tolist()
            [3]
        """
        if not isinstance(self._tree, syntax.Call):
            raise InvalidProgramError(f"distinct follows an aggregate, as in col('a').sum.distinct, not {self}.")
        return self._as(replace(self._tree, distinct=True))

    @property
    def sum(self) -> Self:
        """The sum; null without values.

        Example:
            >>> rows = t_env.from_elements([(1,), (2,)], ["n"])
            >>> rows.select(col("n").sum.alias("result")).to_pandas()["result"].tolist()
            [3]
        """
        return self._call("SUM")

    @property
    def sum0(self) -> Self:
        """The sum; 0 without values, where `sum` is null.

        Example:
            >>> rows = t_env.from_elements([(1,), (2,)], ["n"])
            >>> rows.select(col("n").sum0.alias("result")).to_pandas()["result"].tolist()
            [3]
        """
        return self._call("$SUM0")

    @property
    def min(self) -> Self:
        """The minimum.

        Example:
            >>> rows = t_env.from_elements([(3,), (2,)], ["n"])
            >>> rows.select(col("n").min.alias("result")).to_pandas()["result"].tolist()
            [2]
        """
        return self._call("MIN")

    @property
    def max(self) -> Self:
        """The maximum.

        Example:
            >>> rows = t_env.from_elements([(3,), (2,)], ["n"])
            >>> rows.select(col("n").max.alias("result")).to_pandas()["result"].tolist()
            [3]
        """
        return self._call("MAX")

    @property
    def count(self) -> Self:
        """The number of non-null values.

        Example:
            >>> rows = t_env.from_elements([(3,), (None,)], ["n"])
            >>> rows.select(col("n").count.alias("result")).to_pandas()["result"].tolist()
            [1]
        """
        return self._call("COUNT")

    @property
    def avg(self) -> Self:
        """The average, in the type of the values: the average of integers is an integer.

        Example:
            >>> rows = t_env.from_elements([(1,), (2,)], ["n"])
            >>> rows.select(col("n").avg.alias("result")).to_pandas()["result"].tolist()
            [1]
            >>> rows = t_env.from_elements([(1.0,), (2.0,)], ["n"])
            >>> rows.select(col("n").avg.alias("result")).to_pandas()["result"].tolist()
            [1.5]
        """
        return self._call("AVG")

    @property
    def first_value(self) -> Self:
        """The first value in arrival order.

        Example:
            >>> rows = t_env.from_elements([(3,), (1,)], ["n"])
            >>> rows.select(col("n").first_value.alias("result")).to_pandas()["result"].tolist()
            [3]
        """
        return self._call("FIRST_VALUE")

    @property
    def last_value(self) -> Self:
        """The last value in arrival order.

        Example:
            >>> rows = t_env.from_elements([(3,), (1,)], ["n"])
            >>> rows.select(col("n").last_value.alias("result")).to_pandas()["result"].tolist()
            [1]
        """
        return self._call("LAST_VALUE")

    def list_agg(self, separator: Operand = None) -> Self:
        """Concatenate the values with a separator, by default a comma.

        Example:
            >>> rows = t_env.from_elements([("to",), ("be",)], ["n"])
            >>> rows.select(col("n").list_agg(" ").alias("result")).to_pandas()["result"].tolist()
            ['to be']
        """
        return self._call("LISTAGG", separator)

    @property
    def stddev_pop(self) -> Self:
        """The population standard deviation.

        Example:
            >>> rows = t_env.from_elements([(1.0,), (3.0,)], ["n"])
            >>> rows.select(col("n").stddev_pop.alias("result")).to_pandas()["result"].tolist()
            [1.0]
        """
        return self._call("STDDEV_POP")

    @property
    def stddev_samp(self) -> Self:
        """The sample standard deviation.

        Example:
            >>> rows = t_env.from_elements([(1.0,), (3.0,)], ["n"])
            >>> rows.select(col("n").stddev_samp.round(3).alias("result")).to_pandas()["result"].tolist()
            [1.414]
        """
        return self._call("STDDEV_SAMP")

    @property
    def var_pop(self) -> Self:
        """The population variance.

        Example:
            >>> rows = t_env.from_elements([(1.0,), (3.0,)], ["n"])
            >>> rows.select(col("n").var_pop.alias("result")).to_pandas()["result"].tolist()
            [1.0]
        """
        return self._call("VAR_POP")

    @property
    def var_samp(self) -> Self:
        """The sample variance.

        Example:
            >>> rows = t_env.from_elements([(1.0,), (3.0,)], ["n"])
            >>> rows.select(col("n").var_samp.alias("result")).to_pandas()["result"].tolist()
            [2.0]
        """
        return self._call("VAR_SAMP")

    @property
    def collect(self) -> Self:
        """All values as a multiset: values and their counts.

        Example:
            >>> rows = t_env.from_elements([(1,), (1,), (2,)], ["n"])
            >>> rows.select(col("n").collect.alias("all")).to_arrow().to_pylist()
            [{'all': [(1, 2), (2, 1)]}]
        """
        return self._call("COLLECT")

    @property
    def array_agg(self) -> Self:
        """All values as an array.

        Example:
            >>> rows = t_env.from_elements([(1,), (1,), (2,)], ["n"])
            >>> rows.select(col("n").array_agg.alias("all")).to_arrow().to_pylist()
            [{'all': [1, 1, 2]}]
        """
        return self._call("ARRAY_AGG")

    def percentile(self, percentage: Operand, frequency: Operand = None) -> Self:
        """Return a percentile of the values, interpolated; values may have frequencies.

        Example:
            >>> rows = t_env.from_elements([(10,), (20,), (30,)], ["n"])
            >>> rows.select(col("n").percentile(0.25).alias("result")).to_pandas()["result"].tolist()
            [15.0]
        """
        return self._call("PERCENTILE", percentage, frequency)

    def over(self, alias: Operand) -> Self:
        """Return the aggregate over a window of `over_window()`, by its alias.

        Example:
            >>> from millstream.table.expressions import call_sql
            >>> from millstream.table.window import Over
            >>> prices = t_env.from_elements([(1,), (2,)], ["n"]).add_columns(call_sql("PROCTIME()").alias("at"))
            >>> over_all = prices.over_window(Over.order_by(col("at")).alias("w"))
            >>> list(over_all.select(col("n").sum.over(col("w"))).execute().collect())
            [<Row(1)>, <Row(3)>]
        """
        window = tree_of(alias)
        if not isinstance(window, syntax.Name):
            raise InvalidProgramError(f"over() takes the alias of a window, as in over(col('w')), not {alias!r}.")
        if not isinstance(self._tree, (syntax.Call, InlineCall)):
            raise InvalidProgramError(f"over() follows an aggregate, as in col('a').sum.over(col('w')), not {self}.")
        return self._as(OverNamed(self._tree, window.parts[0]))
