"""The parser accepts and rejects what Flink's parser does, with the position and the cause of errors."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.sql.language import statements as s
from millstream.sql.language.errors import SqlParserException
from millstream.sql.language.statement_grammar import read_statement, read_statements
from millstream.sql.language.syntax import Call, Expression, In, Interval, Literal, Name, Select, Star, walk
from millstream.sql.types import DataTypes
from tests.support.paths import TESTS

# Statements recorded from Flink 2.3's parser (tests/sql/flink/Parse.java): + accepted, - rejected.
RECORDED = (TESTS / "sql" / "flink_parser.txt").read_text().splitlines()

# Intended differences. Flink's parser accepts these and its validation rejects them, or they have no effect.
REFUSED_EARLIER = (
    "UNIQUE (",
    "PRIMARY KEY )",
    "PRIMARY KEY)",
    "ENFORCED )",
    "DESCRIPTOR ( '1' )",
    "DESCRIPTOR ( ) OVER",
    "DESCRIPTOR ( TABLE",
    "( c FIRST ,",
    "( a b ) VALUES",
    "( a t )",
    "DROP SYSTEM FUNCTION",
    "SKIP TO LAST PATTERN",
    "b = 'x' 'x'",
)
# Adjacent string literals are concatenated everywhere here, and nearly everywhere in Flink.
TAKEN_TOO = ("'x.jar' 'x.jar'", "'x' 'x'")


def is_taken(text: str) -> bool:
    try:
        read_statements(text)
    except SqlParserException:
        return False
    return True


def test_parser_accepts_the_recorded_statements_of_flink() -> None:
    differ = [line for line in RECORDED if is_taken(line[2:]) != (line[0] == "+")]
    unexpected = [
        line for line in differ if not any(part in line for part in (REFUSED_EARLIER if line[0] == "+" else TAKEN_TOO))
    ]
    assert len(RECORDED) > 1000
    assert unexpected == []


def value(text: str) -> Expression:
    statement = read_statement(f"SELECT {text}")
    assert isinstance(statement, s.QueryStatement)
    assert isinstance(statement.query, Select)
    return statement.query.items[0].value


def shown(node: Any) -> str:
    """Return an expression as text that shows its structure."""
    if isinstance(node, Call):
        return f"{node.name}({', '.join(map(shown, node.arguments))})"
    if isinstance(node, In):
        inside = ", ".join(map(shown, node.operands)) if isinstance(node.operands, tuple) else "query"
        return f"{'NOT ' * node.negated}IN({shown(node.value)}: {inside})"
    if isinstance(node, Literal):
        return node.text
    assert isinstance(node, Name), node
    return ".".join(node.parts)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a + b * c", "+(a, *(b, c))"),
        ("a - b - c", "-(-(a, b), c)"),
        ("-a * b", "*(UNARY -(a), b)"),
        ("a || b + c", "+(||(a, b), c)"),
        ("a OR b AND NOT c = d", "OR(a, AND(b, NOT(=(c, d))))"),
        ("a = b IS NULL", "IS NULL(=(a, b))"),
        ("a + 1 BETWEEN b AND c AND d", "AND(BETWEEN(+(a, 1), b, c), d)"),
        ("a NOT LIKE 'x' ESCAPE '!' OR b", "OR(NOT(LIKE(a, x, !)), b)"),
        ("a NOT IN (1, 2) AND b", "AND(NOT IN(a: 1, 2), b)"),
        ("a != b", "<>(a, b)"),
        ("a IS NOT DISTINCT FROM b", "IS NOT DISTINCT FROM(a, b)"),
        ("(a, b)", "ROW(a, b)"),
        ("m['k'][1]", "ITEM(ITEM(m, k), 1)"),
        ("POSITION('a' IN b)", "POSITION(a, b)"),
        ("SUBSTRING(a FROM 2 FOR 3)", "SUBSTRING(a, 2, 3)"),
        ("OVERLAY(a PLACING b FROM 1)", "OVERLAY(a, b, 1)"),
        ("x IS JSON", "IS JSON VALUE(x)"),
    ],
)
def test_parser_operator_precedence_matches_flink(text: str, read: str) -> None:
    assert shown(value(text)) == read


def test_parser_literals() -> None:
    assert value("'it''s'") == Literal("STRING", "it's")
    assert value(r"U&'\00e9\\'") == Literal("STRING", "é\\")
    assert value("x'4a'") == Literal("BINARY", "4a")
    assert value("1.50") == Literal("DECIMAL", "1.50")
    assert value("1e3") == Literal("DOUBLE", "1e3")
    assert value("INTERVAL -'1 10' DAY(3) TO HOUR") == Interval("1 10", True, "DAY", "HOUR", 3)
    assert value("INTERVAL '1.5' SECOND(2, 3)") == Interval("1.5", False, "SECOND", "SECOND", 2, 3)
    assert value("DATE '2024-01-01'") == Literal("DATE", "2024-01-01")
    assert value("UNKNOWN") == Literal("NULL", "UNKNOWN")


def test_parser_calls_keep_all_clauses() -> None:
    call = value(
        "COUNT(DISTINCT a) FILTER (WHERE b > 1) OVER (PARTITION BY c ORDER BY d DESC NULLS LAST ROWS 2 PRECEDING)"
    )
    assert isinstance(call, Call)
    assert (call.name, call.distinct, shown(call.condition)) == ("COUNT", True, ">(b, 1)")
    assert not isinstance(call.over, (str, type(None)))
    assert [(k.descending, k.nulls_first) for k in call.over.order] == [(True, False)]
    assert (call.over.unit, call.over.start and call.over.start.side) == ("ROWS", -1)
    named = value("f(DATA => TABLE t, SIZE => 1)")
    assert isinstance(named, Call)
    assert named.names == ("DATA", "SIZE")
    assert value("COUNT(*)") == Call("COUNT", (Star(),))


def test_parser_create_table_has_all_parts() -> None:
    table = read_statement(
        """CREATE TEMPORARY TABLE IF NOT EXISTS c.d.t (
          id BIGINT NOT NULL COMMENT 'the id',
          cost AS price * quantity,
          ts TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL,
          r ROW<a INT, b ARRAY<STRING NOT NULL>>,
          WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
          PRIMARY KEY (id) NOT ENFORCED
        ) COMMENT 'x' PARTITIONED BY (id) WITH ('connector' = 'kafka')"""
    )
    assert isinstance(table, s.CreateTable)
    assert (table.name, table.temporary, table.if_not_exists) == (("c", "d", "t"), True, True)
    assert [c.name for c in table.columns] == ["id", "cost", "ts", "r"]
    assert table.columns[0].type == DataTypes.BIGINT().not_null()
    assert table.columns[0].comment == "the id"
    assert table.columns[1].computed is not None
    assert table.columns[1].computed.text == "price * quantity"
    assert (table.columns[2].key, table.columns[2].virtual) == ("timestamp", True)
    assert str(table.columns[3].type) == "ROW<`a` INT, `b` ARRAY<STRING NOT NULL>>"
    assert table.watermarks[0].strategy.text == "ts - INTERVAL '5' SECOND"
    assert table.primary_key == s.PrimaryKey(("id",))
    assert (table.partition, table.options) == (("id",), (("connector", "kafka"),))


@pytest.mark.parametrize(
    ("text", "position", "error_text"),
    [
        ("SELECT a FROM t WHERE", (1, 22), "the end of the statement, expected an expression"),
        ("SELECT a,\n  FROM t", (2, 3), "Encountered 'FROM'"),
        ("SELECT user FROM t GROUP a", (1, 26), "expected BY"),
        ("CREATE TABLE t (order INT)", (1, 17), "`order`"),
        ("SELECT 'a", (1, 8), "A string is not closed"),
        ('SELECT "a"', (1, 8), "backquotes"),
        ("CREATE TABLE t (a INTEGR)", (1, 19), "'INTEGR', which is not a type"),
        ("CREATE TABLE t (a DECIMAL(40, 2))", (1, 19), "Decimal precision must be between 1 and 38"),
        ("CREATE TABLE t (a INT PRIMARY KEY)", (1, 34), "the only supported mode is the NOT ENFORCED mode"),
        ("SELECT 1 SELECT 2", (1, 10), "Encountered 'SELECT'"),
        ("SLECT 1", (1, 1), "expected"),
        ("", (1, 1), "There is no statement"),
        ("SELECT x'4'", (1, 8), "even number of hexits"),
        ("ALTER TABLE t FROB", (1, 15), "RENAME, SET, RESET, ADD, MODIFY or DROP"),
    ],
)
def test_parser_error_has_position_and_cause(text: str, position: tuple[int, int], error_text: str) -> None:
    with pytest.raises(SqlParserException) as raised:
        read_statement(text)
    assert (raised.value.line, raised.value.column) == position
    assert error_text in str(raised.value)
    assert str(raised.value).startswith("SQL parse failed. ")
    # A caret marks the position.
    line, caret = str(raised.value).split("\n")[-2:]
    assert caret.index("^") - 4 == position[1] - 1
    assert line[4:] == (text.split("\n") or [""])[position[0] - 1]


def test_parser_splits_several_statements() -> None:
    statements = read_statements("SET 'a' = 'b';\n-- c\nSELECT ';' ; ;")
    assert [text for _, text in statements] == ["SET 'a' = 'b'", "SELECT ';'"]
    assert statements[0][0] == s.SetOption("a", "b")


def test_parser_nodes_have_positions() -> None:
    text = "SELECT a, f(b.c) FROM t JOIN u ON t.x = u.y WHERE EXISTS (SELECT 1 FROM v)"
    names = {".".join(n.parts): n.position for n in walk(read_statement(text)) if isinstance(n, Name)}
    assert names == {n: text.index(n) for n in ("a", "b.c", "t.x", "u.y")}
