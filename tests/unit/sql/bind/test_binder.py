"""The binder: name resolution, types and names of columns, and Flink's error messages."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from millstream.sql.bind.scope import BindError
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Column, Constant, UserCall
from millstream.sql.language import syntax
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.language.statements import QueryStatement
from millstream.sql.plan import nodes as n
from millstream.sql.types import DataTypes
from tests.support.paths import TESTS
from tests.support.sql_planning import Scalar, Session

RECORDED = TESTS / "sql" / "types.tsv.gz"


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


# --- types


def test_binder_types_match_7500_recorded_expressions(session: Session) -> None:
    """The binder infers Flink's types for expressions over values of all types (tests/sql/flink/Evaluate.java)."""
    differ = []
    with gzip.open(RECORDED, "rt") as lines:
        for line in lines:
            expected, expression = line.rstrip("\n").split("\t")[:2]
            if expected.startswith("!"):
                continue
            statement = read_statement(f"SELECT {expression}")
            assert isinstance(statement, QueryStatement)
            try:
                actual = str(session.binder.query(statement.query).fields[0].type)
            except ValidationException:
                actual = "refused"
            if actual != expected:
                differ.append((expression, expected, actual))
    # Flink mixes numbers and dates in CASE, COALESCE and TRY_CAST, casts a null INT to a TIMESTAMP, and lets arrays,
    # maps and rows be compared by `<`, which then fails.
    known = ("CASE", "TRY_CAST", "COALESCE", "] < ", ") < ", "CAST(CAST(NULL AS INT) AS TIMESTAMP")
    assert [d for d in differ if not any(w in d[0] for w in known)] == []
    assert len(differ) <= 125


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT a, b + 1, c AS x FROM t", ["a INT", "EXPR$1 BIGINT", "x STRING"]),
        ("SELECT r.f, t.r.g, r FROM t", ["f INT", "g STRING", "r ROW<`f` INT, `g` STRING>"]),
        ("SELECT r.* FROM t", ["f INT", "g STRING"]),
        ("SELECT t.r.* FROM t", ["f INT", "g STRING"]),
        ("SELECT arr[1] FROM t", ["EXPR$0 INT"]),
        ("SELECT a, a, a AS a FROM t", ["a INT", "a0 INT", "a1 INT"]),
        ("SELECT default_catalog.default_database.t.a FROM t", ["a INT"]),
        ("SELECT x.a FROM t AS x", ["a INT"]),
        ("SELECT i FROM (SELECT a, b FROM t) AS q(i, j)", ["i INT"]),
        ("SELECT COUNT(*), COUNT(a), SUM(b), AVG(a) FROM t", [f"EXPR${i} BIGINT NOT NULL" for i in range(2)]
         + ["EXPR$2 BIGINT", "EXPR$3 INT"]),
        ("SELECT k, SUM(k) FROM u GROUP BY k", ["k INT NOT NULL", "EXPR$1 INT NOT NULL"]),
        ("SELECT SUM(k) FROM u", ["EXPR$0 INT"]),
        ("SELECT SUM(k) FILTER (WHERE v = 'x') FROM u GROUP BY k", ["EXPR$0 INT"]),
        ("SELECT CASE WHEN a > 1 THEN 1 ELSE 2.5 END FROM t", ["EXPR$0 DECIMAL(11, 1) NOT NULL"]),
        ("SELECT a BETWEEN 1 AND 2, a IN (1, 2), c LIKE 'x%', a IS NULL FROM t",
         ["EXPR$0 BOOLEAN", "EXPR$1 BOOLEAN", "EXPR$2 BOOLEAN", "EXPR$3 BOOLEAN NOT NULL"]),
        ("SELECT a FROM t UNION ALL SELECT b FROM t", ["a BIGINT"]),
        ("SELECT 'a' UNION ALL SELECT 'bcd'", ["EXPR$0 VARCHAR(3) NOT NULL"]),
        ("VALUES (1, 'a', NULL), (2000000000000, 'bc', 1.5)",
         ["EXPR$0 BIGINT NOT NULL", "EXPR$1 VARCHAR(2) NOT NULL", "EXPR$2 DECIMAL(2, 1)"]),
        ("SELECT t.a, v FROM t LEFT JOIN u ON t.a = u.k", ["a INT", "v STRING"]),
        ("SELECT k FROM t LEFT JOIN u ON t.a = u.k", ["k INT"]),
        ("SELECT a, (SELECT MAX(v) FROM u) FROM t", ["a INT", "EXPR$1 STRING"]),
        ("WITH q AS (SELECT a AS z FROM t), w(y) AS (SELECT z FROM q) SELECT * FROM w", ["y INT"]),
        ("SELECT e FROM t CROSS JOIN UNNEST(arr) AS x(e)", ["e INT"]),
        ("SELECT e, o FROM t LEFT JOIN UNNEST(arr) WITH ORDINALITY AS x(e, o) ON TRUE", ["e INT", "o INT"]),
        ("SELECT INTERVAL '1' DAY, DATE '2024-01-01', TIMESTAMP '2024-01-01 00:00:00.123', x'4142', 1e0, 'ab'",
         ["EXPR$0 INTERVAL SECOND(3) NOT NULL", "EXPR$1 DATE NOT NULL", "EXPR$2 TIMESTAMP(3) NOT NULL",
          "EXPR$3 BINARY(2) NOT NULL", "EXPR$4 DOUBLE NOT NULL", "EXPR$5 CHAR(2) NOT NULL"]),
    ],
)  # fmt: skip
def test_binder_column_names_and_types(session: Session, query: str, columns: list[str]) -> None:
    assert session.columns(query) == columns


