"""The long form of the CDC tests: a replica under random faults, until the time is up.

    python -m tests.support.cdc_long postgres|mariadb [seconds] [seed]

Repeatedly: a new database; concurrent transactions on several connections; a job that builds a replica, in a process
that is killed at random, mostly during the snapshot; columns that are added, dropped, renamed and retyped; restarts of
the server. In the end the replica must equal the original, with every change of every row exactly once.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from millstream.testing.servers.databases import MariaDbServer, PostgresServer
from tests.support import cdc_replica

# Only columns outside the key. TOUCH then updates every row, because the log has no events for unchanged rows.
ALTERS = [
    "ALTER TABLE accounts ADD extra{n} int DEFAULT {n}",
    "ALTER TABLE accounts DROP COLUMN extra{m}",
    "ALTER TABLE accounts RENAME COLUMN extra{m} TO other{n}",
]
TYPES = {"postgres": "ALTER TABLE notes ALTER n TYPE {type}", "mariadb": "ALTER TABLE notes MODIFY n {type}"}
TOUCH = ["UPDATE accounts SET balance = balance + 1", "UPDATE notes SET n = n + 1"]


class Round:
    """One database and its replica."""

    def __init__(self, kind: str, server: Any, facts: PostgresServer, rng: random.Random) -> None:
        self.kind, self.server, self.rng = kind, server, rng
        self.facts = facts.new_database()
        self.extras: list[int] = []
        self.done: Counter[str] = Counter()
        conninfo = server.new_database()
        self.database = conninfo.rpartition("=")[2]
        where = conninfo if kind == "postgres" else server.socket
        which = f"slot{rng.randrange(10**9)}" if kind == "postgres" else self.database
        directory = tempfile.mkdtemp(prefix="millstream-cdc-")
        self.command = [sys.executable, cdc_replica.__file__, kind, where, which, self.facts, directory]
        self.job: subprocess.Popen[bytes] | None = None

    def connect(self) -> Any:
        if self.kind == "postgres":
            return psycopg.connect(self.server.conninfo(self.database))
        connection = self.server.connect(self.database)
        connection.autocommit(False)
        return connection

    def run(self, seconds: float) -> Counter[str]:
        rng = self.rng
        tables = cdc_replica.POSTGRES_TABLES if self.kind == "postgres" else cdc_replica.MARIADB_TABLES
        with psycopg.connect(self.facts) as replica:
            replica.execute(cdc_replica.FACTS)
            replica.commit()
            self.execute(*tables)
            self.work(rng.choice([0, 50, 800]))
            end = time.monotonic() + seconds
            try:
                while time.monotonic() < end:
                    self.start()
                    self.inject_fault()
                self.start()
                with closing(self.connect()) as database:
                    cdc_replica.await_equal(database, replica, 180)
            finally:
                self.kill()
        return self.done

    def start(self) -> None:
        if self.job is None or self.job.poll() is not None:
            self.job = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)
            self.done["jobs"] += 1

    def kill(self) -> None:
        if self.job is not None:
            self.job.kill()
            self.job.wait()

    def execute(self, *statements: str) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def work(self, transactions: int) -> None:
        """Run transactions on three connections at once."""
        threads = [threading.Thread(target=self.one, args=(transactions // 3, self.rng.random())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.done["transactions"] += transactions

    def one(self, transactions: int, seed: float) -> None:
        with closing(self.connect()) as connection:
            workload = cdc_replica.Workload(connection, hash(seed), self.kind == "mariadb")
            for _ in range(transactions):
                try:
                    workload.transaction()
                except Exception as e:
                    # A deadlock, or concurrent transactions that write the same key.
                    if not any(w in str(e).lower() for w in ("deadlock", "duplicate", "timeout")):
                        raise
                    connection.rollback()

    def inject_fault(self) -> None:
        fault = self.rng.choice(["nothing", "kill", "kill", "kill", "alter", "type", "server"])
        time.sleep(self.rng.choice([0, 0.5, 1.5, 3]))
        self.done[fault] += 1
        if fault == "kill":
            self.kill()
        elif fault == "server":
            self.server.kill()
            time.sleep(self.rng.random())
            self.server.start()
        elif fault == "alter":
            self.alter()
        elif fault == "type":
            self.execute(TYPES[self.kind].format(type=self.rng.choice(["int", "bigint"])), *TOUCH)
        self.work(self.rng.choice([0, 30, 90]))

    def alter(self) -> None:
        n = self.rng.randrange(10**6)
        if not self.extras or self.rng.random() < 0.4:
            self.extras.append(n)
            statement = ALTERS[0].format(n=n)
        else:
            m = self.extras.pop()
            statement = self.rng.choice(ALTERS[1:]).format(n=n, m=m)
        self.execute(statement, *TOUCH)


def main(kind: str, seconds: float = 120, seed: int = 1) -> None:
    rng = random.Random(seed)
    durable = {"innodb_flush_log_at_trx_commit": 2, "sync_binlog": 1}
    server = PostgresServer(max_replication_slots=100) if kind == "postgres" else MariaDbServer(**durable)
    total: Counter[str] = Counter()
    end = time.monotonic() + seconds
    with server, PostgresServer() as facts:
        while time.monotonic() < end:
            done = Round(kind, server, facts, rng).run(min(rng.choice([3, 10, 20]), max(1, end - time.monotonic())))
            total += done + Counter(rounds=1)
            print(Path(__file__).name, kind, f"seed {seed}", "equal:", dict(done), flush=True)
    print(kind, dict(total), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *(int(a) for a in sys.argv[2:]))
