"""SQL functions, compared with Flink's results for thousands of expressions, and on columns."""

from __future__ import annotations

import datetime as dt
import decimal
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from millstream.common.errors import TypeMismatchError
from millstream.common.time import Instant
from millstream.common.types import Row
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import inferred_type, to_column, to_python
from millstream.sql.columns.value_text import java_double, to_text
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Call, Column, Constant, Expression, UserCall, replaced
from millstream.sql.functions.evaluate import compiled, condition, folded
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.functions.java_regex import BadPattern, java_pattern
from millstream.sql.functions.math import JavaRandom
from millstream.sql.functions.table import call, cast
from millstream.sql.functions.vectors import from_stored
from millstream.sql.language.errors import SqlParserException
from millstream.sql.types import DataType, DataTypes
from millstream.table import EnvironmentSettings, TableEnvironment
from tests.sql.binder import bound, evaluated
from tests.sql.differences import aggregate_reason, agrees, reason_of
from tests.sql.record import AGGREGATES, VALUES, read_recorded
from tests.support.sql_planning import Session

INT, BIGINT, DOUBLE, STRING = DataTypes.INT(), DataTypes.BIGINT(), DataTypes.DOUBLE(), DataTypes.STRING()
CONTEXT = EvaluationContext(batch=True)


def of(value: Any, kind: DataType) -> Constant:
    return Constant(kind.not_null() if value is not None else kind, value)


def run(expression: Expression, *columns: pa.Array, context: EvaluationContext = CONTEXT) -> list[Any]:
    result: list[Any] = compiled(expression, context)(Batch(columns)).to_pylist()
    return result


# --- nulls and lazy evaluation


def test_integer_arithmetic_wraps_around_and_keeps_nulls() -> None:
    a = Column(INT, 0)
    column = pa.array([1, None, 2147483647], pa.int32())
    assert run(call("+", [a, of(1, INT)]), column) == [2, None, -2147483648]
    assert run(call("*", [a, of(2, INT)]), column) == [2, None, -2]
    values = pa.array([-(2**63), 7, None], pa.int64())
    assert run(call("/", [Column(BIGINT, 0), of(-1, BIGINT)]), values) == [-(2**63), -7, None]
    assert run(call("/", [Column(BIGINT, 0), Column(BIGINT, 1)]), values, pa.array([-1, 2, 0])) == [-(2**63), 3, None]
    assert run(call("%", [Column(BIGINT, 0), Column(BIGINT, 1)]), pa.array([-7, 7, 5]), pa.array([3, -3, None])) == [
        *(-1, 1, None)
    ]


def test_division_by_zero_fails_only_for_evaluated_rows() -> None:
    a, b = Column(BIGINT, 0), Column(BIGINT, 1)
    columns = pa.array([10, 20, None]), pa.array([5, 0, 0])
    quotient = call("/", [a, b])
    with pytest.raises(TableException, match="/ by zero"):
        run(quotient, *columns)
    zero = call("=", [b, of(0, BIGINT)])
    assert run(call("CASE", [zero, of(None, BIGINT), quotient]), *columns) == [2, None, None]
    assert run(call("IF", [zero, of(-1, BIGINT), quotient]), *columns) == [2, -1, -1]
    assert run(call("AND", [call("<>", [b, of(0, BIGINT)]), call("=", [quotient, of(2, BIGINT)])]), *columns) == [
        *(True, False, False)
    ]
    assert run(call("OR", [zero, call("=", [quotient, of(2, BIGINT)])]), *columns) == [True, True, True]
    assert run(call("COALESCE", [b, quotient]), *columns) == [5, 0, 0]
    keep = condition(call("AND", [call("<>", [b, of(0, BIGINT)]), call(">", [quotient, of(1, BIGINT)])]), CONTEXT)
    assert keep(Batch(columns)).tolist() == [True, False, False]


def test_condition_that_is_null_is_false() -> None:
    test = condition(call(">", [Column(INT, 0), of(1, INT)]), CONTEXT)
    assert test(Batch([pa.array([1, 2, None], pa.int32())])).tolist() == [False, True, False]
    never = condition(Constant(DataTypes.BOOLEAN(), None), CONTEXT)
    assert never(Batch([], rows=2)).tolist() == [False, False]


