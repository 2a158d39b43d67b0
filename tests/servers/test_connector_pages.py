"""The example of every connector page runs as written, against a real server whose address is inserted."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration, JobClient
from millstream.testing import LocalEnvironment
from millstream.testing.servers.databases import MariaDbServer, PostgresServer, RedisServer
from millstream.testing.servers.kafka import KafkaBroker
from millstream.testing.servers.rabbitmq import RabbitMqServer
from millstream.testing.servers.search import ElasticsearchServer, OpenSearchServer
from tests.conftest import Env
from tests.support.kafka_reader import read_committed
from tests.support.paths import DOCS

SECONDS = 60.0


def program(page: str, replaced: dict[str, str]) -> str:
    """Return the first program of a page."""
    text = re.findall(r"```python\n(.*?)```", (DOCS / "reference" / page).read_text(), re.DOTALL)[0]
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    return str(text)


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


class Output:
    """The output so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._text = capsys, ""

    def lines(self) -> list[str]:
        self._text += self._capsys.readouterr().out
        return self._text.splitlines()


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    return Output(capsys)


Run = Callable[[str, dict[str, str]], JobClient]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Start the program of a page, without Spark."""
    monkeypatch.setattr(Env, "get_execution_environment", staticmethod(lambda *_: LocalEnvironment()))
    running: list[JobClient] = []

    def start(page: str, replaced: dict[str, str]) -> JobClient:
        body, _, last = program(page, replaced).rstrip().rpartition("\n")
        assert last.startswith("env.execute(")
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(body, page, "exec"), names)
        running.append(names["env"].execute_async())
        return running[-1]

    yield start
    for job in running:
        if not job.get_job_status().result().is_terminal_state():
            job.cancel().result()


def finish(job: JobClient) -> None:
    job.get_job_execution_result().result(SECONDS)


def test_kafka_page_program_runs(run: Run, kafka: KafkaBroker) -> None:
    kafka.create_topic("orders", 2)
    kafka.create_topic("totals")
    kafka.send("orders", ["a", "b"])
    run("connectors/kafka.md", {"localhost:9092": kafka.bootstrap})
    until(lambda: sorted(kafka.read("totals")) == [b"A", b"B"])
    assert sorted(read_committed(kafka.bootstrap, "totals")) == [b"A", b"B"]


def test_hybrid_page_program_runs(run: Run, output: Output, kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("new-orders")
    kafka.send("new-orders", ["new"])
    (tmp_path / "old.txt").write_text("old\n")
    where = {"localhost:9092": kafka.bootstrap, '"orders")\n    .set': '"new-orders")\n    .set'}
    run("connectors/hybrid.md", {**where, "/data/until-monday": str(tmp_path)})
    until(lambda: output.lines() == ["old", "new"])


def test_elasticsearch_page_program_runs(run: Run, search_server: ElasticsearchServer | OpenSearchServer) -> None:
    finish(run("connectors/elasticsearch.md", {"localhost:9200": search_server.host}))
    assert search_server.documents("users") == {"1": {"id": 1, "name": "Ann"}, "2": {"id": 2, "name": "Bob"}}


def test_files_page_program_runs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("To be\nor\n")
    finish(run("connectors/files.md", {"/data/": f"{tmp_path}/"}))
    written = [p for p in (tmp_path / "out").rglob("words*.txt") if not p.name.startswith(".")]
    assert sorted("".join(p.read_text() for p in written).split()) == ["be", "or", "to"]


def test_generated_page_program_runs(run: Run, output: Output) -> None:
    finish(run("connectors/generated.md", {}))
    assert sorted(map(int, output.lines())) == sorted([1, 4, 9, 16, 25, 0, 1, 4, 9, 16, 1, 4, 9])


def test_http_page_program_runs(run: Run, output: Output) -> None:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    run("connectors/http.md", {"8099": str(port)})
    # The curl command of the page.
    headers = {"Authorization": "Bearer secret"}
    for price in (3, 2):
        body = b'{"shop": "a", "price": %d}' % price
        request = urllib.request.Request(f"http://127.0.0.1:{port}/orders", body, headers)
        until(lambda: listens(port))
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            assert json.loads(answer.read()) == {"accepted": 1}
    until(lambda: output.lines() == ["+I[a,3.0]"] * 2)


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_socket_page_program_runs(run: Run, output: Output) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"to be\nto\n")

        serving = threading.Thread(target=serve)
        serving.start()
        finish(run("connectors/socket.md", {'"localhost", 9999': f'"127.0.0.1", {server.getsockname()[1]}'}))
        serving.join()
    assert output.lines() == ["('to', 1)", "('be', 1)", "('to', 2)"]


def test_rabbitmq_page_program_runs(run: Run, rabbitmq: RabbitMqServer) -> None:
    import pika

    connection = rabbitmq.connect()
    channel = connection.channel()
    for queue in ("orders", "loud orders"):
        channel.queue_declare(queue, durable=True)
    for name in ("tea", "milk"):
        channel.basic_publish("", "orders", name.encode(), pika.BasicProperties(correlation_id=name))
    run("connectors/rabbitmq.md", {"5672": str(rabbitmq.port)})
    until(lambda: channel.queue_declare("loud orders", passive=True).method.message_count == 2)
    assert [channel.basic_get("loud orders")[2] for _ in range(2)] == [b"TEA", b"MILK"]
    connection.close()


def test_redis_page_program_runs(run: Run, redis_server: RedisServer) -> None:
    import redis

    finish(run("connectors/redis.md", {"redis://localhost:6379/0": redis_server.url}))
    client = redis.Redis.from_url(redis_server.url)
    assert (client.get("count:to"), client.get("count:be")) == (b"2", b"1")
    client.close()


@contextmanager
def shop(postgres: PostgresServer) -> Iterator[Any]:
    """The database and the user of the pages, with the documented privileges."""
    import psycopg

    def drop(connection: Any) -> None:
        slots = connection.execute("SELECT slot_name FROM pg_replication_slots WHERE database = 'shop'").fetchall()
        for (slot,) in slots:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        connection.execute("DROP DATABASE IF EXISTS shop WITH (FORCE)")
        connection.execute("DROP ROLE IF EXISTS flink")

    with psycopg.connect(postgres.conninfo(), autocommit=True) as connection:
        drop(connection)
        connection.execute("CREATE ROLE flink LOGIN REPLICATION PASSWORD 'secret'")
        connection.execute("CREATE DATABASE shop OWNER flink")
        with psycopg.connect(postgres.conninfo("shop"), autocommit=True) as own:
            own.execute("SET ROLE flink")
            yield own


def test_databases_page_program_runs(run: Run, output: Output, postgres: PostgresServer) -> None:
    with shop(postgres) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, price numeric)")
        connection.execute("INSERT INTO orders SELECT i, i * 1.5 FROM generate_series(1, 20) i")
        finish(run("connectors/databases.md", {"localhost/shop": f"127.0.0.1:{postgres.port}/shop"}))
    assert sorted(output.lines()) == sorted(f"Row(id={i}, price=Decimal('{i * 1.5}'))" for i in range(1, 21))


def test_postgres_cdc_page_program_runs(run: Run, output: Output, postgres: PostgresServer) -> None:
    with shop(postgres) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO orders VALUES (1, 'a')")
        where = {'"localhost"': '"127.0.0.1"', "5432": str(postgres.port)}
        job = run("connectors/postgres-cdc.md", where)
        until(lambda: output.lines() == ["Row(id=1, name='a')"])
        connection.execute("UPDATE orders SET name = 'b'")
        connection.execute("DELETE FROM orders")
        until(lambda: len(output.lines()) == 3)
        assert output.lines()[1:] == ["Row(id=1, name='b')", "Row(id=1, name=None)"]
        job.cancel().result()


def test_mysql_cdc_page_program_runs(run: Run, output: Output, mariadb: MariaDbServer) -> None:
    with mariadb.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "CREATE DATABASE IF NOT EXISTS shop",
            "CREATE OR REPLACE TABLE shop.orders (id int PRIMARY KEY, name text)",
            "INSERT INTO shop.orders VALUES (1, 'a')",
            "CREATE OR REPLACE USER flink@'127.0.0.1' IDENTIFIED BY 'secret'",
            "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO flink@'127.0.0.1'",
        ):
            cursor.execute(statement)
        run("connectors/mysql-cdc.md", {'.hostname("localhost")': f'.hostname("127.0.0.1").port({mariadb.port})'})
        until(lambda: any('"op": "r"' in line or '"op":"r"' in line for line in output.lines()))
        cursor.execute("UPDATE shop.orders SET name = 'b'")
        until(lambda: any('"op": "u"' in line or '"op":"u"' in line for line in output.lines()))


def declared(page: str, replaced: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the program of a SQL page to its end, without Spark."""
    monkeypatch.setattr(Env, "get_execution_environment", staticmethod(lambda *_: LocalEnvironment()))
    exec(compile(program(page, replaced), page, "exec"), {"__name__": "__main__"})