def test_binder_keeps_time_attributes_until_computed(session: Session) -> None:
    assert session.columns("SELECT ts, p, ts + INTERVAL '1' SECOND AS x, CAST(ts AS TIMESTAMP(3)) AS y FROM t") == [
        "ts TIMESTAMP(3) *ROWTIME*",
        "p TIMESTAMP_LTZ(3) NOT NULL *PROCTIME*",
        "x TIMESTAMP(3)",
        "y TIMESTAMP(3)",
    ]
    assert session.columns("SELECT ts FROM t UNION ALL SELECT uts FROM u") == ["ts TIMESTAMP(3) *ROWTIME*"]
    assert session.columns("SELECT ts FROM t GROUP BY ts") == ["ts TIMESTAMP(3)"]
    assert session.columns("SELECT PROCTIME() AS q") == ["q TIMESTAMP_LTZ(3) NOT NULL *PROCTIME*"]
    window = "SELECT window_start, window_time FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    assert session.columns(window) == [
        "window_start TIMESTAMP(3) NOT NULL",
        "window_time TIMESTAMP(3) NOT NULL *ROWTIME*",
    ]


def test_binder_materializes_proctime_where_used(session: Session) -> None:
    node = session.bound("SELECT CAST(p AS STRING) FROM t")
    assert isinstance(node, n.Project)
    (cast,) = node.expressions
    assert isinstance(cast, Call)
    assert cast.arguments == (Call(DataTypes.TIMESTAMP_LTZ(3, False), "PROCTIME"),)


# --- relations


def test_binder_aggregates_are_over_columns(session: Session) -> None:
    node = session.bound("SELECT a + 1, SUM(b * 2) AS s FROM t GROUP BY a + 1 HAVING COUNT(*) > 1")
    assert isinstance(node, n.Project)
    condition = node.input
    assert isinstance(condition, n.Filter)
    aggregate = condition.input
    assert isinstance(aggregate, n.Aggregate)
    assert aggregate.keys == (0,)
    assert [(c.function, c.arguments) for c in aggregate.calls] == [("SUM", (1,)), ("COUNT", ())]
    assert isinstance(aggregate.input, n.Project)
    assert aggregate.input.fields.names == ["$f0", "$f1"]