def test_in_list_with_null_is_unknown() -> None:
    among = [Column(INT, 0), of(1, INT), of(None, INT)]
    column = pa.array([1, 2, None], pa.int32())
    assert run(call("IN", among), column) == [True, None, None]
    assert run(call("NOT", [call("IN", among)]), column) == [False, None, None]
    assert run(call("IN", among[:2]), column) == [True, False, None]
    assert run(call("IN", [of(2, INT), *among[1:]]), column) == [None, None, None]


def test_functions_respect_array_offsets() -> None:
    column = pa.array([9, None, 3, 4, None], pa.int64()).slice(2, 3)
    assert run(call("%", [Column(BIGINT, 0), of(2, BIGINT)]), column) == [1, 0, None]
    texts = pa.array(["x", "ab", None, "abc"]).slice(1)
    assert run(call("CHAR_LENGTH", [Column(STRING, 0)]), texts) == [2, None, 3]
    lists = pa.array([[9], [1, 2], None, []], pa.list_(pa.int32())).slice(1)
    kind = DataTypes.ARRAY(INT)
    assert run(call("ITEM", [Column(kind, 0), of(2, INT)]), lists) == [2, None, None]
    assert run(call("CARDINALITY", [Column(kind, 0)]), lists) == [2, None, 0]
    assert to_text(lists, kind).to_pylist() == ["[1, 2]", None, "[]"]
    assert run(cast(Column(kind, 0), DataTypes.ARRAY(STRING)), lists) == [["1", "2"], None, []]


def test_constant_folding_skips_nondeterministic_calls() -> None:
    assert folded(call("+", [of(1, INT), of(2, INT)])) == Constant(INT.not_null(), 3)
    a = Column(INT, 0)
    whole = call("+", [a, call("*", [of(2, INT), of(3, INT)])])
    result = folded(whole)
    assert isinstance(result, Call)
    assert result.arguments[1] == Constant(INT.not_null(), 6)
    # A failing constant is not folded: it may never be evaluated.
    failing = call("/", [of(1, INT), of(0, INT)])
    assert folded(failing) == failing
    assert isinstance(folded(call("RAND", [])), Call)
    # The text of an instant depends on the session.
    reported = cast(of(0, DataTypes.TIMESTAMP_LTZ(3)), STRING)
    assert folded(reported) == reported
    shanghai = EvaluationContext("Asia/Shanghai")
    assert folded(reported, shanghai) == Constant(STRING.not_null(), "1970-01-01 08:00:00.000")
    day = folded(cast(of("2024-02-29", DataTypes.CHAR(10)), DataTypes.DATE()))
    assert day == Constant(DataTypes.DATE(False), 19782)


# --- user functions


class Doubled:
    """A user function, as the evaluator sees it."""

    kind, deterministic = "scalar", True
    input_types: list[DataType] | None = None

    def __init__(self) -> None:
        self.opened_for: list[Any] = []
        self.seen: list[int] = []
        self.closed = 0

    def opened(self, name: str, types: Any, result: DataType, context: EvaluationContext) -> Doubled:
        self.opened_for.append((name, list(types), result))
        return self

    def __call__(self, columns: Any, rows: int) -> pa.Array:
        self.seen += columns[0].to_pylist()
        return pa.array([2 * v for v in columns[0].to_pylist()], pa.int64())

    def close(self) -> None:
        self.closed += 1


def test_udf_opens_once_and_sees_only_evaluated_rows() -> None:
    function = Doubled()
    user = UserCall(BIGINT, "doubled", function, (Column(BIGINT, 0),))
    context = EvaluationContext()
    chosen = call("CASE", [call(">", [Column(BIGINT, 0), of(2, BIGINT)]), user, of(0, BIGINT)])
    assert run(chosen, pa.array([1, 3, 2, 4]), context=context) == [0, 6, 0, 8]
    assert function.seen == [3, 4]
    run(user, pa.array([5]), context=context)
    assert len(function.opened_for) == 1
    context.close()
    assert function.closed == 1


# --- time zones


