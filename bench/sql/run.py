"""SQL compared with Flink's Java SQL: the same queries over a number sequence to blackhole, in turns, parallelism 2.

    python -m bench.sql.run [--only "projection;LISTAGG"] [--rounds 2] [--scale 1.0] [--engine spark]

Both systems are warm: a process runs the query on fewer records first. The best round counts, because other load on the
machine only slows a run down. Functions in Python are compared with PyFlink. Spark SQL runs over all numbers at once,
where it supports the query: it has final results only, and no state to restore. A run of all queries stores its results
in bench/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.results import store
from bench.sql.queries import BY_NAME, QUERIES, ROW_BY_ROW, Query
from bench.venvs import CACHE, existing_venv

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

OPENS = ["java.lang", "java.util", "java.util.concurrent", "java.net", "java.io", "java.nio", "java.time", "sun.nio.ch"]
# Flink reads fewer, so that it takes about as long.
_SHARE = {"projection": 0.2, "scalar UDF": 0.05, "pandas UDF": 0.05} | {q.name: 1.0 for q in ROW_BY_ROW}


def _last_json(command: list[str], environment: dict[str, str] | None = None) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:8])}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def run_here(query: Query, records: int, engine: str) -> float:
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
    result = _last_json([sys.executable, "-m", "bench.sql.here", query.name, str(records), engine], environment)
    return result["records"] / result["seconds"]


def flink(query: Query, records: int) -> float | None:
    python = existing_venv("pyflink")
    if python is None or shutil.which("javac") is None:
        return None
    if "UDF" in query.name:
        kind = "pandas" if "pandas" in query.name else "general"
        environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
        environment.pop("PYTHONPATH", None)
        result = _last_json([str(python), str(HERE / "flink_udf.py"), kind, str(records)], environment)
        return result["records"] / result["seconds"]
    jars = ":".join(map(str, sorted((python.parents[1] / "lib").glob("python*/site-packages/pyflink/lib/*.jar"))))
    built = CACHE / "flink-sql"
    built.mkdir(parents=True, exist_ok=True)
    source = HERE / "FlinkSql.java"
    if not (built / "FlinkSql.class").exists() or (built / "FlinkSql.class").stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(built), str(source)], check=True)
        (built / "log4j2.properties").write_text("rootLogger.level = OFF\n")
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENS]
    settings = [f"{key}={value}" for key, value in query.settings]
    result = _last_json(
        [
            "java",
            "-Xmx3g",
            *opens,
            "-cp",
            f"{built}:{jars}",
            "FlinkSql",
            str(records),
            query.columns,
            query.insert,
            *settings,
        ]
    )
    return result["records"] / result["seconds"]


def spark_sql(query: Query, records: int) -> float | None:
    if query.spark is None:
        return None
    result = _last_json([sys.executable, "-m", "bench.sql.spark_sql", query.name, str(records)])
    return result["records"] / result["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--engine", default="spark")
    parser.add_argument("--without-flink", action="store_true")
    parser.add_argument("--without-spark", action="store_true")
    options = parser.parse_args()
    rates: dict[str, dict[str, list[float]]] = {}
    chosen = [BY_NAME[name] for name in options.only.split(";")] if options.only else QUERIES
    head = "| query | millstream, million rows a second | Flink | ratio | Spark SQL, at once |"
    print(f"{head}\n|---|---:|---:|---:|---:|", flush=True)
    for query in chosen:
        records = int(query.records * options.scale)
        ours: list[float] = []
        theirs: list[float] = []
        spark: list[float] = []
        for _ in range(options.rounds):
            ours.append(run_here(query, records, options.engine))
            other = None if options.without_flink else flink(query, int(records * _SHARE.get(query.name, 0.3)))
            if other is not None:
                theirs.append(other)
            at_once = None if options.without_spark else spark_sql(query, records)
            if at_once is not None:
                spark.append(at_once)
        rates[query.name] = {"millstream": ours, "flink": theirs, "spark sql": spark}
        best, flink_rate = max(ours), max(theirs, default=0.0)
        text = f"{flink_rate / 1e6:.2f} | {best / flink_rate:.1f}" if flink_rate else "- | -"
        spark_rate = f"{max(spark) / 1e6:.2f}" if spark else "-"
        print(f"| {query.name} | {best / 1e6:.2f} | {text} | {spark_rate} |", flush=True)
    if not options.only and options.scale == 1 and not options.without_flink:
        store("sql", rates)


if __name__ == "__main__":
    main()