def test_binder_grouping_sets_expand_rows(session: Session) -> None:
    node = session.bound("SELECT a, c, GROUPING(a), COUNT(*) FROM t GROUP BY CUBE (a, c)")
    assert isinstance(node, n.Project)
    aggregate = node.input
    assert isinstance(aggregate, n.Aggregate)
    expand = aggregate.input
    assert isinstance(expand, n.Expand)
    assert [row[-1] for row in expand.sets] == [Constant(DataTypes.BIGINT(False), i) for i in (0, 1, 2, 3)]
    assert [[isinstance(e, Constant) for e in row[:2]] for row in expand.sets] == [
        [False, False],
        [False, True],
        [True, False],
        [True, True],
    ]
    assert session.columns("SELECT k FROM u GROUP BY GROUPING SETS ((k), ())") == ["k INT"]


def test_binder_rollup_multiplies_grouping_elements(session: Session) -> None:
    node = session.bound("SELECT COUNT(*) FROM t GROUP BY a, ROLLUP (b, c)")
    (expand,) = [x for x in _nodes(node) if isinstance(x, n.Expand)]
    assert [row[-1] for row in expand.sets] == [Constant(DataTypes.BIGINT(False), i) for i in (0, 1, 3)]


def _nodes(node: n.Node) -> Any:
    yield node
    for below in node.inputs:
        yield from _nodes(below)


@pytest.mark.parametrize(
    "call",
    [
        "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))",
        "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
        (
            "TABLE(HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '1' MINUTE, SIZE => INTERVAL '5' "
            "MINUTE))"
        ),
        (
            "TABLE(HOP(SIZE => INTERVAL '5' MINUTE, DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL '1' "
            "MINUTE))"
        ),
        "TABLE(HOP((SELECT * FROM t), DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))",
    ],
)
def test_binder_window_functions_in_all_spellings(session: Session, call: str) -> None:
    (window,) = [x for x in _nodes(session.bound(f"SELECT * FROM {call}")) if isinstance(x, n.WindowTable)]
    assert window.window == n.WindowSpec(n.WindowKind.HOP, 3, True, 300_000, 60_000)


def test_binder_group_window_properties(session: Session) -> None:
    node = session.bound(
        "SELECT a, TUMBLE_START(ts, INTERVAL '1' HOUR), TUMBLE_ROWTIME(ts, INTERVAL '1' HOUR) AS r, SUM(b) "
        "FROM t GROUP BY a, TUMBLE(ts, INTERVAL '1' HOUR)"
    )
    (aggregate,) = [x for x in _nodes(node) if isinstance(x, n.WindowAggregate)]
    assert aggregate.properties == ("start", "rowtime")
    assert aggregate.window.size == 3_600_000
    assert str(node.fields[2]) == "TIMESTAMP(3) NOT NULL *ROWTIME*"
    slide = (
        "SELECT HOP_END(p, INTERVAL '1' SECOND, INTERVAL '3' SECOND) FROM t GROUP BY HOP(p, INTERVAL '1' SECOND, "
        "INTERVAL '3' SECOND)"
    )
    (aggregate,) = [x for x in _nodes(session.bound(slide)) if isinstance(x, n.WindowAggregate)]
    assert (aggregate.window.size, aggregate.window.step, aggregate.window.is_event_time) == (3000, 1000, False)


def test_binder_session_windows_are_partitioned(session: Session) -> None:
    node = session.bound("SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY a, DESCRIPTOR(ts), INTERVAL '5' MINUTE))")
    assert isinstance(node, n.WindowTable)
    assert node.window.partition == (0,)


def test_binder_over_with_named_windows_and_bounds(session: Session) -> None:
    node = session.bound(
        "SELECT SUM(b) OVER w, COUNT(*) OVER w, MAX(b) OVER (w2 RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND "
        "CURRENT ROW) "
        "FROM t WINDOW w AS (PARTITION BY a ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), w2 AS (ORDER BY ts)"
    )
    specs = [x.over for x in _nodes(node) if isinstance(x, n.Over)]
    assert [(s.rows, s.start, s.end, len(s.calls)) for s in specs] == [(False, -3_600_000, 0, 1), (True, -2, 0, 2)]