def test_time_functions_use_the_session_time_zone() -> None:
    berlin = EvaluationContext("Europe/Berlin")
    ltz, timestamp = DataTypes.TIMESTAMP_LTZ(3), DataTypes.TIMESTAMP(3)
    # 2024-03-31: the clock changes from two to three. 2024-10-27: from three back to two.
    summer = pa.array([1711846799000, 1711846800000, None], arrow_type(ltz))
    assert run(cast(Column(ltz, 0), STRING), summer, context=berlin) == [
        *("2024-03-31 01:59:59.000", "2024-03-31 03:00:00.000", None)
    ]
    shown = pa.array(["2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-01-01 00:00:00"])
    back = run(cast(cast(Column(STRING, 0), timestamp), ltz), shown, context=berlin)
    assert [int(v.timestamp()) for v in back] == [1711848600, 1729989000, 1704063600]
    twice = run(cast(cast(Column(STRING, 0), timestamp), ltz), shown.slice(1), context=berlin)
    assert [int(v.timestamp()) for v in twice] == [1729989000, 1704063600]
    assert run(call("EXTRACT", [Column(ltz, 0)], ("HOUR",)), summer, context=berlin) == [1, 3, None]
    days = run(cast(Column(ltz, 0), DataTypes.DATE()), pa.array([1704063599000], arrow_type(ltz)), context=berlin)
    assert days == [dt.date(2023, 12, 31)]


@pytest.mark.parametrize(
    ("zone", "hours"), [("UTC", 0), ("GMT+05:30", 5.5), ("-03:00", -3), ("UTC+8", 8), ("Asia/Tokyo", 9)]
)
def test_time_zones_accept_java_names(zone: str, hours: float) -> None:
    ltz, context = DataTypes.TIMESTAMP_LTZ(0), EvaluationContext(zone)
    shown = dt.datetime(1970, 1, 1) + dt.timedelta(hours=hours)
    column = pa.array([0], arrow_type(ltz))
    assert run(cast(Column(ltz, 0), DataTypes.TIMESTAMP(0)), column, context=context) == [shown]
    assert run(call("FROM_UNIXTIME", [Column(BIGINT, 0)]), pa.array([0]), context=context) == [str(shown)]
    seconds = run(call("UNIX_TIMESTAMP", [Column(STRING, 0)]), pa.array([str(shown)]), context=context)
    assert seconds == [0]


def test_timestamps_out_of_nanosecond_range_are_rejected() -> None:
    days = pa.array([None, 0, 2932896], pa.date32())
    day, nine = Column(DataTypes.DATE(), 0), DataTypes.TIMESTAMP(9)
    assert run(cast(cast(day, nine), DataTypes.DATE()), days.slice(0, 2)) == [None, dt.date(1970, 1, 1)]
    with pytest.raises(TableException, match="holds the years 1678 to 2261"):
        run(cast(day, nine), days)
    with pytest.raises(TableException, match="holds the years 1678 to 2261"):
        run(cast(cast(day, DataTypes.TIMESTAMP(3)), nine), days)
    with pytest.raises(TableException, match="holds the years 1678 to 2261"):
        run(cast(Column(STRING, 0), nine), pa.array(["9999-12-31 00:00:00"]))
    assert run(cast(Column(STRING, 0), nine, lenient=True), pa.array(["9999-12-31 00:00:00"])) == [None]


def test_time_zone_rejects_unknown_names() -> None:
    ltz = DataTypes.TIMESTAMP_LTZ(0)
    with pytest.raises(ValidationException, match="Invalid time zone 'Nowhere'"):
        run(cast(Column(ltz, 0), STRING), pa.array([0], arrow_type(ltz)), context=EvaluationContext("Nowhere"))


def test_current_timestamp_per_batch_in_streaming_and_once_in_batch() -> None:
    now = [1_700_000_000_000]
    stream = EvaluationContext(clock=lambda: now[0])
    read = compiled(call("CURRENT_TIMESTAMP", []), stream)
    first = read(Batch([], rows=1))[0].value
    now[0] += 5000
    assert read(Batch([], rows=1))[0].value == first + 5000
    fixed = compiled(call("NOW", []), EvaluationContext(batch=True, clock=lambda: now[0], query_start=7))
    assert fixed(Batch([], rows=2)).cast(pa.int64()).to_pylist() == [7, 7]
    marked = EvaluationContext(watermark=lambda: 42)
    column = Column(DataTypes.TIMESTAMP(3), 0)
    assert (
        compiled(call("CURRENT_WATERMARK", [column]), marked)(Batch([pa.array([1], pa.timestamp("ms"))]))[0].value == 42
    )


