"""Expression: a value per row, built from columns, literals and functions."""

from __future__ import annotations

from millstream.common.aliases import T
from millstream.common.unsupported import missing_function
from millstream.sql.language import syntax
from millstream.sql.types import DataType
from millstream.table.expression_aggregates import AggregateExpression
from millstream.table.expression_collections import (
    CollectionExpression,
    TimeExpression,
    TimeIntervalUnit,
    TimePointUnit,
)
from millstream.table.expression_json import (
    JsonExistsOnError,
    JsonExpression,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
)
from millstream.table.expression_operators import (
    MathExpression,
    aliases_of,
    is_descending,
    tree_of,
)
from millstream.table.expression_text import TextExpression

__all__ = [
    "Expression",
    "JsonExistsOnError",
    "JsonOnNull",
    "JsonQueryOnEmptyOrError",
    "JsonQueryWrapper",
    "JsonType",
    "JsonValueOnEmptyOrError",
    "TimeIntervalUnit",
    "TimePointUnit",
    "aliases_of",
    "is_descending",
    "tree_of",
]

_BITMAPS = "the type BITMAP is not supported yet"
_OBJECTS = "structured types are not supported yet"


class Expression(
    MathExpression[T],
    AggregateExpression[T],
    TextExpression[T],
    JsonExpression[T],
    CollectionExpression[T],
    TimeExpression[T],
):
    """A value per row: a column, a literal, or a function call.

    Example:
        >>> from millstream.table.expressions import col, lit
        >>> str((col("price") * 2).alias("double"))
        "as(times(price, 2), 'double')"
    """

    def alias(self, name: str, *extra_names: str) -> Expression[T]:
        """Name the column, or the columns of a table function.

        Example:
            >>> t_env.from_elements([(1,)], ["n"]).select((col("n") + 1).alias("next")).print_schema()
            (
              `next` BIGINT
            )
        """
        return Expression(self._tree, (name, *extra_names), self._descending)

    def cast(self, data_type: DataType) -> Expression[T]:
        """Cast to another type; a value that cannot be cast fails the job.

        Example:
            >>> list(t_env.from_elements([lit("12").cast(DataTypes.INT())]).execute().collect())
            [<Row(12)>]
        """
        return Expression(syntax.Cast(self._tree, data_type))

    def try_cast(self, data_type: DataType) -> Expression[T]:
        """Cast to another type; a value that cannot be cast becomes null.

        Example:
            >>> list(t_env.from_elements([lit("twelve").try_cast(DataTypes.INT())]).execute().collect())
            [<Row(None)>]
        """
        return Expression(syntax.Cast(self._tree, data_type, lenient=True))

    @property
    def asc(self) -> Expression[T]:
        """Ascending order, for `order_by`; the default.

        Example:
            >>> str(col("price").asc)
            'price'
        """
        return Expression(self._tree, self._names, False)

    @property
    def desc(self) -> Expression[T]:
        """Descending order, for `order_by`.

        Example:
            >>> prices = t_env.from_elements([(1,), (3,), (2,)], ["price"])
            >>> prices.order_by(col("price").desc).fetch(1).to_pandas()["price"].tolist()
            [3]
        """
        return Expression(self._tree, self._names, True)

    def as_argument(self, name: str) -> Expression[T]:
        """Pass as a named argument, to `Table.to_changelog` and `from_changelog`.

        Example:
            >>> from millstream.table.expressions import descriptor
            >>> changes = t_env.from_elements([(1,)], ["n"]).to_changelog(descriptor("kind").as_argument("op"))
            >>> list(changes.select(col("kind"), col("n")).execute().collect())
            [<Row('INSERT', 1)>]
        """
        return Expression(syntax.Argument(name, self._tree))

    object_update = missing_function("object_update", _OBJECTS)
    bitmap_and = missing_function("bitmap_and", _BITMAPS)
    bitmap_andnot = missing_function("bitmap_andnot", _BITMAPS)
    bitmap_and_agg = missing_function("bitmap_and_agg", _BITMAPS)
    bitmap_and_cardinality_agg = missing_function("bitmap_and_cardinality_agg", _BITMAPS)
    bitmap_build = missing_function("bitmap_build", _BITMAPS)
    bitmap_build_agg = missing_function("bitmap_build_agg", _BITMAPS)
    bitmap_build_cardinality_agg = missing_function("bitmap_build_cardinality_agg", _BITMAPS)
    bitmap_cardinality = missing_function("bitmap_cardinality", _BITMAPS)
    bitmap_from_bytes = missing_function("bitmap_from_bytes", _BITMAPS)
    bitmap_or = missing_function("bitmap_or", _BITMAPS)
    bitmap_or_agg = missing_function("bitmap_or_agg", _BITMAPS)
    bitmap_or_cardinality_agg = missing_function("bitmap_or_cardinality_agg", _BITMAPS)
    bitmap_to_array = missing_function("bitmap_to_array", _BITMAPS)
    bitmap_to_bytes = missing_function("bitmap_to_bytes", _BITMAPS)
    bitmap_to_string = missing_function("bitmap_to_string", _BITMAPS)
    bitmap_xor = missing_function("bitmap_xor", _BITMAPS)
    bitmap_xor_agg = missing_function("bitmap_xor_agg", _BITMAPS)
    bitmap_xor_cardinality_agg = missing_function("bitmap_xor_cardinality_agg", _BITMAPS)