@pytest.mark.parametrize(
    ("using", "names"),
    [
        ("USING (k)", ["k", "v", "uts", "n"]),
        ("ON u.k = w.k", ["k", "v", "uts", "k0", "n"]),
    ],
)
def test_binder_join_using_shows_columns_once(session: Session, using: str, names: list[str]) -> None:
    query = f"SELECT * FROM u JOIN (SELECT k, n FROM ups) w {using}"
    assert session.bound(query).fields.names == names


def test_binder_natural_and_full_joins_coalesce_columns(session: Session) -> None:
    assert session.bound("SELECT * FROM u NATURAL JOIN ups").fields.names == ["k", "v", "uts", "n"]
    node = session.bound("SELECT k FROM u FULL JOIN ups USING (k)")
    coalesced = [e for x in _nodes(node) if isinstance(x, n.Project) for e in x.expressions if isinstance(e, Call)]
    assert [e.function for e in coalesced] == ["COALESCE"]


def test_binder_resolves_user_functions(session: Session) -> None:
    session.catalogs.create_system_function(
        "twice", Scalar("twice", DataTypes.BIGINT(), input_types=[DataTypes.BIGINT()])
    )
    session.catalogs.create_system_function(
        "split", Scalar("split", DataTypes.STRING(), "table", result_types=[DataTypes.STRING(), DataTypes.INT()])
    )
    node = session.bound("SELECT twice(a) FROM t")
    assert isinstance(node, n.Project)
    (call,) = node.expressions
    assert isinstance(call, UserCall)
    # The argument is cast to the parameter's type.
    assert isinstance(call.arguments[0], Call)
    assert call.arguments[0].function == "CAST"
    assert session.columns("SELECT a, w FROM t, LATERAL TABLE(split(c)) AS x(w, l)") == ["a INT", "w STRING"]
    assert session.columns("SELECT f0 FROM t LEFT JOIN LATERAL TABLE(split(c)) ON TRUE") == ["f0 STRING"]
    with pytest.raises(ValidationException, match="'split' is a table function"):
        session.bound("SELECT split(c) FROM t")
    with pytest.raises(ValidationException, match=r"Invalid input arguments. twice\(INT, INT\)"):
        session.bound("SELECT twice(a, a) FROM t")


def test_binder_order_by_names_positions_and_unselected_columns(session: Session) -> None:
    assert _order("SELECT a AS x, b FROM t ORDER BY x DESC, 2", session) == [(0, True, False), (1, False, True)]
    assert _order("SELECT a FROM t ORDER BY b NULLS LAST LIMIT 3", session) == [(1, False, False)]
    assert session.bound("SELECT a FROM t ORDER BY b LIMIT 3").fields.names == ["a"]
    assert _order("SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY COUNT(*) DESC LIMIT 1", session) == [(1, True, False)]


def _order(query: str, session: Session) -> Any:
    (sort,) = [x for x in _nodes(session.bound(query)) if isinstance(x, n.Sort)]
    return list(sort.order)


def test_binder_limit_offset_and_fetch(session: Session) -> None:
    (sort,) = [x for x in _nodes(session.bound("SELECT a FROM t LIMIT 5 OFFSET 2")) if isinstance(x, n.Sort)]
    assert (sort.offset, sort.limit) == (2, 5)
    fetch = session.bound("SELECT a FROM t OFFSET 1 ROWS FETCH NEXT 4 ROWS ONLY")
    (sort,) = [x for x in _nodes(fetch) if isinstance(x, n.Sort)]
    assert (sort.offset, sort.limit) == (1, 4)


# --- INSERT


def test_binder_insert_casts_fills_and_reorders(session: Session) -> None:
    sink = session.bound("INSERT INTO printed (b, a) SELECT a, k FROM t JOIN u ON t.a = u.k")
    assert isinstance(sink, n.Sink)
    assert isinstance(sink.input, n.Project)
    first, second = sink.input.expressions
    assert first == Column(DataTypes.INT(False), 1)
    assert isinstance(second, Call)
    assert (second.function, second.type) == ("CAST", DataTypes.BIGINT())
    partial = session.bound("INSERT INTO printed (a) VALUES (1)")
    assert isinstance(partial.inputs[0], n.Project)
    assert partial.inputs[0].expressions[1] == Constant(DataTypes.BIGINT(), None)
    assert isinstance(session.bound("INSERT INTO printed /*+ OPTIONS('x'='y') */ SELECT a, b FROM t"), n.Sink)