def test_sql_kafka_page_program_runs(monkeypatch: pytest.MonkeyPatch, kafka: KafkaBroker) -> None:
    kafka.create_topic("clicks", 2)
    kafka.create_topic("visits")
    click = '{"page": "a", "at_time": "2024-01-01 00:00:00"}'
    kafka.send("clicks", [click] * 3, key=b"Ann")
    kafka.send("clicks", [click], key=b"Bob")
    declared("connectors/sql-kafka.md", {"localhost:9092": kafka.bootstrap}, monkeypatch)
    written = kafka.read("visits")
    assert {b'{"customer":"Ann","pages":3}', b'{"customer":"Bob","pages":1}'} <= set(written)


def test_sql_jdbc_page_program_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("CREATE TABLE totals (name TEXT PRIMARY KEY, total INTEGER)")
        connection.execute("INSERT INTO customers VALUES " + ", ".join(f"({i}, 'c{i % 3}')" for i in range(1, 10)))
        connection.commit()
        declared("connectors/sql-jdbc.md", {"/tmp/shop.db": str(tmp_path / "shop.db")}, monkeypatch)
        totals = dict(connection.execute("SELECT name, total FROM totals").fetchall())
    assert sorted(totals) == ["c0", "c1", "c2"] and sum(totals.values()) == 1000


