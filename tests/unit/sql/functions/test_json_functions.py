"""Nested JSON calls: raw JSON where the planner recognises it, else quoted text. Recorded from Flink 2.3."""

from __future__ import annotations

import pytest

from millstream.table import StreamTableEnvironment
from millstream.testing import LocalEnvironment

_ROWS = "(VALUES (1), (2)) AS t(x)"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT JSON_OBJECT('o' VALUE CAST(JSON_OBJECT('a' VALUE 1) AS STRING))", ['{"o":{"a":1}}']),
        ("SELECT JSON_OBJECT('o' VALUE CAST(JSON_OBJECT('a' VALUE 1) AS VARCHAR(2000)))", [r'{"o":"{\"a\":1}"}']),
        ("SELECT JSON_OBJECT('o' VALUE TRY_CAST(JSON_OBJECT('a' VALUE 1) AS STRING))", [r'{"o":"{\"a\":1}"}']),
        ("SELECT JSON_OBJECT('o' VALUE j) FROM (SELECT JSON_OBJECT('a' VALUE 1) AS j)", ['{"o":{"a":1}}']),
        ("SELECT JSON_ARRAY(j, k, s) FROM v", [r'[{"a":1},[1,2],"{\"x\":1}"]']),
        (f"SELECT JSON_ARRAY(j) FROM (SELECT JSON_ARRAY(x) AS j FROM {_ROWS})", ["[[1]]", "[[2]]"]),
        (f"SELECT JSON_ARRAY(j, j) FROM (SELECT JSON_ARRAY(x) AS j FROM {_ROWS})", ["[[1],[1]]", "[[2],[2]]"]),
        (f"SELECT JSON_ARRAY(j) FROM (SELECT DISTINCT JSON_ARRAY(x) AS j FROM {_ROWS})", ['["[1]"]', '["[2]"]']),
        (
            "SELECT JSON_ARRAY(JSON_ARRAY(x), j) FROM "
            f"(SELECT x, JSON_OBJECT('x' VALUE x) AS j FROM {_ROWS}) WHERE j <> 'a'",
            ['[[1],{"x":1}]', '[[2],{"x":2}]'],
        ),
        (
            f"SELECT JSON_ARRAY(CASE WHEN x > 1 THEN JSON_ARRAY(x) ELSE JSON_ARRAY() END) FROM {_ROWS}",
            ['["[2]"]', '["[]"]'],
        ),
        (f"SELECT JSON_ARRAY(COALESCE(JSON_ARRAY(x), 'a')) FROM {_ROWS}", ["[[1]]", "[[2]]"]),
        (f"SELECT JSON_ARRAY(UPPER(JSON_ARRAY(x))) FROM {_ROWS}", ['["[1]"]', '["[2]"]']),
        ("SELECT JSON_ARRAYAGG(j) FROM (SELECT JSON_ARRAY(x) AS j FROM (VALUES (1)) AS t(x))", ["[[1]]"]),
        ("SELECT JSON_ARRAY(j) FROM (SELECT JSON_ARRAYAGG(x) AS j FROM (VALUES (1)) AS t(x))", ['["[1]"]']),
        (f"SELECT JSON_ARRAY(j) FROM (SELECT CAST(JSON_ARRAY(x) AS STRING) AS j FROM {_ROWS})", ["[[1]]", "[[2]]"]),
    ],
)
def test_json_functions_nest_json_that_the_planner_recognises(query: str, rows: list[str]) -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    t_env.execute_sql(
        "CREATE TEMPORARY VIEW v AS SELECT JSON_OBJECT('a' VALUE 1) AS j, JSON_ARRAY(1, 2) AS k, '{\"x\":1}' AS s"
    )
    with t_env.execute_sql(query).collect() as results:
        assert sorted(text for (text,) in results) == rows
