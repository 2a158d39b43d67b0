"""Joins orders of a Kafka topic with the current customers of a PostgreSQL table, into a compacted topic.

The job reads a snapshot of the customers, then every change (`postgres-cdc`), and the orders (`kafka`). It writes the
amount spent per city as upserts (`upsert-kafka`). If a customer moves, the customer's orders move to the new city.

Shows: change data capture, a join of two changing inputs, and upserts, all in SQL.
Change: the GROUP BY, or write to a database with 'connector' = 'jdbc' and the same PRIMARY KEY.
Run: python examples/customers_and_orders.py  (starts its own PostgreSQL and Kafka)

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
    """Start the job, with topics whose names begin with `topics`; it runs until it is cancelled."""
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
    """Return the amount per city in the compacted topic: the last message counts, one without a value deletes."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "looking", "enable.partition.eof": True})
    consumer.assign([TopicPartition(f"{topics}-spent", 0, 0)])
    amounts: dict[str, Any] = {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        amounts[(message.key() or b"").decode()] = json.loads(message.value() or b"null")
    consumer.close()
    return {city: row["amount"] for city, row in sorted(amounts.items()) if row is not None}


def await_spent(kafka: KafkaBroker, expected: dict[str, int]) -> None:
    """Wait until the topic has the expected amounts, and print them."""
    end = time.monotonic() + 90
    while (amounts := spent(kafka)) != expected and time.monotonic() < end:
        time.sleep(0.2)
    print(amounts)


def run(t_env: StreamTableEnvironment, server: PostgresServer, kafka: KafkaBroker) -> None:
    """Create customers and orders, run the job, and change them."""
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
    """Run the example with its own servers."""
    with PostgresServer() as server, KafkaBroker() as kafka:
        run(StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment()), server, kafka)


if __name__ == "__main__":
    main()