# --- conversion from and to Python


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (DataTypes.TINYINT(), [1, None, -128]),
        (BIGINT, [2**62, None]),
        (DOUBLE, [1.5, None]),
        (DataTypes.BOOLEAN(), [True, None]),
        (STRING, ["a", None, "\u4f60"]),
        (DataTypes.BYTES(), [b"a", None]),
        (DataTypes.DECIMAL(5, 2), [decimal.Decimal("1.25"), None]),
        (DataTypes.DATE(), [dt.date(2024, 2, 29), None]),
        (DataTypes.TIME(3), [dt.time(10, 11, 12, 345000), None]),
        (DataTypes.TIMESTAMP(6), [dt.datetime(2024, 2, 29, 1, 2, 3, 456789), None]),
        (DataTypes.TIMESTAMP(9), [dt.datetime(2024, 2, 29, 1, 2, 3, 456789), None]),
        (DataTypes.INTERVAL(DataTypes.DAY()), [dt.timedelta(days=1), None]),
        (DataTypes.ARRAY(INT), [[1, None], None, []]),
        (DataTypes.MAP(STRING, DataTypes.TIMESTAMP(3)), [{"a": dt.datetime(2024, 1, 1)}, None]),
        (DataTypes.ROW([DataTypes.FIELD("a", INT), DataTypes.FIELD("b", STRING)]), [Row(a=1, b="x"), None]),
        (DataTypes.ARRAY(DataTypes.ROW([DataTypes.FIELD("a", INT)])), [[Row(a=1), None]]),
    ],
)
def test_value_conversion_round_trips(kind: DataType, values: list[Any]) -> None:
    column = to_column(values, kind)
    assert column.type == arrow_type(kind)
    assert to_python(column, kind) == values


def test_value_conversion_casts_or_rejects_with_the_row() -> None:
    two = DataTypes.DECIMAL(4, 2)
    values = [decimal.Decimal("1.235"), 7, decimal.Decimal("123456")]
    assert to_python(to_column(values, two), two) == [decimal.Decimal("1.24"), decimal.Decimal("7.00"), None]
    ltz = DataTypes.TIMESTAMP_LTZ(3)
    noon = dt.datetime(2024, 1, 1, 12)
    assert to_column([noon, Instant(1, 5_000_000)], ltz, "Asia/Tokyo").cast(pa.int64()).to_pylist() == [
        1704078000000,
        1005,
    ]
    assert to_python(to_column([noon], ltz, "Asia/Tokyo"), ltz, "Asia/Tokyo")[0].replace(tzinfo=None) == noon
    with pytest.raises(TypeMismatchError, match=r"'x' of type str \(row 2\) is not one of type INT"):
        to_column([1, "x"], INT)
    with pytest.raises(TypeMismatchError, match="is not one of type STRING"):
        to_column([1], STRING)
    with pytest.raises(TypeMismatchError, match="300"):
        to_column([300], DataTypes.TINYINT())


def test_inferred_type_of_values() -> None:
    inferred = {
        "BIGINT": 1,
        "DOUBLE": 1.5,
        "BOOLEAN": True,
        "STRING": "a",
        "ARRAY<BIGINT>": [None, 1],
        "MAP<STRING NOT NULL, BIGINT>": {"a": 1},
        "ROW<`a` BIGINT, `b` STRING>": Row(a=1, b="x"),
        "ROW<`_1` BIGINT, `_2` STRING>": (1, "x"),
        "DATE": dt.date(2024, 1, 1),
        "DECIMAL(38, 18)": decimal.Decimal(1),
        "NULL": None,
    }
    assert {str(inferred_type(v)): v for v in inferred.values()} == inferred
    with pytest.raises(TypeMismatchError, match="pass a schema"):
        inferred_type(object())


# --- semantics of Java


