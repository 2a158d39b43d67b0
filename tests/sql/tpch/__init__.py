"""TPC-H: its tables at any scale, its 22 queries in Flink's SQL, and DuckDB's results at a small scale."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.table import TableEnvironment

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json.gz"
# The scale of the recorded results.
SCALE = 0.01
TABLES = ("lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region")

_TYPES = {pa.int64(): "BIGINT", pa.int32(): "INT", pa.date32(): "DATE"}


def queries() -> dict[int, str]:
    """Return the queries by number."""
    text = (HERE / "queries.sql").read_text()
    return {int(n): query.strip() for n, query in re.findall(r"^-- q(\d+)\n(.*?)(?=^-- q|\Z)", text, re.S | re.M)}


def generate(folder: Path, scale: float = SCALE) -> None:
    """Write the tables as Parquet; tpchgen-cli generates the same ones everywhere."""
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([program, "parquet", "-s", str(scale), f"--output-dir={folder}"], check=True, capture_output=True)


def create_tables(env: TableEnvironment, folder: Path, tables: Sequence[str] = TABLES) -> None:
    """Declare the tables."""
    for table in tables:
        path = folder / f"{table}.parquet"
        columns = ", ".join(f"{field.name} {_type(field.type)}" for field in pq.read_schema(path))
        options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
        env.execute_sql(f"CREATE TABLE {table} ({columns}) WITH ({options})")


def _type(arrow_type: pa.DataType) -> str:
    if pa.types.is_decimal(arrow_type):
        return f"DECIMAL({arrow_type.precision}, {arrow_type.scale})"
    return _TYPES.get(arrow_type, "STRING")


def answers() -> dict[int, list[list[Any]]]:
    """Return DuckDB's results; decimals are floats, dates are texts."""
    return {int(n): rows for n, rows in json.loads(gzip.decompress(ANSWERS.read_bytes())).items()}


def plain(rows: list[Any]) -> list[list[Any]]:
    """Return rows in the format of the recorded results."""
    return [[_plain(value) for value in row] for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def are_equal(actual: list[list[Any]], expected: list[list[Any]]) -> bool:
    """Compare rows in order; averages and quotients differ from DuckDB's after the sixth digit."""
    return len(actual) == len(expected) and all(
        len(a) == len(b) and all(map(_is_equal, a, b)) for a, b in zip(actual, expected, strict=True)
    )


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6 * max(1.0, abs(b))
    return bool(a == b)
