"""Quotients, averages and casts of decimals: Flink 2.3's digits, where other systems divide doubles."""

from __future__ import annotations

import pytest

from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment

_ROWS = "(25.00, 7, 10.01), (-25.00, 3, -10.02), (1234.56, -9, 0.05), (75.00, 11, 99.99), (24.99, 13, 0.01)"
_TABLE = (
    "CREATE TEMPORARY VIEW d AS SELECT CAST(x AS DECIMAL(38, 2)) AS x, CAST(y AS BIGINT) AS y, "
    f"CAST(z AS DECIMAL(7, 2)) AS z FROM (VALUES {_ROWS}) AS t(x, y, z)"
)


@pytest.fixture(scope="module")
def t_env() -> StreamTableEnvironment:
    environment = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    environment.execute_sql(_TABLE)
    return environment


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # TPC-DS q54 groups by this.
        ("CAST(ROUND(x / 50) AS INT)", "1 -1 25 2 0"),
        ("x / 50", "0.500000 -0.500000 24.691200 1.500000 0.499800"),
        # TPC-DS q83 selects these.
        ("(y * 1.0000) / (y + 3) / 3.0000 * 100", "23.333333 16.666667 50.000000 26.190476 27.083333"),
        ("(y + 3) / 3.0", "3.333333 2.000000 -2.000000 4.666667 5.333333"),
        ("z / 3", "3.3366666666667 -3.3400000000000 0.0166666666667 33.3300000000000 0.0033333333333"),
        ("z / 7.00", "1.430000 -1.431429 0.007143 14.284286 0.001429"),
        ("CAST(z / 3 AS DECIMAL(7, 2))", "3.34 -3.34 0.02 33.33 0.00"),
        ("CAST(z AS INT)", "10 -10 0 99 0"),
        ("ROUND(z)", "10 -10 0 100 0"),
    ],
)
def test_decimal_expressions_match_flink(t_env: StreamTableEnvironment, expression: str, expected: str) -> None:
    values = [row[0] for row in t_env.execute_sql(f"SELECT {expression} FROM d").collect()]
    assert " ".join(map(str, values)) == expected


def test_decimal_averages_match_flink(t_env: StreamTableEnvironment) -> None:
    query = "SELECT AVG(x), AVG(y), AVG(z), SUM(x) / 50, SUM(z) / COUNT(*), AVG(z * z), STDDEV_SAMP(y) FROM d"
    (row,) = t_env.execute_sql(query).collect()
    assert [str(value) for value in row] == [
        "266.910000",
        "5",
        "20.008000",
        "26.691000",
        "20.008000",
        "2039.720640",
        "8",
    ]
