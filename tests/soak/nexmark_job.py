"""A Nexmark query over deterministic events, which writes its changelog into files.

    python -m tests.soak.nexmark_job <directory> --set nexmark.query=q4 --set nexmark.events=10000 [--latest]

This command runs the job once, as a separate driver; `directory` holds its files and its checkpoints.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment
from tests.faults.job import environment, main

QUERIES = Path(__file__).parents[1] / "sql" / "nexmark"
QUERY, EVENTS, RATE = "nexmark.query", "nexmark.events", "nexmark.rate"

# An event depends on its number only: in 50 there are 1 person, which no query reads, 3 auctions and 46 bids. They are
# 100 ms apart; a bid is for an auction of the last three fifties.
_TABLES = (
    """CREATE TABLE seq (
        n BIGINT, `dateTime` AS CAST(TO_TIMESTAMP_LTZ(n * 100, 3) AS TIMESTAMP(3)),
        WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
    ) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
        'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{last}')""",
    """CREATE VIEW auction AS SELECT n AS id, 'item ' || CAST(n AS STRING) AS itemName, 'an item' AS description,
        n % 90 AS initialBid, n % 90 * 2 AS reserve, `dateTime`, `dateTime` + INTERVAL '10' SECOND AS expires,
        n % 17 AS seller, 10 + n / 50 % 5 AS category, 'extra' AS extra FROM seq WHERE n % 50 BETWEEN 1 AND 3""",
    """CREATE VIEW bid AS SELECT (n / 50 - n % 3) * 50 + 1 + n % 3 AS auction, n % 101 AS bidder,
        n * 7919 % 1009 AS price, 'channel ' || CAST(n % 7 AS STRING) AS channel, 'url' AS url, `dateTime`,
        'extra' AS extra FROM seq WHERE n % 50 > 3""",
)


def build(directory: Path, config: Configuration) -> StreamExecutionEnvironment:
    """Return an environment with the job."""
    merged = Configuration.from_dict(
        {"execution.checkpointing.interval": "500 ms", "millstream.epoch.max-records": "4000"}
    )
    merged.add_all(config)
    env = environment(directory, merged)
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("table.local-time-zone", "UTC")
    last, rate = config.get_integer(EVENTS, 1000) - 1, config.get_integer(RATE, 1000)
    for table in _TABLES:
        t_env.execute_sql(table.format(last=last, rate=rate))
    query = (QUERIES / f"{config.get_string(QUERY, 'q4')}.sql").read_text()
    types = t_env.sql_query(query).get_schema().get_field_data_types()
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(types))
    t_env.execute_sql(
        f"CREATE TABLE changes ({columns}) WITH ('connector' = 'filesystem', 'path' = '{directory / 'changes'}', "
        "'format' = 'debezium-json')"
    )
    statements = t_env.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO changes {query}")
    statements.attach_as_datastream()
    return env


def final_rows(directory: Path) -> Counter[tuple[Any, ...]]:
    """Return the final rows of the changelog in finished files."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for path in (directory / "changes").glob("part-*"):
        for change in map(json.loads, path.read_text().splitlines()):
            row = change["after"] or change["before"]
            rows[tuple(row.values())] += 1 if change["op"] == "c" else -1
    return Counter({row: count for row, count in rows.items() if count})


if __name__ == "__main__":
    main(build, __doc__)
