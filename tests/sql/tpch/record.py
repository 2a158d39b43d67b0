"""Write DuckDB's answers.

    python -m tests.sql.tpch.record

It runs in DuckDB's venv (`bench/venvs.py`), which is made when there is none.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from pathlib import Path

from bench.venvs import venv

from tests.sql.tpch import ANSWERS, TABLES, generate, queries

_ASK = """
import decimal, json, sys, duckdb
folder, tables, queries = json.load(sys.stdin)
database = duckdb.connect()
# It would be drawn between the answers.
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


def ask(folder: Path) -> str:
    """Return DuckDB's answers over the tables in a folder, as JSON."""
    python = venv("duckdb")
    if python is None:
        raise SystemExit("DuckDB cannot be had")
    request = json.dumps([str(folder), TABLES, queries()])
    done = subprocess.run([python, "-c", _ASK], input=request, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        ANSWERS.write_bytes(gzip.compress(ask(Path(directory)).encode(), mtime=0))