def test_binder_insert_into_a_partition(session: Session) -> None:
    session.run(
        "CREATE TABLE IF NOT EXISTS parts (a INT, d STRING, h INT) PARTITIONED BY (d, h) WITH ('connector' = 'none')"
    )
    sink = session.bound("INSERT INTO parts PARTITION (d = '2024', h = 5) SELECT a FROM t")
    assert isinstance(sink, n.Sink)
    assert sink.partition == (("d", "2024"), ("h", "5"))
    assert isinstance(sink.input, n.Project)
    assert sink.input.expressions[1:] == (
        Constant(DataTypes.STRING(False), "2024"),
        Constant(DataTypes.INT(False), 5),
    )
    with pytest.raises(ValidationException, match="Unknown target column 'zz'"):
        session.bound("INSERT INTO parts PARTITION (zz = 1) SELECT a FROM t")


def test_binder_insert_mismatch_shows_both_schemas(session: Session) -> None:
    with pytest.raises(ValidationException) as e:
        session.bound("INSERT INTO printed SELECT c, b FROM t")
    assert str(e.value) == (
        "Column types of query result and sink for 'default_catalog.default_database.printed' do not match.\n"
        "Cause: Incompatible types for sink column 'a' at position 1.\n\n"
        "Query schema: [c: STRING, b: BIGINT]\n"
        "Sink schema:  [a: INT, b: BIGINT]"
    )
    with pytest.raises(ValidationException, match="Cause: Different number of columns."):
        session.bound("INSERT INTO printed SELECT a FROM t")


# --- errors


@pytest.mark.parametrize(
    ("query", "error_text", "column"),
    [
        ("SELECT nox FROM t", "Column 'nox' not found in any table", 8),
        ("SELECT t.nox FROM t", "Column 'nox' not found in table 't'", 8),
        ("SELECT z.a FROM t", "Table 'z' not found", 8),
        ("SELECT A FROM t", "Column 'A' not found in any table; did you mean 'a'?", 8),
        ("SELECT * FROM nothere", "Object 'nothere' not found", 15),
        ("SELECT * FROM T", "Object 'T' not found within 'default_catalog.default_database'; did you mean 't'?", 15),
        ("SELECT NOFUNC(a) FROM t", "No match found for function signature NOFUNC(", 8),
        ("SELECT a + c FROM t", "Cannot apply '+' to arguments of type", 8),
        ("SELECT a, COUNT(*) FROM t", "Expression 'a' is not being grouped", 8),
        ("SELECT a, b, COUNT(*) FROM t GROUP BY a", "Expression 'b' is not being grouped", 11),
        ("SELECT a FROM t GROUP BY 1", "Expression 'a' is not being grouped", 8),
        ("SELECT a AS z, COUNT(*) FROM t GROUP BY z", "Column 'z' not found in any table", 41),
        ("SELECT COUNT(*) FROM t WHERE COUNT(*) > 1", "Aggregate expression is illegal in WHERE clause", 30),
        ("SELECT SUM(COUNT(*)) FROM t", "Aggregate expressions cannot be nested", 12),
        ("SELECT a FROM t UNION ALL SELECT a, b FROM t", "Column count mismatch in UNION ALL", 1),
        ("SELECT a FROM t UNION ALL SELECT c FROM t", "Type mismatch in column 1 of UNION ALL", 1),
        ("SELECT a FROM t, files WHERE a > 1", "Column 'a' is ambiguous", 30),
        (
            "SELECT CASE WHEN a > 1 THEN 1 ELSE 'x' END FROM t",
            "Illegal mixing of types in CASE or COALESCE statement",
            8,
        ),
        ("SELECT CAST(arr AS INT) FROM t", "Cast function cannot convert value of type ARRAY<INT> to type INT", 8),
        (
            "SELECT * FROM t AS x(i, j)",
            "List of column aliases must have same degree as table; table has 7 columns",
            15,
        ),
        ("SELECT * FROM t WHERE a", "WHERE clause must be a condition", 23),
        ("SELECT a FROM t ORDER BY 3", "Ordinal out of range", 26),
        ("SELECT UPPER(x => c) FROM t", "Arguments of UPPER are positional, not named", 8),
        ("SELECT UPPER(DISTINCT c) FROM t", "DISTINCT, FILTER and ORDER BY apply only to aggregates", 8),
        ("SELECT 1 FROM t GROUP BY TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '1' DAY)", "Invalid number of arguments", 26),
        ("SELECT MAX(*) FROM t", "Unknown identifier '*'", 8),
        ("SELECT ROW_NUMBER() FROM t", "OVER clause is necessary for window functions", 8),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(b), INTERVAL '1' SECOND))",
            "The window function requires the timecol is a time attribute type, but is BIGINT",
            37,
        ),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND, INTERVAL '10' SECOND))",
            "requires maxSize must be an integral multiple of step, but got maxSize 10000 ms and step 3000 ms",
            21,
        ),
        (
            "SELECT a FROM t GROUP BY a, TUMBLE(b, INTERVAL '1' SECOND)",
            "only be defined over a time attribute column",
            29,
        ),
        ("SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES A.a AS x PATTERN (A) DEFINE B AS B.a > 1)",
         "Pattern variable 'B' has no occurrence in the pattern", 17),
    ],
)  # fmt: skip
def test_binder_errors_show_cause_and_position(session: Session, query: str, error_text: str, column: int) -> None:
    with pytest.raises(ValidationException) as e:
        session.bound(query)
    message = str(e.value)
    assert message.startswith(f"SQL validation failed. At line 1, column {column}: "), message
    assert error_text in message
    # The caret is below the position.
    assert message.splitlines()[-1] == "    " + " " * (column - 1) + "^"


