"""TPC-DS in batch: 99 queries over the same Parquet files in Millstream and in DuckDB, whose results are compared.

    python -m bench.sql.tpcds [--scale 1] [--only 54,72,83] [--timeout 300]     (`make bench-tpcds`)

DuckDB's extension generates the tables and contains the queries; it is installed into its own venv first. Queries run
in this process, one after the other, at parallelism 1. Both systems get the same text, except for quoted names.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.sql import tpch

from bench.results import store
from bench.venvs import CACHE, venv
from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment

ALL_QUERIES = 99
_LOAD = """
import decimal, glob, json, os, sys, duckdb, duckdb_extension_tpcds
settings = {"allow_unsigned_extensions": "true", "default_null_order": "nulls_first_on_asc_last_on_desc"}
database = duckdb.connect(config=settings)
# The bar would be written between the results.
database.execute("SET enable_progress_bar = false")
extensions = glob.glob(os.path.dirname(duckdb_extension_tpcds.__file__) + "/extensions/*/tpcds.duckdb_extension")
database.execute(f"LOAD '{extensions[0]}'")
request = json.load(sys.stdin)
folder = request["folder"]
"""
_GENERATE = """
database.execute(f"CALL dsdgen(sf = {request['scale']})")
os.makedirs(folder)
for (table,) in database.execute("SHOW TABLES").fetchall():
    database.execute(f"COPY {table} TO '{folder}/{table}.parquet'")
"""
_QUERIES = """
json.dump(dict(database.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall()), sys.stdout)
"""
_ANSWER = """
for path in glob.glob(f"{folder}/*.parquet"):
    database.execute(f"CREATE VIEW {os.path.basename(path)[:-8]} AS SELECT * FROM '{path}'")
def plain(value):
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value if value is None or isinstance(value, (int, float, str)) else str(value)
rows = {n: [[plain(v) for v in row] for row in database.execute(q).fetchall()] for n, q in request["queries"].items()}
json.dump(rows, sys.stdout)
"""
# Averages and deviations of integers are integers in Flink.
_INTEGER_STATISTICS = re.compile(r"\b(avg|stddev_samp)\((\w*quantity\w*|agg1|cd_dep_\w+)\)", re.I)


def to_flink_sql(query: str) -> str:
    """Return a query of DuckDB's in Flink's dialect."""
    query = re.sub(r"--.*", "", query).strip().rstrip(";").replace('"', "`")
    query = re.sub(r"\binterval (\d+) days?", r"INTERVAL '\1' DAY", query, flags=re.I)
    query = query.replace("d1.d_date + 5", "d1.d_date + INTERVAL '5' DAY")
    # Flink's names are case-sensitive.
    query = re.sub(r"\) (CATALOG|STORE)\b", lambda match: match[0].lower(), query)
    return _INTEGER_STATISTICS.sub(r"\1(CAST(\2 AS DOUBLE))", query)


def _ask_duckdb(script: str, **request: Any) -> Any:
    python = venv("tpcds")
    if python is None:
        raise SystemExit("DuckDB's extension for TPC-DS is not available")
    done = subprocess.run([python, "-c", _LOAD + script], input=json.dumps(request), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout) if done.stdout else None


def _environment(folder: Path) -> StreamTableEnvironment:
    env = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    tpch.create_tables(env, folder, sorted(path.stem for path in folder.glob("*.parquet")))
    return env


def _stop(*_: Any) -> None:
    raise TimeoutError("no answer in time")


def compare(folder: Path, queries: dict[int, str], timeout: int) -> int:
    """Run queries, print a line for each, and return the number of failed or different results."""
    texts = {n: query.replace("`", '"') for n, query in queries.items()}
    expected = _ask_duckdb(_ANSWER, folder=str(folder), queries=texts)
    env, failed, total = _environment(folder), 0, 0.0
    times: dict[int, float] = {}
    signal.signal(signal.SIGALRM, _stop)
    for number, query in queries.items():
        started = time.perf_counter()
        signal.alarm(timeout)
        try:
            actual = tpch.plain(list(env.execute_sql(query).collect()))
            verdict = "" if tpch.are_equal(actual, expected[str(number)]) else "  differs from DuckDB"
        except Exception as e:
            verdict = f"  {type(e).__name__}: {e}"
        finally:
            signal.alarm(0)
        seconds = time.perf_counter() - started
        total += seconds
        times[number] = seconds
        failed += bool(verdict)
        print(f"{number:>6} {seconds:>8.2f} s {len(expected[str(number)]):>6} rows{verdict}", flush=True)
    if len(queries) == ALL_QUERIES:
        store("tpcds", {"scale": folder.name.removeprefix("tpcds-"), "seconds": times, "equal": len(queries) - failed})
    print(f"{len(queries) - failed} of {len(queries)} queries equal DuckDB, {total:.0f} s")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for a query")
    options = parser.parse_args()
    folder = CACHE / f"tpcds-{options.scale:g}"
    if not folder.exists():
        _ask_duckdb(_GENERATE, folder=str(folder), scale=options.scale)
    queries = {int(n): to_flink_sql(q) for n, q in _ask_duckdb(_QUERIES, folder=str(folder)).items()}
    if options.only:
        queries = {int(n): queries[int(n)] for n in options.only.split(",")}
    sys.exit(compare(folder, queries, options.timeout) > 0)


if __name__ == "__main__":
    main()
