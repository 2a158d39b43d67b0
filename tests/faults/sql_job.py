"""Fault injection for SQL: an aggregate, a join and a window, each into files.

    python -m tests.faults.sql_job <directory> [--fault SETTING] [--latest]

This command runs the job once, as a separate driver; `directory` holds its files and its checkpoints.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.job import NAME as NAME
from tests.faults.job import environment, main

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment

RECORDS, KEYS, WINDOW = 2400, 11, 400
RATE = 1200
# The rows per key on the right side of the join.
PARTNERS = 3

Fact = tuple[Any, ...]

_SOURCE = """CREATE TABLE {0} (n BIGINT, at_time AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at_time AS at_time) WITH (
    'connector' = 'datagen', 'rows-per-second' = '{2}',
    'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{1}')"""
_SINKS = {
    "counts": "(k BIGINT, c BIGINT, s BIGINT)|'format' = 'debezium-json'",
    "pairs": "(a BIGINT, b BIGINT, k BIGINT) PARTITIONED BY (k)|'format' = 'json', "
    "'sink.partition-commit.policy.kind' = 'success-file', 'sink.partition-commit.delay' = '1 h'",
    "windows": "(k BIGINT, start_ms BIGINT, c BIGINT, s BIGINT)|'format' = 'parquet'",
}
_INSERTS = (
    f"INSERT INTO counts SELECT n % {KEYS}, COUNT(*), SUM(1) FROM ns GROUP BY n % {KEYS}",
    f"INSERT INTO pairs SELECT ns.n, ms.n, ns.n % {KEYS} FROM ns JOIN ms ON ns.n = ms.n / {PARTNERS}",
    f"INSERT INTO windows SELECT n % {KEYS}, EXTRACT(EPOCH FROM window_start) * 1000 + "
    "EXTRACT(MILLISECOND FROM window_start) % 1000, COUNT(*), SUM(n) "
    f"FROM TUMBLE(TABLE ns, DESCRIPTOR(at_time), INTERVAL '0.{WINDOW}' SECOND) "
    f"GROUP BY n % {KEYS}, window_start, window_end",
)


def build(directory: Path, config: Configuration) -> StreamExecutionEnvironment:
    """Return an environment with the job."""
    env = environment(directory, config)
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("table.local-time-zone", "UTC")
    for name in ("ns", "ms"):
        t_env.execute_sql(_SOURCE.format(name, RECORDS - 1, RATE))
    for name, declaration in _SINKS.items():
        columns, _, options = declaration.partition("|")
        path = directory / name
        t_env.execute_sql(
            f"CREATE TABLE {name} {columns} WITH ('connector' = 'filesystem', 'path' = '{path}', {options})"
        )
    statements = t_env.create_statement_set()
    for insert in _INSERTS:
        statements.add_insert_sql(insert)
    statements.attach_as_datastream()
    return env


def expected() -> Counter[Fact]:
    """The results, computed by brute force: every change of the counts, every pair, every window."""
    facts: Counter[Fact] = Counter()
    for k in range(KEYS):
        n = len(range(k, RECORDS, KEYS))
        facts.update(("counts", "c", k, i, i) for i in range(1, n + 1))
        facts.update(("counts", "d", k, i, i) for i in range(1, n))
    facts.update(("pairs", m // PARTNERS, m, m // PARTNERS % KEYS) for m in range(RECORDS))
    facts.update(("complete", k) for k in range(KEYS))
    for start in range(0, RECORDS, WINDOW):
        for k in range(KEYS):
            within = [v for v in range(start, min(start + WINDOW, RECORDS)) if v % KEYS == k]
            facts["windows", k, start, len(within), sum(within)] += 1
    return facts


def results(directory: Path) -> Counter[Fact]:
    """Return the rows of all finished files."""
    return Counter(_facts(directory))


def _facts(directory: Path) -> Iterator[Fact]:
    from pyarrow.parquet import read_table

    for change in _lines(directory / "counts"):
        row = change["after"] or change["before"]
        yield "counts", change["op"], row["k"], row["c"], row["s"]
    # The end of the input commits partitions, regardless of the delay.
    for path in (directory / "pairs").glob("k=*/_SUCCESS"):
        yield "complete", int(path.parent.name.removeprefix("k="))
    for path in (directory / "pairs").glob("k=*/part-*"):
        for row in _lines(path.parent, path.name):
            yield "pairs", row["a"], row["b"], int(path.parent.name.removeprefix("k="))
    for path in (directory / "windows").glob("part-*"):
        for row in read_table(path).to_pylist():
            yield "windows", row["k"], row["start_ms"], row["c"], row["s"]


def _lines(directory: Path, pattern: str = "part-*") -> Iterator[dict[str, Any]]:
    for path in directory.glob(pattern):
        yield from map(json.loads, path.read_text().splitlines())


if __name__ == "__main__":
    main(build, __doc__)
