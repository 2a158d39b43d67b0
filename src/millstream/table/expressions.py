"""Columns, literals and functions of Table API expressions.

Examples of the Table API use a TableEnvironment `t_env`, and `col`, `lit` and `DataTypes`:

Example:
    >>> from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
    >>> from millstream.table.expressions import col, lit
    >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    >>> list(t_env.from_elements([(2,)], ["n"]).select(col("n") + lit(1)).execute().collect())
    [<Row(3)>]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.common.unsupported import missing_function
from millstream.sql.language import syntax
from millstream.sql.types import DataType
from millstream.table.api_syntax import Chosen, InlineCall, Operand, Range, RowInterval
from millstream.table.expression import Expression, JsonOnNull, TimePointUnit, tree_of
from millstream.table.sql_text import read_expression

if TYPE_CHECKING:
    from millstream.table.udf import UserDefinedFunctionWrapper

__all__ = [
    "CURRENT_RANGE",
    "CURRENT_ROW",
    "UNBOUNDED_RANGE",
    "UNBOUNDED_ROW",
    "and_",
    "array",
    "atan2",
    "call",
    "call_sql",
    "coalesce",
    "col",
    "concat",
    "concat_ws",
    "convert_tz",
    "current_database",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_watermark",
    "date_format",
    "descriptor",
    "e",
    "from_unixtime",
    "if_then_else",
    "json",
    "json_array",
    "json_array_agg",
    "json_object",
    "json_object_agg",
    "json_string",
    "lag",
    "lead",
    "lit",
    "local_time",
    "local_timestamp",
    "log",
    "map_",
    "map_from_arrays",
    "negative",
    "not_",
    "null_of",
    "object_of",
    "or_",
    "pi",
    "rand",
    "rand_integer",
    "range_",
    "row",
    "row_interval",
    "source_watermark",
    "temporal_overlaps",
    "timestamp_diff",
    "to_date",
    "to_timestamp",
    "to_timestamp_ltz",
    "unix_timestamp",
    "uuid",
    "with_all_columns",
    "with_columns",
    "without_columns",
]

UNBOUNDED_ROW: Expression = Expression(syntax.Symbol("UNBOUNDED_ROW"))
"""Bound of an over window: the first row of the partition."""
UNBOUNDED_RANGE: Expression = Expression(syntax.Symbol("UNBOUNDED_RANGE"))
"""Bound of an over window by time: the earliest row of the partition."""
CURRENT_ROW: Expression = Expression(syntax.Symbol("CURRENT_ROW"))
"""Bound of an over window: the current row."""
CURRENT_RANGE: Expression = Expression(syntax.Symbol("CURRENT_RANGE"))
"""Bound of an over window by time: the rows with the current row's time."""


def _call(function: str, *arguments: Operand) -> Expression:
    """Return a function call, without trailing Nones."""
    operands = list(arguments)
    while operands and operands[-1] is None:
        operands.pop()
    return Expression(syntax.Call(function, tuple(map(tree_of, operands))))


def col(name: str) -> Expression:
    """Return a column by its name; `*` for all columns.

    Example:
        >>> numbers = t_env.from_elements([(1, 2)], ["a", "b"])
        >>> list(numbers.select(col("b") + col("a"), col("*")).execute().collect())
        [<Row(3, 1, 2)>]
    """
    return with_all_columns() if name == "*" else Expression(syntax.Name((name,)))


def lit(v: Operand, data_type: DataType | None = None) -> Expression:
    """Return a literal; its type is inferred from the value unless specified.

    An int is INT or BIGINT, a float DOUBLE, a str CHAR of its length; a list is an array, a dict a map.

    Example:
        >>> str(lit(12)), str(lit("abc"))
        ('12', "'abc'")
        >>> t_env.from_elements([(1,)]).select(lit(1).alias("a"), lit(1, DataTypes.BIGINT()).alias("b")).print_schema()
        (
          `a` INT NOT NULL,
          `b` BIGINT NOT NULL
        )
    """
    return Expression(tree_of(v) if data_type is None else syntax.Cast(tree_of(v), data_type))