def test_number_text_matches_java() -> None:
    texts = ["0.0", "-0.0", "1.0", "0.001", "9.99E-4", "9999999.0", "1.0E7", "1.23456789E8", "1.0E-5", "4.9E-324"]
    texts += ["1.7976931348623157E308", "NaN", "Infinity", "-Infinity", "100.0", "-2.5", "1.0E10", "0.1", "123456.789"]
    assert [java_double(float(text)) for text in texts] == texts
    column = pa.array([float(text) for text in texts])
    assert to_text(column, DOUBLE).to_pylist() == texts
    floats = pa.array([0.1, 1e10, 1.5, 16777216.0, None], pa.float32())
    assert to_text(floats, DataTypes.FLOAT()).to_pylist() == ["0.1", "1.0E10", "1.5", "1.6777216E7", None]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"[a-z&&[^bc]]+", "abcd", "a"),
        (r"[a[x-z]]+", "byazb", "yaz"),
        (r"(?i)abc", "xABCx", "ABC"),
        (r"a(?i)b|C", "aBc", "aB"),
        (r"\p{Alpha}+", "12ab\u00e9", "ab"),
        (r"\p{Lu}", "a\u00c9", "\u00c9"),
        (r"\P{Digit}+", "1ab2", "ab"),
        (r"(?<y>\d{4})-\k<y>", "2024-2024", "2024-2024"),
        (r"\Qa.b\E+", "xa.bbb", "a.bbb"),
        (r"a++b", "aaab", "aaab"),
        (r"a++ab", "aaab", None),
        (r"\h+", "a \tb", " \t"),
        (r"x.y", "x\ry", None),
        (r"(?s)x.y", "x\ry", "x\ry"),
        (r"b$", "ab\n", "b"),
        (r"\x{41}\u0042\x43", "ABC", "ABC"),
        (r"(?x) a b # comment", "ab", "ab"),
        (r"[\w&&[^\d]]+", "12ab", "ab"),
        (r"[^\d\s]+", "1 ab", "ab"),
        (r"[]a]+", "]a", "]a"),
        (r"[a-]+", "-a", "-a"),
        (r"\d+(?=px)", "10em 12px", "12"),
    ],
)
def test_java_regex_matches(pattern: str, text: str, expected: str | None) -> None:
    match = java_pattern(pattern).python.search(text)
    assert (None if match is None else match.group()) == expected


def test_java_regex_rejects_patterns_invalid_in_java() -> None:
    for pattern in ("(", "a)", "[a", "\\p{Nope}", "x{2,1}", "*a"):
        with pytest.raises(BadPattern):
            java_pattern(pattern)


def test_java_random_sequence() -> None:
    random = JavaRandom(42)
    assert [random.next_int(10) for _ in range(5)] == [0, 3, 8, 4, 0]
    assert JavaRandom(42).next_double() == 0.7275636800328681


# --- errors


def test_function_argument_errors_match_flink() -> None:
    with pytest.raises(ValidationException, match=r"No match found for function signature nope\(<NUMERIC>\)"):
        call("nope", [of(1, INT)])
    with pytest.raises(ValidationException) as refused:
        call("UPPER", [of(1, INT)])
    assert str(refused.value) == (
        "Cannot apply 'UPPER' to arguments of type 'UPPER(<INTEGER>)'. Supported form(s): 'UPPER(<CHARACTER>)'"
    )
    with pytest.raises(ValidationException, match="cannot convert value of type INT NOT NULL to type DATE"):
        cast(of(1, INT), DataTypes.DATE())
    with pytest.raises(TableException, match="For input string: 'abc'. Invalid character found."):
        run(cast(Column(STRING, 0), INT), pa.array(["1", "abc"]))
    assert run(cast(Column(STRING, 0), INT, lenient=True), pa.array(["1", "abc"])) == [1, None]


# --- results recorded from Flink


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(batch=True)


def test_function_types_and_values_match_recorded_flink(session: Session) -> None:
    differ: list[str] = []
    reasons: Counter[str] = Counter()
    lines = read_recorded(VALUES)
    for reported, value, text in lines:
        ours = evaluated(text, session.binder)
        if agrees(text, reported, value, *ours):
            continue
        reason = reason_of(text, reported, value)
        reasons[reason or ""] += 1
        if reason is None:
            differ.append(f"{text}: {ours}, Flink {reported}, {value}")
    assert differ == []
    assert len(lines) > 7_000
    assert sum(reasons.values()) < len(lines) / 20


