"""Orders of a Kafka topic joined with the customers of a PostgreSQL table, as they are now, into a compacted topic.

The customers are read as they are, and then every change to them (`postgres-cdc`); the orders as they come (`kafka`).
What each city has spent is kept in a topic of upserts (`upsert-kafka`): who moves takes what they have spent along.

Shows: change data capture, a join that follows both sides, upserts, in SQL alone.
Change: the GROUP BY, or write to a database with 'connector' = 'jdbc' and the same PRIMARY KEY.
Run: python examples/customers_and_orders.py  (starts a PostgreSQL and a Kafka of its own)

Expected output:

    {'Berlin': 30, 'Paris': 12}
    Ann moves to Paris, and Bob orders for 5 more
    {'Paris': 47}
"""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment, TableResult
from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker


def start(t_env: StreamTableEnvironment, kafka: str, postgres: dict[str, str], topics: str = "shop") -> TableResult:
    """Start the job, with topics whose names begin so; it runs until it is stopped."""
    where = ", ".join(f"'{key}' = '{value}'" for key, value in postgres.items())
    t_env.execute_sql(f"""
        CREATE TABLE customers (id INT, name STRING, city STRING, PRIMARY KEY (id) NOT ENFORCED)
        WITH ('connector' = 'postgres-cdc', 'schema-name' = 'public', 'table-name' = 'customers', {where})""")
    t_env.execute_sql(f"""
        CREATE TABLE orders (customer INT, amount INT)
        WITH ('connector' = 'kafka', 'topic' = '{topics}-orders', 'properties.bootstrap.servers' = '{kafka}',
              'scan.startup.mode' = 'earliest-offset', 'format' = 'json')""")
    t_env.execute_sql(f"""
        CREATE TABLE spent (city STRING, amount INT, PRIMARY KEY (city) NOT ENFORCED)
        WITH ('connector' = 'upsert-kafka', 'topic' = '{topics}-spent', 'properties.bootstrap.servers' = '{kafka}',
              'key.format' = 'raw', 'value.format' = 'json')""")
    return t_env.execute_sql("""
        INSERT INTO spent
        SELECT c.city, SUM(o.amount) FROM orders AS o JOIN customers AS c ON o.customer = c.id GROUP BY c.city""")


def spent(kafka: KafkaBroker, topics: str = "shop") -> dict[str, int]:
    """Return what a log that is compacted has of each city: the last message counts, one without a value deletes."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "looking", "enable.partition.eof": True})
    consumer.assign([TopicPartition(f"{topics}-spent", 0, 0)])
    found: dict[str, Any] = {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found[(message.key() or b"").decode()] = json.loads(message.value() or b"null")
    consumer.close()
    return {city: row["amount"] for city, row in sorted(found.items()) if row is not None}


def await_spent(kafka: KafkaBroker, wanted: dict[str, int]) -> None:
    """Wait until cities have spent so much, and print it."""
    end = time.monotonic() + 90
    while (found := spent(kafka)) != wanted and time.monotonic() < end:
        time.sleep(0.2)
    print(found)


def run(t_env: StreamTableEnvironment, server: PostgresServer, kafka: KafkaBroker) -> None:
    """Have customers and orders, run the job, and let them change."""
    database = server.new_database()
    words = dict(word.split("=") for word in database.split())
    postgres = {"hostname": words["host"], "port": words["port"], "database-name": words["dbname"]}
    postgres |= {"username": words["user"], "password": "", "slot.name": "customers"}
    kafka.create_topic("shop-orders", 2)
    kafka.create_topic("shop-spent", 1, cleanup_policy="compact")
    with psycopg.connect(database, autocommit=True) as shop:
        shop.execute("CREATE TABLE customers (id int PRIMARY KEY, name text, city text)")
        shop.execute("ALTER TABLE customers REPLICA IDENTITY FULL")
        shop.execute("INSERT INTO customers VALUES (1, 'Ann', 'Berlin'), (2, 'Bob', 'Paris')")
        kafka.send("shop-orders", [json.dumps({"customer": c, "amount": a}) for c, a in ((1, 10), (2, 12), (1, 20))])
        job = start(t_env, kafka.bootstrap, postgres).get_job_client()
        assert job is not None
        await_spent(kafka, {"Berlin": 30, "Paris": 12})
        print("Ann moves to Paris, and Bob orders for 5 more")
        shop.execute("UPDATE customers SET city = 'Paris' WHERE id = 1")
        kafka.send("shop-orders", [json.dumps({"customer": 2, "amount": 5})])
        await_spent(kafka, {"Paris": 47})
        job.cancel().result()


def main() -> None:
    """Run it with servers of its own."""
    with PostgresServer() as server, KafkaBroker() as kafka:
        run(StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment()), server, kafka)


if __name__ == "__main__":
    main()
