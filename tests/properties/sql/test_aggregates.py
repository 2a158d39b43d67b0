"""Every aggregate function: over inserted and retracted rows, in windows, OVER frames and batch."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common import Row, RowKind
from millstream.common.errors import MillstreamError
from millstream.sql.functions.aggregates import FUNCTIONS
from millstream.sql.functions.function import Kind
from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.table.expression import JsonOnNull
from millstream.table.expressions import col, json_array_agg, json_object_agg
from millstream.testing import LocalEnvironment, ValuesTable

_ROWS = [("a", 1, "00:01"), ("b", 3, "00:02"), ("a", 2, "00:03"), ("a", None, "00:04"), ("b", 3, "00:05")]
# Argument types, and the expected results for (1, 2, null) and for (3, 3).
_GIVEN: dict[str, tuple[str, Any, Any]] = {
    "COUNT": ("x", 2, 2),
    "SUM": ("x", 3, 6),
    "AVG": ("x", 1, 3),
    "MIN": ("x", 1, 3),
    "MAX": ("x", 2, 3),
    "FIRST_VALUE": ("x", 1, 3),
    "LAST_VALUE": ("x", 2, 3),
    "LISTAGG": ("CAST(x AS STRING), '-'", "1-2", "3-3"),
    "ARRAY_AGG": ("x", [1, 2, None], [3, 3]),
    "COLLECT": ("x", {1: 1, 2: 1}, {3: 2}),
    "STDDEV_POP": ("CAST(x AS DOUBLE)", 0.5, 0.0),
    "STDDEV_SAMP": ("CAST(x AS DOUBLE)", 0.5**0.5, 0.0),
    "STDDEV": ("CAST(x AS DOUBLE)", 0.5**0.5, 0.0),
    "VAR_POP": ("CAST(x AS DOUBLE)", 0.25, 0.0),
    "VAR_SAMP": ("CAST(x AS DOUBLE)", 0.5, 0.0),
    "VARIANCE": ("CAST(x AS DOUBLE)", 0.5, 0.0),
    "PERCENTILE": ("x, ARRAY[0.0, 0.25], 2", [1.0, 1.0], [3.0, 3.0]),
    "JSON_OBJECTAGG": ("KEY id VALUE x", '{"00:01":1,"00:03":2,"00:04":null}', '{"00:02":3,"00:05":3}'),
    "JSON_ARRAYAGG": ("x", "[1,2]", "[3,3]"),
    "APPROX_COUNT_DISTINCT": ("x", 2, 1),
}
# An internal aggregate of scalar subqueries, without SQL syntax.
_UNWRITTEN = {"SINGLE_VALUE", "$SUM0"}
_AGGREGATES = [f.name for f in FUNCTIONS if f.kind is Kind.AGGREGATE and f.name not in _UNWRITTEN]
_BY = "GROUP BY k, window_start, window_end"
_TUMBLE = f"FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR) {_BY}"
_HOP = f"FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' HOUR) {_BY}"
_SESSION = (
    "FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end"
)
_FRAMES = "OVER (PARTITION BY k ORDER BY ts) FROM t"
_CHANGED = "FROM changed GROUP BY k"


def _environment(batch: bool = False) -> StreamTableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(LocalEnvironment(), settings)
    t_env.execute_sql(
        "CREATE TABLE t (k STRING, x INT, id STRING, ts AS TO_TIMESTAMP('2024-01-01 00:' || id), "
        f"WATERMARK FOR ts AS ts) WITH {ValuesTable(_ROWS).options}"
    )
    return t_env


def _change(kind: RowKind, *values: Any) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def _with_changes() -> StreamTableEnvironment:
    """Return an environment with the same rows, each preceded by an inserted and retracted row."""
    t_env = _environment()
    changes = [
        change
        for k, x, time in _ROWS
        for change in (
            _change(RowKind.INSERT, k, 7, time),
            _change(RowKind.DELETE, k, 7, time),
            _change(RowKind.INSERT, k, x, time),
        )
    ]
    t_env.execute_sql(f"CREATE TABLE changed (k STRING, x INT, id STRING) WITH {ValuesTable(changes).options}")
    return t_env


def _left(t_env: StreamTableEnvironment, query: str) -> dict[str, Any]:
    """Return the last row of each key."""
    results: dict[str, Any] = {}
    for row in t_env.sql_query(query).execute().collect():
        if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            results[row[0]] = row[1]
        else:
            results.pop(row[0])
    return results


def _near(results: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 12) if isinstance(v, float) else v for k, v in results.items()}


def test_aggregate_cases_cover_all_aggregates() -> None:
    assert set(_AGGREGATES) == set(_GIVEN)


def _contexts(*contexts: str) -> list[Any]:
    """Return all pairs of an aggregate and a context; those of JSON have no OVER, as in Flink."""
    return [(n, w) for n in _AGGREGATES for w in contexts if not (n.startswith("JSON") and w == _FRAMES)]


@pytest.mark.parametrize("name, context", _contexts("FROM t GROUP BY k", _CHANGED, _TUMBLE, _HOP, _SESSION, _FRAMES))
def test_aggregate_matches_model_in_streaming(name: str, context: str) -> None:
    arguments, of_a, of_b = _GIVEN[name]
    results = _left(_with_changes(), f"SELECT k, {name}({arguments}) {context}")
    assert _near(results) == _near({"a": of_a, "b": of_b})


@pytest.mark.parametrize("name, context", _contexts("FROM t GROUP BY k", _TUMBLE, _FRAMES))
def test_aggregate_matches_model_in_batch(name: str, context: str) -> None:
    arguments, of_a, of_b = _GIVEN[name]
    results = _left(_environment(batch=True), f"SELECT k, {name}({arguments}) {context}")
    assert _near(results) == _near({"a": of_a, "b": of_b})


def test_percentile_interpolates_between_values() -> None:
    t_env = _environment()
    shares = "PERCENTILE(x, 0.5), PERCENTILE(x, 0.5, CHAR_LENGTH(k) - 1), PERCENTILE(DISTINCT x, 0.25)"
    rows = [tuple(r) for r in t_env.sql_query(f"SELECT {shares} FROM t").execute().collect()]
    assert rows[-1] == (2.5, None, 1.5)
    # Equal to Flink's result to the last bit.
    shares = t_env.sql_query("SELECT PERCENTILE(x, 0.3) FROM t WHERE k = 'a'").execute().collect()  # type: ignore[assignment]
    assert [r[0] for r in shares][-1] == 1.3  # type: ignore[comparison-overlap]
    with pytest.raises(MillstreamError, match=r"should be between \[0.0, 1.0\], but was '1.5'"):
        list(t_env.sql_query("SELECT PERCENTILE(x, 1.5) FROM t").execute().collect())


def test_json_aggregates_of_rows() -> None:
    t_env = _environment(batch=True)
    table = t_env.from_path("t").where(col("k") == "a")
    one = table.select(
        json_array_agg(JsonOnNull.ABSENT, col("x")), json_object_agg(JsonOnNull.NULL, col("id"), col("x"))
    )
    (row,) = one.execute().collect()
    assert tuple(row) == ("[1,2]", '{"00:01":1,"00:03":2,"00:04":null}')
    text = "JSON_ARRAYAGG(x NULL ON NULL), JSON_OBJECTAGG(KEY id VALUE x ABSENT ON NULL), JSON_ARRAYAGG(k || '\"')"
    (row,) = t_env.sql_query(f"SELECT {text} FROM t WHERE id > '00:03'").execute().collect()
    assert tuple(row) == ("[null,3]", '{"00:05":3}', '["a\\"","b\\""]')
    (row,) = (
        t_env.sql_query("SELECT JSON_ARRAYAGG(JSON_OBJECT(KEY 'n' VALUE x)) FROM t WHERE x > 2").execute().collect()
    )
    assert tuple(row) == ('[{"n":3},{"n":3}]',)
    (row,) = (
        t_env.sql_query("SELECT JSON_ARRAYAGG(x), JSON_OBJECTAGG(KEY id VALUE x) FROM t WHERE x > 9")
        .execute()
        .collect()
    )
    assert tuple(row) == ("[]", "{}")
    for key, text in (("k", "Key 'a' is already present"), ("CAST(NULL AS STRING)", "A key of JSON_OBJECTAGG is null")):
        with pytest.raises(MillstreamError, match=text):
            list(t_env.sql_query(f"SELECT JSON_OBJECTAGG(KEY {key} VALUE x) FROM t").execute().collect())
