"""Errors of user programs: Flink's message and class, the position and the fix."""

from __future__ import annotations

import datetime
import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from millstream.common.errors import MillstreamError
from millstream.sql.errors import SqlParserException, TableException, ValidationException
from millstream.table import DataTypes, EnvironmentSettings, StreamTableEnvironment
from millstream.table.udf import udf, udtf
from millstream.testing import LocalEnvironment, ValuesTable


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    env = StreamTableEnvironment.create(LocalEnvironment())
    source = ValuesTable([(1, "abc"), (0, "2"), (None, None)], batch_rows=2)
    env.execute_sql(f"CREATE TABLE t (a INT, s STRING) WITH {source.options}")
    env.execute_sql(f"CREATE TABLE o (a INT NOT NULL, s STRING) WITH {ValuesTable().options}")
    env.execute_sql("CREATE TABLE w (d TIMESTAMP(3), WATERMARK FOR d AS d) WITH ('connector' = 'datagen')")
    env.execute_sql(f"CREATE TABLE c (f CHAR(3), b BINARY(2)) WITH {ValuesTable().options}")
    return env


def run(t_env: StreamTableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    result = t_env.execute_sql(statement)
    if statement.startswith("INSERT"):
        result.wait()
        return []
    return [tuple(r) for r in result.collect()]


_UNENFORCED = "Flink doesn't support ENFORCED mode for PRIMARY KEY constraint"
_SINK = "Column types of query result and sink for 'default_catalog.default_database.o' do not match.\nCause: "
ERRORS: list[tuple[str, type[Exception], str]] = [
    # bad syntax
    ("SELEC 1", SqlParserException, "SQL parse failed. Encountered 'SELEC', expected SELECT"),
    ("SELECT a\nFROM t WHERE", SqlParserException, "at line 2, column 13.\n    FROM t WHERE\n                ^"),
    # unknown table, column, function
    ("SELECT * FROM x", ValidationException, "At line 1, column 15: Object 'x' not found"),
    ("SELECT x FROM t", ValidationException, "At line 1, column 8: Column 'x' not found in any table"),
    ("SELECT F(a) FROM t", ValidationException, "No match found for function signature F(<NUMERIC>)"),
    # invalid queries
    ("SELECT *", ValidationException, "SELECT * requires a FROM clause"),
    ("SELECT MAP[NULL, 1]", ValidationException, "A key of a MAP cannot be NULL"),
    ("SELECT INTERVAL 'x' SECOND", ValidationException, "Illegal interval literal format 'x' for INTERVAL SECOND"),
    ("SELECT INTERVAL '1_0' DAY", ValidationException, "Illegal interval literal format '1_0' for INTERVAL DAY"),
    ("SELECT INTERVAL TRUE DAY", ValidationException, "INTERVAL takes a number, not a BOOLEAN"),
    ("SELECT COUNT(*) OVER w FROM t WINDOW w AS (w PARTITION BY a)", ValidationException, "Window 'w' not found"),
    ("SELECT CAST(a AS TIMESTAMP) FROM t", ValidationException, "cast from NUMERIC type to TIMESTAMP type is not"),
    # wrong types
    ("SELECT a + s FROM t", ValidationException, "Cannot apply '+' to arguments of type '<INTEGER> + <VARCHAR("),
    # not grouped
    ("SELECT a, COUNT(*) FROM t", ValidationException, "Expression 'a' is not being grouped"),
    # sink
    ("INSERT INTO o SELECT a FROM t", ValidationException, f"{_SINK}Different number of columns."),
    (
        "INSERT INTO o SELECT s, s FROM t",
        ValidationException,
        f"{_SINK}Incompatible types for sink column 'a' at position 1.\n\n"
        "Query schema: [s: STRING, s0: STRING]\nSink schema:  [a: INT NOT NULL, s: STRING]",
    ),
    (
        "INSERT INTO c SELECT s, x'01' FROM t",
        ValidationException,
        "Incompatible types for sink column 'f' at position 1",
    ),
    (
        "INSERT INTO c SELECT 'abc', ENCODE(s, 'UTF-8') FROM t",
        ValidationException,
        "for sink column 'b' at position 2.",
    ),
    # relations
    ("SELECT * FROM t AS x JOIN t AS y", ValidationException, "INNER, LEFT, RIGHT or FULL join requires a condition"),
    ("SELECT * FROM t AS x CROSS JOIN t AS y ON TRUE", ValidationException, "Cannot specify condition (NATURAL"),
    ("SELECT 1 FROM t, t", ValidationException, "Duplicate relation name 't' in FROM clause"),
    ("SELECT * FROM t AS x(a, a)", ValidationException, "Duplicate name 'a' in column alias list"),
    ("SELECT * FROM t TABLESAMPLE BERNOULLI(10)", SqlParserException, "WHERE RAND() < 0.1 samples a tenth of the rows"),
    # streaming
    ("SELECT * FROM t ORDER BY a", TableException, "Sort on a non-time-attribute field is not supported"),
    (
        "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(a), INTERVAL '1' SECOND))",
        ValidationException,
        "The window function requires the timecol is a time attribute type, but is INT: declare WATERMARK FOR a",
    ),
    # set operations
    ("SELECT a FROM t UNION ALL SELECT a, s FROM t", ValidationException, "Column count mismatch in UNION ALL"),
    # DDL
    (
        "CREATE TABLE o (a INT) WITH ('connector' = 'print')",
        ValidationException,
        "Table (or view) default_database.o already exists in Catalog default_catalog.",
    ),
    ("CREATE TABLE n (a INT, PRIMARY KEY (a)) WITH ('connector' = 'print')", SqlParserException, _UNENFORCED),
    (
        "CREATE TABLE n (d TIMESTAMP(3), WATERMARK FOR d AS d, WATERMARK FOR d AS d) WITH ('connector' = 'print')",
        SqlParserException,
        "Multiple WATERMARK declarations",
    ),
    (
        "CREATE TABLE n (d INT, WATERMARK FOR d AS d) WITH ('connector' = 'print')",
        ValidationException,
        "Invalid data type of time field for watermark definition",
    ),
    # run time
    ("SELECT CAST(s AS INT) FROM t", MillstreamError, "For input string: 'abc'. Invalid character found."),
    ("SELECT CAST('1234' AS DECIMAL(4, 2))", MillstreamError, "For input string: '1234'. Overflow."),
    ("SELECT INSTR('a', 'a', 1, 0)", MillstreamError, "nthAppearance must be positive!"),
    ("SELECT 1 / 0", TableException, "Division by zero"),
    ("SELECT 1 / a FROM t", MillstreamError, "/ by zero"),
    (
        "INSERT INTO o SELECT a, s FROM t",
        MillstreamError,
        "Column 'a' is NOT NULL, however, a null value is being written",
    ),
    ("INSERT INTO o SELECT NULLIF(1, 1), s FROM t", MillstreamError, "Column 'a' is NOT NULL, however, a null value"),
    ("SELECT ARRAY[1][0]", ValidationException, "Array element access needs an index starting at 1 but was 0."),
    ("SELECT ROW() FROM t", ValidationException, "ROW takes at least one value"),
    ("SELECT MAP(SELECT a, a FROM t) FROM t", ValidationException, "MAP(query) is not supported; use MAP[..]"),
    ("SELECT GREATEST(ARRAY[a], ARRAY[1]) FROM t", ValidationException, "Cannot apply 'GREATEST' to arguments of type"),
    ("SELECT LEAST(ROW(a), ROW(1)) FROM t", ValidationException, "Cannot apply 'LEAST' to arguments of type"),
    ("SELECT JSON_OBJECT(KEY CAST(NULL AS STRING) VALUE a) FROM t", MillstreamError, "A key of JSON_OBJECT is null"),
]


@pytest.mark.parametrize(("statement", "kind", "error_text"), ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_sql_errors_match_flink(
    t_env: StreamTableEnvironment, statement: str, kind: type[Exception], error_text: str
) -> None:
    with pytest.raises(kind) as error:
        run(t_env, statement)
    assert error_text in str(error.value)


def test_runtime_error_names_operator_line_and_row(t_env: StreamTableEnvironment) -> None:
    with pytest.raises(MillstreamError) as error:
        run(t_env, "SELECT 1 / a FROM t")
    lines = str(error.value).splitlines()
    assert lines[0].endswith("/ by zero")
    assert lines[1].startswith("in operator 'Calc(select=[(1 / a) AS EXPR$0])'")
    assert "made at test_errors.py:" in lines[1]
    assert lines[2].startswith("record: a batch of 2 rows: (1,), (0,)")


def test_not_null_enforcer_drops_rows_with_nulls(t_env: StreamTableEnvironment) -> None:
    sink = ValuesTable()
    t_env.execute_sql(f"CREATE TABLE kept (a INT NOT NULL) WITH {sink.options}")
    t_env.get_config().set("table.exec.sink.not-null-enforcer", "DROP")
    run(t_env, "INSERT INTO kept SELECT NULLIF(a, 0) FROM t")
    assert sink.final() == [(1,)]


def test_type_length_enforcer_modes(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    columns = "a CHAR(3), b VARCHAR(3), c BINARY(2), d VARBINARY(2)"
    needed = "a CHAR(3) NOT NULL, b VARCHAR(3), c BINARY(2), d VARBINARY(2)"
    # The file's values exceed the declared lengths because they were not checked.
    rows = ('"ä", "ab", "AQI=", "AQ=="', '"abcd", "abcd", "AQ==", "AQID"', "null, null, null, null")
    lines = [dict(zip("abcd", json.loads(f"[{row}]"), strict=True)) for row in rows]
    (tmp_path / "x.json").write_text("\n".join(map(json.dumps, lines)))
    t_env.execute_sql(
        f"CREATE TABLE s ({columns}) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json')"
    )

    def written(mode: str, query: str = "SELECT * FROM s", columns: str = columns) -> Any:
        sink = ValuesTable()
        t_env.get_config().set("table.exec.sink.type-length-enforcer", mode)
        t_env.execute_sql("DROP TABLE IF EXISTS limited")
        t_env.execute_sql(f"CREATE TABLE limited ({columns}) WITH {sink.options}")
        run(t_env, f"INSERT INTO limited {query}")
        return set(sink.final())

    nulls = (None,) * 4
    assert written("IGNORE") == {("ä", "ab", b"\1\2", b"\1"), ("abcd", "abcd", b"\1", b"\1\2\3"), nulls}
    assert written("trim_pad") == {("ä  ", "ab", b"\1\2", b"\1"), ("abc", "abc", b"\1\0", b"\1\2"), nulls}
    for column, error_text in (
        ("a, 'x', c, d", r"Column 'a' is CHAR\(3\), however, a string of length 1 is being written into it"),
        ("'abc', b, c, d", r"Column 'b' is VARCHAR\(3\), however, a string of length 4 is being written"),
        ("'abc', 'b', c, d", r"Column 'c' is BINARY\(2\), however, a string of length 1 is being written"),
        ("'abc', 'b', x'0102', d", r"Column 'd' is VARBINARY\(2\), however, a string of length 3 is"),
    ):
        with pytest.raises(MillstreamError, match=error_text):
            written("ERROR", f"SELECT {column} FROM s")
    with pytest.raises(MillstreamError, match=r"Column 'a' is CHAR\(3\), however, a string of length 1 is"):
        written("ERROR", "SELECT a, 'x', c, d FROM s WHERE a IS NOT NULL", needed)
    with pytest.raises(TableException, match="IGNORE, TRIM_PAD or ERROR, not 'CUT'"):
        written("CUT")


@pytest.mark.parametrize(
    ("statement", "word"),
    [("UPDATE t SET a = 1", "UPDATE"), ("DELETE FROM t WHERE a = 1", "DELETE"), ("TRUNCATE TABLE t", "TRUNCATE")],
)
def test_update_and_delete_are_rejected(statement: str, word: str) -> None:
    for settings, error_text in (
        (EnvironmentSettings.in_streaming_mode(), "for streaming mode now"),
        (EnvironmentSettings.in_batch_mode(), "for table t: no connector can change rows yet"),
    ):
        t_env = StreamTableEnvironment.create(LocalEnvironment(), settings)
        with pytest.raises(TableException, match=f"{word} statement is not supported {error_text}"):
            t_env.execute_sql(statement)
    with pytest.raises(TableException, match="QUIT is a statement for a client"):
        t_env.execute_sql("QUIT")


@pytest.mark.parametrize(
    ("key", "value", "error_text"),
    [
        ("table.exec.legacy-cast-behaviour", "enabled", "use TRY_CAST"),
        ("table.column-expansion-strategy", "EXCLUDE_DEFAULT_VIRTUAL_METADATA_COLUMNS", "list the columns"),
        ("table.sql-dialect", "hive", "write Flink's own SQL"),
    ],
)
def test_unsupported_options_are_rejected(t_env: StreamTableEnvironment, key: str, value: str, error_text: str) -> None:
    t_env.get_config().set(key, value)
    with pytest.raises(TableException, match=f"'{key}' = '{value}' is not supported yet: .*{error_text}"):
        t_env.execute_sql("SELECT a FROM t")
    # Values equal to the default are accepted.
    t_env.get_config().set(key, {"true": "false", "1 min": "0", "hive": "default", "ERROR": "TRIM_PAD"}.get(value, ""))
    assert len(run(t_env, "SELECT a FROM t")) == 3


def test_invalid_option_values_are_rejected(t_env: StreamTableEnvironment) -> None:
    t_env.get_config().set("table.exec.sink.not-null-enforcer", "SOMETIMES")
    with pytest.raises(TableException, match="Could not parse value 'SOMETIMES' .* It is one of ERROR, DROP"):
        run(t_env, "SELECT 1")
    with pytest.raises(ValidationException, match="Invalid time zone 'Nope/Zone'"):
        t_env.get_config().set_local_timezone("Nope/Zone")


def test_dynamic_table_options_can_be_disabled(t_env: StreamTableEnvironment) -> None:
    t_env.get_config().set("table.dynamic-table-options.enabled", "false")
    with pytest.raises(ValidationException, match="The 'OPTIONS' hint is allowed only when"):
        run(t_env, "SELECT a FROM t /*+ OPTIONS('k' = 'v') */")


# --- bad input


def test_null_rowtime_raises_with_a_hint(t_env: StreamTableEnvironment) -> None:
    rows = [(1, datetime.datetime(2024, 1, 1)), (2, None)]
    t_env.execute_sql(
        f"CREATE TABLE timed (a INT, d TIMESTAMP(3), WATERMARK FOR d AS d) WITH {ValuesTable(rows).options}"
    )
    with pytest.raises(MillstreamError, match="RowTime field should not be null") as error:
        run(t_env, "SELECT a FROM timed")
    assert "WatermarkAssigner(rowtime=[d], watermark=[d])" in str(error.value)
    assert "(2, None)" in str(error.value)
    assert "such as `ts AS COALESCE(" in str(error.value)


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(12345.678 AS DECIMAL(5, 2))",
        "CAST(x AS DECIMAL(5, 2))",
        "x * x",
        "SUM(x)",
    ],
)
def test_decimal_overflow_is_null(t_env: StreamTableEnvironment, expression: str) -> None:
    max_digits = "9" * 38
    rows = ", ".join([f"(CAST('{max_digits}' AS DECIMAL(38, 0)))"] * 2)
    assert run(t_env, f"SELECT {expression} FROM (VALUES {rows}) AS v(x)")[-1] == (None,)
    assert run(t_env, "SELECT CAST('123.456' AS DECIMAL(5, 2))") == [(Decimal("123.46"),)]


@udf(result_type=DataTypes.INT())
def text_for_a_number(a: int) -> Any:
    return "text"


@udf(result_type=DataTypes.INT(), func_type="pandas")
def one_too_few(a: pd.Series) -> pd.Series:
    return a[1:]


@udf(result_type=DataTypes.INT(), func_type="pandas")
def texts_for_numbers(a: pd.Series) -> pd.Series:
    return a.astype(str) + "x"


@udf(result_type=DataTypes.INT(), func_type="pandas")
def no_series(a: pd.Series) -> Any:
    return 1


@udf(result_type=DataTypes.INT())
def fails(a: int) -> int:
    return {}["nothing"]  # type: ignore[index]


@udtf(result_types=[DataTypes.INT(), DataTypes.INT()])
def one_for_two(a: int) -> Any:
    yield a


@pytest.mark.parametrize(
    ("function", "error_text"),
    [
        (
            text_for_a_number,
            r"The function text_for_a_number has returned .* The value 'text' of type str \(row 1\) is not",
        ),
        (one_too_few, r"The pandas function one_too_few has returned 1 values for 2 rows"),
        (texts_for_numbers, r"The pandas function texts_for_numbers has returned values of another type than INT"),
        (no_series, r"The pandas function no_series has returned .*: it must return a pandas.Series"),
        (one_for_two, r"The table function one_for_two returned the row 1 of 1 values, and its result_types have 2"),
    ],
)
def test_udf_result_of_another_type_raises(t_env: StreamTableEnvironment, function: Any, error_text: str) -> None:
    t_env.create_temporary_system_function("f", function)
    query = "SELECT x FROM t, LATERAL TABLE(f(a)) AS p(x, y)" if function is one_for_two else "SELECT f(a) FROM t"
    with pytest.raises(MillstreamError, match=error_text):
        run(t_env, f"{query} WHERE a IS NOT NULL")


def test_udf_error_shows_user_lines_first(t_env: StreamTableEnvironment) -> None:
    t_env.create_temporary_system_function("f", fails)
    with pytest.raises(MillstreamError) as error:
        run(t_env, "SELECT f(a) FROM t")
    lines = str(error.value).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("in fails")
    assert lines[2].strip() == 'return {}["nothing"]  # type: ignore[index]'
    assert "KeyError: 'nothing'" in lines
    assert "in the function fails, for the row (1)" in lines


def test_missing_table_or_file_is_reported(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    t_env.execute_sql("CREATE VIEW v AS SELECT a FROM t")
    t_env.execute_sql("DROP TABLE t")
    with pytest.raises(ValidationException, match="Object 't' not found"):
        run(t_env, "SELECT * FROM t")
    with pytest.raises(ValidationException, match="Object 't' not found"):
        run(t_env, "SELECT * FROM v")
    with pytest.raises(ValidationException, match="Cannot find table '`default_catalog`.`default_database`.`t`'"):
        run(t_env, "INSERT INTO t SELECT 1, 'x'")
    t_env.execute_sql(
        f"CREATE TABLE files (a INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/gone', 'format' = 'json')"
    )
    with pytest.raises(MillstreamError, match=r"files.*there is no file or directory .*/gone"):
        run(t_env, "SELECT * FROM files")


_COUNTS = "SELECT k, COUNT(*) AS n FROM endless GROUP BY k"


@pytest.mark.parametrize(
    ("query", "error_text"),
    [
        (
            _COUNTS,
            "GroupAggregate(groupBy=[k], select=[k, COUNT(*) AS n]) stores a row for every value of k without bound",
        ),
        ("SELECT e.n FROM endless AS e JOIN t ON e.n = t.a", "Join(joinType=[InnerJoin], "),
        (
            "SELECT e.n FROM endless AS e JOIN t ON e.n = t.a",
            " stores every row of both inputs by n and a without bound",
        ),
        ("SELECT k FROM endless INTERSECT SELECT s FROM t", " stores every row by k without bound"),
        (
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n) AS r FROM endless) WHERE r < 3",
            " of k without bound",
        ),
    ],
)
def test_unbounded_state_warning_names_operator_and_key(
    t_env: StreamTableEnvironment, caplog: pytest.LogCaptureFixture, query: str, error_text: str
) -> None:
    t_env.execute_sql("CREATE TABLE endless (k STRING, n INT, p AS PROCTIME()) WITH ('connector' = 'datagen')")
    with caplog.at_level(logging.WARNING, "millstream"), t_env.execute_sql(query).collect():
        pass
    (reported,) = (r.getMessage() for r in caplog.records if "without bound" in r.getMessage())
    assert error_text in reported
    assert "Set 'table.exec.state.ttl'" in reported


@pytest.mark.parametrize(
    ("setting", "query"),
    [
        ("1 h", _COUNTS),
        ("0", "SELECT COUNT(*) FROM endless"),
        ("0", "SELECT s, COUNT(*) FROM t GROUP BY s"),
        (
            "0",
            "SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE endless, DESCRIPTOR(p), INTERVAL '1' SECOND)) "
            "GROUP BY k, window_start, window_end",
        ),
    ],
)
def test_bounded_state_does_not_warn(
    t_env: StreamTableEnvironment, caplog: pytest.LogCaptureFixture, setting: str, query: str
) -> None:
    t_env.get_config().set("table.exec.state.ttl", setting)
    t_env.execute_sql("CREATE TABLE endless (k STRING, n INT, p AS PROCTIME()) WITH ('connector' = 'datagen')")
    with caplog.at_level(logging.WARNING, "millstream"), t_env.execute_sql(query).collect():
        pass
    assert not [r for r in caplog.records if "without bound" in r.getMessage()]
