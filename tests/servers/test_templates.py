"""Projects of `millstream init` that need servers: their own tests of servers, and their programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from millstream.cli.main import cli
from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker

ORDERS = [("Ghent", 10, 1_000), ("Porto", 7, 2_000), ("Ghent", 5, 59_999)]


def create(folder: Path, template: str) -> Path:
    project = folder / "shop-totals"
    done = CliRunner().invoke(cli, ["init", str(project), "--template", template])
    assert done.exit_code == 0, done.output
    return project


def output(project: Path, *arguments: str) -> str:
    environment = {**os.environ, "PGPASSWORD": PostgresServer.password}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(project: Path, **settings: object) -> None:
    defines = [f"-Dshop_totals.{name.replace('_', '-')}={value}" for name, value in settings.items()]
    output(project, "millstream", "run", "--local", "--config", "config.yaml", *defines, "shop_totals.py")


# The fixtures skip the tests on machines without the servers.
@pytest.mark.parametrize(("template", "server"), [("kafka", "kafka"), ("cdc", "postgres")])
def test_project_passes_its_own_server_test(
    template: str, server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    request.getfixturevalue(server)
    assert "1 passed" in output(create(tmp_path, template), "pytest", "-p", "no:cacheprovider", "-m", "servers")


def test_kafka_project_reads_and_writes_topics_of_settings(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("template-orders")
    kafka.create_topic("template-totals")
    kafka.send("template-orders", [json.dumps({"city": c, "amount": a, "time": t}) for c, a, t in ORDERS])
    topics = {"input_topic": "template-orders", "output_topic": "template-totals"}
    run(create(tmp_path, "kafka"), bootstrap_servers=kafka.bootstrap, until_end="true", **topics)
    totals = [json.loads(line) for line in kafka.read("template-totals")]
    assert sorted(tuple(t.values()) for t in totals) == [("Ghent", 0, 2, 15), ("Porto", 0, 1, 7)]


def test_cdc_project_writes_table_of_the_database_in_settings(postgres: PostgresServer, tmp_path: Path) -> None:
    project = create(tmp_path, "cdc")
    with psycopg.connect(postgres.new_database(), autocommit=True) as shop:
        shop.execute((project / "schema.sql").read_text())
        run(project, hostname="127.0.0.1", port=postgres.port, database=shop.info.dbname, startup="snapshot")
        rows = shop.execute("SELECT city, orders, total FROM spent ORDER BY city").fetchall()
    assert rows == [("Berlin", 2, 30), ("Paris", 1, 12)]
