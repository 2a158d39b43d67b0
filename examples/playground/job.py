"""The job of the playground: orders of a Kafka topic and products of a PostgreSQL table, into two PostgreSQL tables.

`make playground` starts everything that it needs on this machine, and `docker compose up` in deploy/compose does so in
containers. The settings `playground.*` are the addresses.
"""

from __future__ import annotations

import os

from millstream.cli.demo_program import BY_CITY
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment

# Four products: the state of the join does not grow with the orders.
BY_CATEGORY = """
    SELECT category, SUM(orders), SUM(total)
    FROM (SELECT product, COUNT(*) AS orders, SUM(amount) AS total FROM orders GROUP BY product)
    JOIN products ON product = name
    GROUP BY category"""


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    t_env, config = StreamTableEnvironment.create(env), env.get_configuration()
    kafka = config.get_string("playground.kafka", "localhost:9092")
    host, port = config.get_string("playground.postgres", "localhost:5432").split(":")
    user = f"'username' = 'postgres', 'password' = '{os.environ.get('PGPASSWORD', '')}'"
    jdbc = f"'connector' = 'jdbc', 'url' = 'jdbc:postgresql://{host}:{port}/shop', {user}"
    t_env.execute_sql(f"""
        CREATE TABLE orders (
          id BIGINT, city STRING, product STRING, amount INT, ordered_at TIMESTAMP_LTZ(3),
          WATERMARK FOR ordered_at AS ordered_at - INTERVAL '5' SECOND
        ) WITH (
          'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = '{kafka}',
          'properties.group.id' = 'playground', 'scan.startup.mode' = 'earliest-offset',
          'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
        )""")
    t_env.execute_sql(f"""
        CREATE TABLE products (name STRING, category STRING, PRIMARY KEY (name) NOT ENFORCED) WITH (
          'connector' = 'postgres-cdc', 'hostname' = '{host}', 'port' = '{port}', {user}, 'database-name' = 'shop',
          'schema-name' = 'public', 'table-name' = 'products', 'slot.name' = 'playground'
        )""")
    t_env.execute_sql(f"""
        CREATE TABLE windows (
          window_end TIMESTAMP(3), city STRING, orders BIGINT, total INT, PRIMARY KEY (window_end, city) NOT ENFORCED
        ) WITH ({jdbc}, 'table-name' = 'windows')""")
    t_env.execute_sql(f"""
        CREATE TABLE revenue (category STRING, orders BIGINT, total INT, PRIMARY KEY (category) NOT ENFORCED)
        WITH ({jdbc}, 'table-name' = 'revenue')""")
    statements = t_env.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO windows {BY_CITY}")
    statements.add_insert_sql(f"INSERT INTO revenue {BY_CATEGORY}")
    statements.execute().wait()


if __name__ == "__main__":
    main()