def test_functions_on_columns_equal_constants(session: Session) -> None:
    """Every eighth expression, with each constant in a column that is a slice of a longer one."""
    differ = []
    for _, _, text in read_recorded(VALUES)[::8]:
        if any(word in text for word in ("RAND", "UUID", "NOW()", "CURRENT_", "LOCALTIME")):
            continue
        try:
            expression = bound(text, session.binder)
        except (ValidationException, SqlParserException):
            continue
        columns: list[pa.Array] = []
        over_columns = replaced(expression, lambda part, columns=columns: _as_column(part, columns))  # type: ignore[misc]
        if columns:
            constant = _outcome(expression, Batch([], rows=1))
            varying = _outcome(over_columns, Batch(columns))
            if varying != constant * 2 and not (constant == varying == ["!"]):
                differ.append(f"{text}: {varying}, of constants {constant}")
            none = _outcome(over_columns, Batch([column.slice(0, 0) for column in columns]))
            if none not in ([], ["!"]):
                differ.append(f"{text}: {none} of no rows")
    assert differ == []


def _as_column(part: Expression, columns: list[pa.Array]) -> Expression | None:
    if not isinstance(part, Constant):
        return None
    kind = arrow_type(part.type)
    columns.append(from_stored([None, part.value, part.value, None, part.value], kind).slice(1, 2))
    return Column(part.type, len(columns) - 1)


def _outcome(expression: Expression, batch: Batch) -> list[Any]:
    try:
        return to_text(compiled(expression, CONTEXT)(batch), expression.type).to_pylist()  # type: ignore[no-any-return]
    except TableException:
        return ["!"]


def test_aggregate_types_match_recorded_flink(session: Session) -> None:
    differ = []
    for reported, text in read_recorded(AGGREGATES):
        try:
            ours = str(session.bound(f"SELECT {text}").fields[0].type)
        except (ValidationException, SqlParserException):
            ours = "!"
        if ours != reported and aggregate_reason(text) is None:
            differ.append(f"{text}: {ours}, Flink {reported}")
    assert differ == []


@pytest.fixture(scope="module")
def t_env() -> TableEnvironment:
    environment = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    environment.get_config().set("millstream.engine", "local").set("table.local-time-zone", "UTC")
    return environment


_TEXTS = (
    "(VALUES ('a', 'b', '-'), (CAST(NULL AS STRING), CAST(NULL AS STRING), '-'), ('x', CAST(NULL AS STRING), '-'), "
    "(CAST(NULL AS STRING), 'y', CAST(NULL AS STRING)), ('', '', '+')) AS t(a, b, s)"
)


@pytest.mark.parametrize(
    "query, rows",
    [
        # Arrow's kernel leaves out rows in which all values are null.
        (f"SELECT CONCAT_WS(s, a, b) FROM {_TEXTS}", ["a-b", "", "x", None, "+"]),
        (f"SELECT CONCAT_WS('/', a) FROM {_TEXTS}", ["a", "", "x", "", ""]),
        ("SELECT CONCAT_WS('/', CAST(NULL AS STRING))", [""]),
        # Empty text.
        ("SELECT * FROM (VALUES (''), ('')) AS t(a)", ["", ""]),
        ("SELECT COALESCE('', '')", [""]),
        ("SELECT CASE WHEN 1 = 2 THEN '' ELSE '' END", [""]),
        # Instants.
        (
            "SELECT GREATEST(a, b) FROM (VALUES (TO_TIMESTAMP_LTZ(0, 3), TO_TIMESTAMP_LTZ(1000, 3))) AS t(a, b)",
            [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)],
        ),
    ],
)
def test_function_query_results(t_env: TableEnvironment, query: str, rows: list[object]) -> None:
    assert [row[0] for row in t_env.execute_sql(query).collect()] == rows


_REFUSED = ["ENDSWITH(x'41', 'a')", "DAYOFWEEK(INTERVAL '1' DAY)", "WEEK(INTERVAL '1' DAY)", "FIELD()"]


@pytest.mark.parametrize("call", _REFUSED)
def test_functions_reject_invalid_arguments(t_env: TableEnvironment, call: str) -> None:
    with pytest.raises(ValidationException, match="Cannot apply"):
        t_env.sql_query(f"SELECT {call}")