def range_(start: str | int, end: str | int) -> Expression:
    """Return the columns from one to another, by names or positions from 1, for `with_columns`.

    Example:
        >>> numbers = t_env.from_elements([(1, 2, 3)], ["a", "b", "c"])
        >>> list(numbers.select(with_columns(range_("b", "c"))).execute().collect())
        [<Row(2, 3)>]
    """
    return Expression(Range(start, end))


def and_(predicate0: Operand, predicate1: Operand, *predicates: Operand) -> Expression:
    """Return whether all conditions are true; `&` does the same for two.

    Example:
        >>> numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
        >>> list(numbers.filter(and_(col("n") > 1, col("n") < 3)).execute().collect())
        [<Row(2)>]
    """
    return _joined("AND", (predicate0, predicate1, *predicates))


def or_(predicate0: Operand, predicate1: Operand, *predicates: Operand) -> Expression:
    """Return whether any condition is true; `|` does the same for two.

    Example:
        >>> numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
        >>> list(numbers.filter(or_(col("n") == 1, col("n") == 3)).execute().collect())
        [<Row(1)>, <Row(3)>]
    """
    return _joined("OR", (predicate0, predicate1, *predicates))


def _joined(operator: str, conditions: tuple[Operand, ...]) -> Expression:
    first, *rest = map(tree_of, conditions)
    for condition in rest:
        first = syntax.Call(operator, (first, condition))
    return Expression(first)


def not_(expression: Operand) -> Expression:
    """Return the opposite of a condition; null stays null."""
    return _call("NOT", expression)


def current_database() -> Expression:
    """Return the name of the current database."""
    return _call("CURRENT_DATABASE")


def current_date() -> Expression:
    """Return today's date in the session's time zone."""
    return _call("CURRENT_DATE")


def current_time() -> Expression:
    """Return the time of day in the session's time zone."""
    return _call("CURRENT_TIME")


def current_timestamp() -> Expression:
    """Return the current timestamp with local time zone."""
    return _call("CURRENT_TIMESTAMP")


def current_watermark(rowtimeAttribute: Operand) -> Expression:
    """Return the watermark of a time column when the row is processed; null before the first watermark."""
    return _call("CURRENT_WATERMARK", rowtimeAttribute)


def local_time() -> Expression:
    """Return the time of day in the session's time zone."""
    return _call("LOCALTIME")


def local_timestamp() -> Expression:
    """Return date and time in the session's time zone."""
    return _call("LOCALTIMESTAMP")


def to_date(date_str: Operand, format: Operand = None) -> Expression:
    """Read a date, by a format.

    Example:
        >>> list(t_env.from_elements([to_date("19.11.2026", "dd.MM.yyyy")]).execute().collect())
        [<Row(datetime.date(2026, 11, 19))>]
    """
    return _call("TO_DATE", date_str, format)


def to_timestamp(timestamp_str: Operand, format: Operand = None) -> Expression:
    """Read a timestamp, by a format.

    Example:
        >>> list(t_env.from_elements([to_timestamp("2026-11-19 12:30:00")]).execute().collect())
        [<Row(datetime.datetime(2026, 11, 19, 12, 30))>]
    """
    return _call("TO_TIMESTAMP", timestamp_str, format)


def to_timestamp_ltz(*args: Operand) -> Expression:
    """Return the TIMESTAMP_LTZ of a number of seconds (precision 0) or milliseconds (3) since 1970, or of text.

    Example:
        >>> t_env.get_config().set_local_timezone("UTC")
        >>> list(t_env.from_elements([to_timestamp_ltz(0, 3).cast(DataTypes.STRING())]).execute().collect())
        [<Row('1970-01-01 00:00:00.000')>]
    """
    return _call("TO_TIMESTAMP_LTZ", *args)


def temporal_overlaps(
    left_time_point: Operand, left_temporal: Operand, right_time_point: Operand, right_temporal: Operand
) -> Expression:
    """Return whether two time ranges overlap; each is a start and an end, or a start and an interval.

    Example:
        >>> nine, ten = lit("09:00:00").to_time, lit("10:00:00").to_time
        >>> list(t_env.from_elements([temporal_overlaps(nine, lit(2).hours, ten, lit(1).hour)]).execute().collect())
        [<Row(True)>]
    """
    return _call("TEMPORAL_OVERLAPS", left_time_point, left_temporal, right_time_point, right_temporal)