def test_binder_errors_in_a_view_show_the_view_text(session: Session) -> None:
    session.run("CREATE VIEW broken AS SELECT a FROM files")
    session.run("ALTER TABLE files RENAME a TO z")
    try:
        with pytest.raises(ValidationException, match="Column 'a' not found") as e:
            session.bound("SELECT * FROM broken")
        assert "    SELECT `files`.`a`\n           ^" in str(e.value)
    finally:
        session.run("ALTER TABLE files RENAME z TO a")
        session.run("DROP VIEW broken")


# --- Table API


def _item(text: str, alias: str | None = None) -> syntax.SelectItem:
    statement = read_statement(f"SELECT {text}")
    assert isinstance(statement, QueryStatement)
    assert isinstance(statement.query, syntax.Select)
    return syntax.SelectItem(statement.query.items[0].value, alias)


def test_binder_builds_table_api_relations(session: Session) -> None:
    binder = session.binder
    node = session.bound("SELECT a, b, c FROM t")
    grouped = binder.aggregate(node, [_item("a").value], [_item("a"), _item("SUM(b)", "s")])
    assert [f"{f.name} {f.type}" for f in grouped.fields.fields] == ["a INT", "s BIGINT"]
    assert binder.select(node, [_item("a + 1", "x")]).fields.names == ["x"]
    assert isinstance(binder.filter(node, _item("a > 1").value), n.Filter)
    assert binder.rename(node, ["x"]).fields.names == ["x", "b", "c"]
    right = session.bound("SELECT k, v FROM u")
    joined = binder.join(node, right, _item("a = k").value, n.JoinKind.LEFT)
    assert [f"{f.name} {f.type}" for f in joined.fields.fields][3:] == ["k INT", "v STRING"]
    with pytest.raises(BindError, match=r"join relations with ambiguous names: \[a, b, c\]"):
        binder.join(node, node, None)
    assert isinstance(binder.limit(node, 1, 2, False), n.Sort)
    assert isinstance(binder.distinct(node), n.Aggregate)
    ordered = binder.order(node, [syntax.SortKey(syntax.Name(("b",)), True)])
    assert isinstance(ordered, n.Sort)
    assert ordered.order == ((1, True, False),)
