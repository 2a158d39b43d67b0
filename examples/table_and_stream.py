"""Converts a stream to a table, applies a Python function, and converts the result to a stream, in one job.

Shows:    StreamTableEnvironment, from_data_stream, the Table API with udf, to_changelog_stream with row kinds.
Change:   the query: any SQL query of the view `clicks`.
Run:      python examples/table_and_stream.py

Expected output:

    INSERT example.org 1
    INSERT example.com 1
    UPDATE_BEFORE example.org 1
    UPDATE_AFTER example.org 2
"""

from __future__ import annotations

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table.expressions import col
from millstream.table.udf import udf


@udf(result_type=DataTypes.STRING())
def host(url: str) -> str:
    return url.split("/")[2]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    clicks = env.from_collection(
        [("ann", "https://example.org/a"), ("bob", "https://example.com/"), ("ann", "https://example.org/b")],
        Types.ROW_NAMED(["name", "url"], [Types.STRING(), Types.STRING()]),
    )
    t_env.create_temporary_view("clicks", clicks)
    hosts = t_env.from_path("clicks").select(host(col("url")).alias("host"))
    counts = hosts.group_by(col("host")).select(col("host"), col("host").count.alias("n"))
    changes = t_env.to_changelog_stream(counts)
    changes.map(lambda row: f"{row.get_row_kind().name} {row.host} {row.n}").print()
    env.execute("clicks by host")


if __name__ == "__main__":
    main()
