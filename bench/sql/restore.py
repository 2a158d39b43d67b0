"""The time to restore a join with much state from a savepoint: from the start of the job to its first row.

    python -m bench.sql.restore [--rows 10000000] [--rounds 3] [--engine spark]

A job reads `--rows` rows of the build table, which the join stores. Rows of the probe table join them in reverse order,
so the last match proves that all rows are stored; then the job is stopped with a savepoint. The first row of the
restored job is a match with restored rows; a few thousand rows are checked.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment

_BUILD = """
CREATE TABLE build (id BIGINT, name AS CONCAT('name-', CAST(id AS STRING)), price AS MOD(id * 7919, 1000003))
WITH ('connector' = 'datagen', 'rows-per-second' = '2000000000', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '0', 'fields.id.end' = '{last}')
"""
_PROBE = """
CREATE TABLE probe (n BIGINT, id AS {last} - n)
WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0',
  'fields.n.end' = '{last}')
"""
_JOIN = "SELECT probe.n, build.name, build.price FROM probe JOIN build ON probe.id = build.id"
_CHECKED_ROWS = 2000


def _started(rows: int, engine: str, folder: Path, savepoint: str | None) -> Any:
    settings = {
        "parallelism.default": "2",
        "millstream.engine": engine,
        "millstream.quiet": "true",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }
    if savepoint is not None:
        settings["execution.state-recovery.path"] = savepoint
    config = Configuration.from_dict(settings)
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(config))
    for table in (_BUILD, _PROBE):
        t_env.execute_sql(table.format(last=rows - 1))
    return t_env.execute_sql(_JOIN)


def _check(row: Any, rows: int) -> None:
    expected = rows - 1 - row[0]
    assert (row[1], row[2]) == (f"name-{expected}", expected * 7919 % 1000003), row


def _until_last(results: Iterator[Any], rows: int) -> None:
    for row in results:
        _check(row, rows)
        if row[0] == 0:
            return
    raise AssertionError("the last row was not found")


def measured(rows: int, rounds: int, engine: str, folder: Path) -> list[float]:
    """Return the seconds to the first row, by round."""
    started = time.perf_counter()
    result = _started(rows, engine, folder, None)
    with result.collect() as results:
        _until_last(results, rows)
        print(f"{rows} rows are stored after {time.perf_counter() - started:.1f} s", flush=True)
        started = time.perf_counter()
        saved = result.get_job_client().stop_with_savepoint(False, str(folder / "savepoints")).result()
    print(f"saved in {time.perf_counter() - started:.1f} s, {_megabytes(folder / 'savepoints')} MB", flush=True)
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        result = _started(rows, engine, folder, saved)
        with result.collect() as results:
            _check(next(results), rows)
            seconds.append(time.perf_counter() - started)
            for _ in range(_CHECKED_ROWS):
                _check(next(results), rows)
            result.get_job_client().cancel().result()
        print(f"the first row after {seconds[-1]:.2f} s, {_CHECKED_ROWS} more are right", flush=True)
    return seconds


def _megabytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) >> 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", default="spark")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="millstream-restore-"))
    try:
        seconds = measured(options.rows, options.rounds, options.engine, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    shown = ", ".join(f"{s:.2f}" for s in seconds)
    print(f"| join with {options.rows} rows restored | {shown} s | best {min(seconds):.2f} s |", flush=True)


if __name__ == "__main__":
    main()
