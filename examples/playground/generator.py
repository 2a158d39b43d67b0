"""Writes orders of the demo into a Kafka topic, and moves a product to another category now and then.

python generator.py KAFKA POSTGRES [--setup], for example localhost:9092 localhost:5432; the password of the user
`postgres` is in PGPASSWORD. With --setup it creates the topic, the database and its tables, and ends.
"""

from __future__ import annotations

import json
import random
import sys
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from millstream.cli.demo_program import PRODUCTS, START_MS, STEP_MS, make_order

ORDERS_PER_SECOND = 50
SECONDS_BETWEEN_MOVES = 5.0
CATEGORIES = ["food", "drinks", "offers"]
SCHEMA = Path(__file__).with_name("schema.sql")


def connect(postgres: str, database: str) -> psycopg.Connection:
    host, port = postgres.split(":")
    return psycopg.connect(host=host, port=port, user="postgres", dbname=database, autocommit=True)


def setup(kafka: str, postgres: str) -> None:
    """Create the topic, the database and its tables, unless they exist."""
    admin = AdminClient({"bootstrap.servers": kafka})
    if "orders" not in admin.list_topics(timeout=60).topics:
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(60)
    with connect(postgres, "postgres") as server:
        exists = server.execute("SELECT FROM pg_database WHERE datname = 'shop'").fetchone()
        if exists is None:
            server.execute("CREATE DATABASE shop")
    if exists is None:
        with connect(postgres, "shop") as shop:
            shop.execute(SCHEMA.read_bytes())


def message(number: int, now: float) -> str:
    """Return an order of the demo as JSON, with the time of the clock; some are late."""
    order = make_order(number)
    delay = START_MS + number * STEP_MS - order.ordered_at
    ordered_at = datetime.fromtimestamp(now - delay / 1000, UTC)
    return json.dumps({**order._asdict(), "ordered_at": f"{ordered_at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"})


def generate(kafka: str, postgres: str) -> None:
    """Write orders and move products until the process ends."""
    # The broker may end before this process.
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    moved_at = time.monotonic()
    with connect(postgres, "shop") as shop:
        for number in count():
            producer.produce("orders", message(number, time.time()))
            producer.poll(0)
            if time.monotonic() - moved_at > SECONDS_BETWEEN_MOVES:
                moved_at = time.monotonic()
                moved = random.choice(CATEGORIES), random.choice(PRODUCTS)
                shop.execute("UPDATE products SET category = %s WHERE name = %s", moved)
            time.sleep(1 / ORDERS_PER_SECOND)


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--setup"]
    try:
        (setup if "--setup" in sys.argv else generate)(*arguments)
    except KeyboardInterrupt:
        sys.exit(130)
