"""The cookbook's program with change data capture, Kafka and upserts, killed repeatedly.

    python -m tests.support.cookbook_runs [seconds] [seed]

This command runs it on Spark for that time, with its own servers. Customers move, orders arrive, and the job is killed
at random (kill -9); in the end the upsert topic must equal the result computed from the database and the orders.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "examples"))

import customers_and_orders  # type: ignore[import-not-found]

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment
from millstream.testing import LocalEnvironment
from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker

TOPICS = "killed"
CITIES = ["Berlin", "Paris", "Rome", "Oslo"]


def settings(checkpoints: str) -> dict[str, str]:
    options = {
        "pipeline.name": "customers-and-orders",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": checkpoints,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "parallelism.default": "2",
        "millstream.quiet": "true",
    }
    if any(Path(checkpoints).glob("*/chk-*")):
        options["execution.state-recovery.path"] = "latest"
    return options


def run_job(engine: str, kafka: str, postgres: str, checkpoints: str) -> None:
    """Run the job until it is killed."""
    configuration = Configuration.from_dict(settings(checkpoints))
    env: Any = LocalEnvironment(configuration)
    if engine == "spark":
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
    customers_and_orders.start(StreamTableEnvironment.create(env), kafka, json.loads(postgres), TOPICS).wait()


class Shop:
    """A database, topics, and the job that reads and writes them in its own process."""

    def __init__(self, server: PostgresServer, kafka: KafkaBroker, engine: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.kafka, self.engine = kafka, engine
        conninfo = server.new_database()
        words = dict(word.split("=") for word in conninfo.split())
        self.postgres = {"hostname": words["host"], "port": words["port"], "database-name": words["dbname"]}
        self.postgres |= {"username": words["user"], "password": "", "slot.name": f"cookbook{seed}_{os.getpid()}"}
        kafka.create_topic(f"{TOPICS}-orders", 2)
        kafka.create_topic(f"{TOPICS}-spent", 1)
        self.database = psycopg.connect(conninfo, autocommit=True)
        self.database.execute("CREATE TABLE customers (id int PRIMARY KEY, name text, city text)")
        self.database.execute("ALTER TABLE customers REPLICA IDENTITY FULL")
        self.database.execute("INSERT INTO customers SELECT n, 'c' || n, 'Berlin' FROM generate_series(1, 20) n")
        self.orders: Counter[int] = Counter()
        self.checkpoints = tempfile.mkdtemp(prefix="millstream-cookbook-")
        self.job: subprocess.Popen[bytes] | None = None

    def change(self, times: int) -> None:
        """Insert, update and delete customers, and send orders."""
        for _ in range(times):
            customer, chance = self.random.randrange(1, 25), self.random.random()
            if chance < 0.3:
                city = self.random.choice(CITIES)
                self.database.execute("UPDATE customers SET city = %s WHERE id = %s", (city, customer))
            elif chance < 0.4:
                self.database.execute("DELETE FROM customers WHERE id = %s", (customer,))
            elif chance < 0.5:
                self.database.execute(
                    "INSERT INTO customers VALUES (%s, 'new', %s) ON CONFLICT DO NOTHING",
                    (customer, self.random.choice(CITIES)),
                )
            else:
                amount = self.random.randrange(1, 100)
                self.orders[customer] += amount
                self.kafka.send(f"{TOPICS}-orders", [json.dumps({"customer": customer, "amount": amount})])

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.support.cookbook_runs",
            "job",
            self.engine,
            self.kafka.bootstrap,
            json.dumps(self.postgres),
        ]
        self.job = subprocess.Popen([*command, self.checkpoints], start_new_session=True)

    def kill(self) -> None:
        """Kill the job's process group."""
        if self.job is not None:
            os.killpg(self.job.pid, signal.SIGKILL)
            self.job.wait()
            self.job = None

    def expected(self) -> dict[str, int]:
        """Return the spending per city, by the customers' current city."""
        spent: Counter[str] = Counter()
        for customer, city in self.database.execute("SELECT id, city FROM customers").fetchall():
            if customer in self.orders:
                spent[city] += self.orders[customer]
        return dict(sorted(spent.items()))

    def await_right(self, seconds: float) -> None:
        """Wait until the topic holds the expected result."""
        end = time.monotonic() + seconds
        while (actual := customers_and_orders.spent(self.kafka, TOPICS)) != (expected := self.expected()):
            assert self.job is None or self.job.poll() is None, "the job has ended"
            assert time.monotonic() < end, f"{actual} in the topic, {expected} in the database"
            time.sleep(0.1)

    def close(self) -> None:
        self.kill()
        slot = f"slot_name = '{self.postgres['slot.name']}'"
        end = time.monotonic() + 30
        while self.database.execute(f"SELECT 1 FROM pg_replication_slots WHERE active AND {slot}").fetchall():
            assert time.monotonic() < end
            time.sleep(0.05)
        self.database.execute(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE {slot}")
        self.database.close()


def main(seconds: float, seed: int) -> None:
    with PostgresServer() as server, KafkaBroker() as kafka:
        shop, began, kills = Shop(server, kafka, "spark", seed), time.monotonic(), 0
        try:
            while time.monotonic() - began < seconds:
                shop.start()
                end = time.monotonic() + shop.random.uniform(5, 25)
                while time.monotonic() < end:
                    shop.change(20)
                shop.kill()
                kills += 1
            shop.start()
            shop.await_right(180)
            print(f"{sum(shop.orders.values())} spent, {kills} kills: every city has what it should have.")
        finally:
            shop.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        run_job(*sys.argv[2:])
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 120, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