def date_format(timestamp: Operand, format: Operand) -> Expression:
    """Write a timestamp by a format of Java's DateTimeFormatter.

    Example:
        >>> at = lit("2026-11-19 12:30:00").to_timestamp
        >>> list(t_env.from_elements([date_format(at, "dd.MM. HH:mm")]).execute().collect())
        [<Row('19.11. 12:30')>]
    """
    return _call("DATE_FORMAT", timestamp, format)


def timestamp_diff(time_point_unit: TimePointUnit, time_point1: Operand, time_point2: Operand) -> Expression:
    """Return the number of units between two times.

    Example:
        >>> start, end = lit("2026-11-19").to_date, lit("2026-11-22").to_date
        >>> list(t_env.from_elements([timestamp_diff(TimePointUnit.DAY, start, end)]).execute().collect())
        [<Row(3)>]
    """
    return _call("TIMESTAMPDIFF", syntax.Symbol(time_point_unit.name), time_point1, time_point2)


def convert_tz(date_str: Operand, tz_from: Operand, tz_to: Operand) -> Expression:
    """Convert a timestamp text from one time zone to another.

    Example:
        >>> list(t_env.from_elements([convert_tz("2026-11-19 12:00:00", "UTC", "Asia/Tokyo")]).execute().collect())
        [<Row('2026-11-19 21:00:00')>]
    """
    return _call("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: Operand, format: Operand = None) -> Expression:
    """Write seconds since 1970 as text in the session's time zone, by default as `yyyy-MM-dd HH:mm:ss`.

    Example:
        >>> t_env.get_config().set_local_timezone("UTC")
        >>> list(t_env.from_elements([from_unixtime(86400), from_unixtime(86400, "dd.MM.yyyy")]).execute().collect())
        [<Row('1970-01-02 00:00:00')>, <Row('02.01.1970')>]
    """
    return _call("FROM_UNIXTIME", unixtime, format)


def unix_timestamp(date_str: Operand = None, format: Operand = None) -> Expression:
    """Return seconds since 1970, of now or of text in the session's time zone.

    Example:
        >>> t_env.get_config().set_local_timezone("UTC")
        >>> list(t_env.from_elements([unix_timestamp("1970-01-02 00:00:00")]).execute().collect())
        [<Row(86400)>]
    """
    return _call("UNIX_TIMESTAMP", date_str, format)


def array(head: Operand, *tail: Operand) -> Expression:
    """Return an array of values."""
    return Expression(syntax.Call("ARRAY", tuple(map(tree_of, (head, *tail)))))


def row(head: Operand, *tail: Operand) -> Expression:
    """Return a row of values.

    Example:
        >>> list(t_env.from_elements([row("ann", 3)]).execute().collect())
        [<Row('ann', 3)>]
    """
    return Expression(syntax.Call("ROW", tuple(map(tree_of, (head, *tail)))))


def map_(key: Operand, value: Operand, *tail: Operand) -> Expression:
    """Return a map of keys and values in turn.

    Example:
        >>> list(t_env.from_elements([map_("a", 1, "b", 2)]).execute().collect())
        [<Row({'a': 1, 'b': 2})>]
    """
    return Expression(syntax.Call("MAP", tuple(map(tree_of, (key, value, *tail)))))


def map_from_arrays(key: Operand, value: Operand) -> Expression:
    """Return a map of an array of keys and one of values.

    Example:
        >>> list(t_env.from_elements([map_from_arrays(["a", "b"], [1, 2])]).execute().collect())
        [<Row({'a': 1, 'b': 2})>]
    """
    return _call("MAP_FROM_ARRAYS", key, value)


def descriptor(*column_names: str) -> Expression:
    """Return names of columns as an argument.

    Example:
        >>> str(descriptor("user", "price"))
        'descriptor(user, price)'
    """
    return Expression(syntax.Call("DESCRIPTOR", tuple(syntax.Name((name,)) for name in column_names)))


object_of = missing_function("object_of", "structured types are not supported yet")


def row_interval(rows: int) -> Expression:
    """Return a number of rows, as the size of a window or the start of an OVER window."""
    return Expression(RowInterval(rows))


def pi() -> Expression:
    """Return pi, a DOUBLE."""
    return _call("PI")


def e() -> Expression:
    """Return Euler's number, a DOUBLE."""
    return _call("E")


def rand(seed: Operand = None) -> Expression:
    """Return a random number from 0, inclusive, to 1, exclusive; with a seed, the same sequence each time."""
    return _call("RAND", seed)


def rand_integer(bound: Operand, seed: Operand = None) -> Expression:
    """Return a random integer from 0 to a bound, exclusive."""
    return _call("RAND_INTEGER", bound) if seed is None else _call("RAND_INTEGER", seed, bound)


def atan2(y: Operand, x: Operand) -> Expression:
    """Return the angle of a point."""
    return _call("ATAN2", y, x)


def negative(v: Operand) -> Expression:
    """Return a value with the other sign; `-` does the same."""
    return _call("UNARY -", v)


def concat(first: Operand, *others: Operand) -> Expression:
    """Concatenate texts."""
    return Expression(syntax.Call("CONCAT", tuple(map(tree_of, (first, *others)))))


def concat_ws(separator: Operand, first: Operand, *others: Operand) -> Expression:
    """Concatenate texts with a separator; nulls are skipped.

    Example:
        >>> list(t_env.from_elements([concat_ws("-", "to", lit(None, DataTypes.STRING()), "be")]).execute().collect())
        [<Row('to-be')>]
    """
    return Expression(syntax.Call("CONCAT_WS", tuple(map(tree_of, (separator, first, *others)))))


def uuid() -> Expression:
    """Return a random UUID as text."""
    return _call("UUID")


def null_of(data_type: DataType) -> Expression:
    """Return null of a type."""
    return Expression(syntax.Cast(syntax.Literal("NULL", "NULL"), data_type))


def log(v: Operand, base: Operand = None) -> Expression:
    """Return the logarithm, the natural one or to a base."""
    return _call("LOG", v) if base is None else _call("LOG", base, v)


def source_watermark() -> Expression:
    """Return the source's own watermark, for `Schema.Builder.watermark`."""
    return _call("SOURCE_WATERMARK")


def if_then_else(condition: Operand, if_true: Operand, if_false: Operand) -> Expression:
    """Return one value if a condition is true, else another; a null condition gives the other.

    Example:
        >>> numbers = t_env.from_elements([(1,), (20,)], ["n"])
        >>> list(numbers.select(if_then_else(col("n") > 10, "large", "small")).execute().collect())
        [<Row('small')>, <Row('large')>]
    """
    return Expression(syntax.Case(None, ((tree_of(condition), tree_of(if_true)),), tree_of(if_false)))


def coalesce(*args: Operand) -> Expression:
    """Return the first value that is not null.

    Example:
        >>> list(t_env.from_elements([coalesce(null_of(DataTypes.INT()), 2, 3)]).execute().collect())
        [<Row(2)>]
    """
    return Expression(syntax.Call("COALESCE", tuple(map(tree_of, args))))


def with_all_columns() -> Expression:
    """Return all columns, as `col("*")`."""
    return Expression(syntax.Star())


def with_columns(head: Operand, *tails: Operand) -> Expression:
    """Return some columns: names, positions from 1, and ranges.

    Example:
        >>> numbers = t_env.from_elements([(1, 2, 3)], ["a", "b", "c"])
        >>> list(numbers.select(with_columns(range_(1, 2), col("c"))).execute().collect())
        [<Row(1, 2, 3)>]
    """
    return Expression(Chosen(tuple(map(tree_of, (head, *tails)))))


def without_columns(head: Operand, *tails: Operand) -> Expression:
    """Return all columns but some.

    Example:
        >>> numbers = t_env.from_elements([(1, 2, 3)], ["a", "b", "c"])
        >>> list(numbers.select(without_columns(col("b"))).execute().collect())
        [<Row(1, 3)>]
    """
    return Expression(Chosen(tuple(map(tree_of, (head, *tails))), excluded=True))


def json(value: Operand) -> Expression:
    """Return text that is JSON already, as a member of `json_object` or `json_array`.

    Example:
        >>> list(t_env.from_elements([json_object(JsonOnNull.NULL, "a", json("[1, 2]"))]).execute().collect())
        [<Row('{"a":[1,2]}')>]
    """
    return _call("JSON", value)


def json_string(value: Operand) -> Expression:
    """Write a value as JSON.

    Example:
        >>> list(t_env.from_elements([json_string(row("ann", 3))]).execute().collect())
        [<Row('{"EXPR$0":"ann","EXPR$1":3}')>]
    """
    return _call("JSON_STRING", value)


def json_object(on_null: JsonOnNull = JsonOnNull.NULL, *args: Operand) -> Expression:
    """Return a JSON object of keys and values in turn.

    Args:
        on_null: whether null values are written, the default, or omitted.
        args: keys and values.

    Example:
        >>> list(t_env.from_elements([json_object(JsonOnNull.NULL, "user", "ann", "n", 3)]).execute().collect())
        [<Row('{"n":3,"user":"ann"}')>]
    """
    return Expression(syntax.Json("JSON_OBJECT", tuple(map(tree_of, args)), null=on_null.name))


def json_object_agg(on_null: JsonOnNull, key_expr: Operand, value_expr: Operand) -> Expression:
    """Return a JSON object of the keys and values of all rows.

    Example:
        >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["user", "price"])
        >>> prices = json_object_agg(JsonOnNull.NULL, col("user"), col("price")).alias("prices")
        >>> orders.select(prices).to_pandas()["prices"].tolist()
        ['{"ann":3,"bob":5}']
    """
    return Expression(syntax.Json("JSON_OBJECTAGG", (tree_of(key_expr), tree_of(value_expr)), null=on_null.name))


def json_array(on_null: JsonOnNull = JsonOnNull.ABSENT, *args: Operand) -> Expression:
    """Return a JSON array of values.

    Args:
        on_null: whether nulls are written, or omitted, the default.
        args: the values.

    Example:
        >>> list(t_env.from_elements([json_array(JsonOnNull.ABSENT, 1, "two")]).execute().collect())
        [<Row('[1,"two"]')>]
    """
    return Expression(syntax.Json("JSON_ARRAY", tuple(map(tree_of, args)), null=on_null.name))


def json_array_agg(on_null: JsonOnNull, item_expr: Operand) -> Expression:
    """Return a JSON array of the values of all rows.

    Example:
        >>> orders = t_env.from_elements([("ann", 3), ("bob", 5)], ["user", "price"])
        >>> orders.select(json_array_agg(JsonOnNull.NULL, col("price")).alias("all")).to_pandas()["all"].tolist()
        ['[3,5]']
    """
    return Expression(syntax.Json("JSON_ARRAYAGG", (tree_of(item_expr),), null=on_null.name))


def lag(expr: Operand, offset: Operand = 1, default: Operand = None) -> Expression:
    """Return the value of an earlier row of an OVER window, by default of the row before.

    Example:
        >>> from millstream.table.window import Over
        >>> prices = t_env.from_elements([(1,), (3,)], ["n"]).add_columns(call_sql("PROCTIME()").alias("at"))
        >>> ordered = prices.over_window(Over.order_by(col("at")).alias("w"))
        >>> list(ordered.select(col("n"), lag(col("n")).over(col("w"))).execute().collect())
        [<Row(1, None)>, <Row(3, 1)>]
    """
    return _call("LAG", expr, offset, default)


def lead(expr: Operand, offset: Operand = 1, default: Operand = None) -> Expression:
    """Return the value of a later row of an OVER window, by default of the next row; batch mode only."""
    return _call("LEAD", expr, offset, default)


def call(f: str | UserDefinedFunctionWrapper, *args: Operand) -> Expression:
    """Call a function: one of SQL's or of the catalog's by name, or a user's own.

    Example:
        >>> from millstream.table.udf import udf
        >>> twice = udf(lambda n: n * 2, result_type="BIGINT")
        >>> list(t_env.from_elements([(3,)], ["n"]).select(call("ABS", -2), call(twice, col("n"))).execute().collect())
        [<Row(2, 6)>]
    """
    arguments = tuple(map(tree_of, args))
    if isinstance(f, str):
        return Expression(syntax.Call(f, arguments))
    return Expression(InlineCall(f, arguments), f.alias_names)


def call_sql(sql_expression: str) -> Expression:
    """Return an expression that is written in SQL.

    Example:
        >>> orders = t_env.from_elements([("ann", 3)], ["user", "price"])
        >>> list(orders.select(call_sql("UPPER(`user`) || '!'")).execute().collect())
        [<Row('ANN!')>]
    """
    return Expression(read_expression(sql_expression))
