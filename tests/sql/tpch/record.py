"""Record DuckDB's results.

    python -m tests.sql.tpch.record

It runs in DuckDB's venv (`bench/venvs.py`), which is created if needed.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from pathlib import Path

from bench.venvs import venv

from tests.sql.tpch import ANSWERS, TABLES, generate, queries

_SCRIPT = """
import decimal, json, sys, duckdb
folder, tables, queries = json.load(sys.stdin)
database = duckdb.connect()
# The bar would be written between the results.
database.execute("SET enable_progress_bar = false")
for table in tables:
    database.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder}/{table}.parquet'")
def plain(value):
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value if value is None or isinstance(value, (int, float, str)) else str(value)
answers = {n: [[plain(v) for v in row] for row in database.execute(q).fetchall()] for n, q in queries.items()}
json.dump(answers, sys.stdout)
"""


def results_of_duckdb(folder: Path) -> str:
    """Return DuckDB's results over the tables in a folder, as JSON."""
    python = venv("duckdb")
    if python is None:
        raise SystemExit("DuckDB is not available")
    request = json.dumps([str(folder), TABLES, queries()])
    done = subprocess.run([python, "-c", _SCRIPT], input=request, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        ANSWERS.write_bytes(gzip.compress(results_of_duckdb(Path(directory)).encode(), mtime=0))