def test_sql_cdc_page_program_runs(monkeypatch: pytest.MonkeyPatch, output: Output, postgres: PostgresServer) -> None:
    with shop(postgres) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, price numeric(10, 2))")
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute("INSERT INTO orders VALUES (1, 'Ann', 1.5), (2, 'Ann', 2), (3, 'Bob', 4)")
        where = {"'localhost'": "'127.0.0.1'", "5432": str(postgres.port)}
        # Bounds the program, which otherwise never ends.
        where["'slot.name' = 'orders_sql'"] = "'slot.name' = 'orders_sql', 'scan.startup.mode' = 'snapshot'"
        declared("connectors/sql-cdc.md", where, monkeypatch)
    sums = [line.split("|")[2:4] for line in output.lines() if line.startswith(("| +I", "| +U"))]
    assert {c.strip(): n.strip() for c, n in sums} == {"Ann": "3.50", "Bob": "4.00"}


def test_lookups_page_program_runs(run: Run, output: Output, postgres: PostgresServer) -> None:
    pytest.importorskip("psycopg_pool", reason="psycopg_pool is not installed")
    with shop(postgres) as connection:
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO customers VALUES (1, 'Ann')")
        finish(run("connectors/lookups.md", {"host=localhost dbname=shop": postgres.conninfo("shop")}))
    assert sorted(output.lines()) == ["(1, 20.0, 'Ann')", "(1, 7.0, 'Ann')", "(2, 5.5, None)"]


def test_spark_page_program_runs(config: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.json").write_text('{"shop": "a", "price": 1.5}\n{"shop": "a", "price": 2}\n')
    env = Env.get_execution_environment(config)
    monkeypatch.setattr(Env, "get_execution_environment", staticmethod(lambda *_: env))
    body, _, last = program("connectors/spark.md", {"/data/": f"{tmp_path}/"}).rstrip().rpartition("\n")
    assert last.startswith("env.execute(")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(body, "spark.md", "exec"), names)
    job = names["env"].execute_async()
    try:
        until(lambda: list((tmp_path / "totals").rglob("*.parquet")))
    finally:
        job.cancel().result()
    rows = names["spark"].read.parquet(str(tmp_path / "totals")).collect()
    assert max(row["price"] for row in rows) in (1.5, 2.0, 3.5)
