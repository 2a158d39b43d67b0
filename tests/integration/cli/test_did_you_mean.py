"""Errors of programs and statements suggest the intended name and show the line of the program."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from millstream.common.display_text import closest
from millstream.datastream import StreamExecutionEnvironment
from millstream.service.registry import Operations
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.expressions import col
from tests.support.helpers import wait_until


@pytest.fixture
def tables() -> TableEnvironment:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.execute_sql("CREATE TABLE orders (id INT, customer STRING) WITH ('connector' = 'datagen')")
    return environment


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("SELECT * FROM ordes", "Object 'ordes' not found; did you mean 'orders'?"),
        ("SELECT custmer FROM orders", "'custmer' not found in any table; did you mean 'customer'?"),
        ("SELECT o.custmer FROM orders o", "'custmer' not found in table 'o'; did you mean 'customer'?"),
        ("SELECT orers.id FROM orders", "Table 'orers' not found; did you mean 'orders'?"),
        ("SELECT UPER(customer) FROM orders", "UPER(<CHARACTER>); did you mean 'UPPER'?"),
        ("INSERT INTO ordrs SELECT * FROM orders", "nor as a temporary table; did you mean 'orders'?"),
    ],
)
def test_validation_suggests_name_for_misspelt_identifier(tables: TableEnvironment, statement: str, hint: str) -> None:
    with pytest.raises(Exception) as caught:
        tables.execute_sql(statement)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ("'connector' = 'dategen'", "There is no connector 'dategen'; did you mean 'datagen'?"),
        ("'connector' = 'datagen', 'number-of-row' = '5'", "Did you mean 'number-of-rows'?"),
        ("'connector' = 'filesystem', 'path' = '/tmp/x', 'format' = 'jsn'", "no format 'jsn'; did you mean 'json'?"),
        ("'connector' = 'datagen', 'fields.nam.length' = '1'", "names no column of the table; did you mean 'name'?"),
    ],
)
def test_connector_suggests_misspelt_option(tables: TableEnvironment, options: str, hint: str) -> None:
    tables.execute_sql(f"CREATE TABLE t (id INT, name STRING) WITH ({options})")
    with pytest.raises(Exception) as caught:
        tables.execute_sql("SELECT * FROM t")
    assert hint in str(caught.value)


def test_table_api_suggests_column_and_table(tables: TableEnvironment) -> None:
    with pytest.raises(Exception, match="did you mean 'orders'"):
        tables.from_path("ordrs")
    with pytest.raises(Exception, match="did you mean 'customer'"):
        tables.from_path("orders").select(col("custmer"))


def test_closest_returns_none_for_dissimilar_names() -> None:
    assert closest("price", ["id", "customer"]) is None


def test_insert_suggests_upsert_sink_for_append_only_sink(tables: TableEnvironment) -> None:
    tables.execute_sql(
        "CREATE TABLE files (customer STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '/tmp/x', "
        "'format' = 'json')"
    )
    with pytest.raises(Exception, match="Write to a table that takes changes"):
        tables.execute_sql("INSERT INTO files SELECT customer, COUNT(*) FROM orders GROUP BY customer")


@pytest.mark.parametrize("name", ["sum", "min_by", "reduce", "window", "count_window"])
def test_data_stream_suggests_key_by_for_keyed_stream_methods(name: str) -> None:
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(AttributeError, match=rf"DataStream has no {name}\(\).*call key_by\(...\) first"):
        getattr(stream, name)
    with pytest.raises(AttributeError, match="'DataStream' object has no attribute 'sums'"):
        stream.sums  # type: ignore[attr-defined]  # noqa: B018
    stream.print()


def test_validation_error_shows_program_line_in_script(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from millstream.table import EnvironmentSettings, TableEnvironment\n"
        "t = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())\n"
        "t.execute_sql('SELECT * FROM nowhere')\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[:2] == [f'  File "{script}", line 3, in <module>', "    t.execute_sql('SELECT * FROM nowhere')"]
    assert lines[2].startswith("SQL validation failed. At line 1, column 15: Object 'nowhere' not found")


def test_operations_wait_until_result_is_read() -> None:
    operations, done = Operations(), Future[Any]()
    trigger = operations.start("job", "savepoints", done)
    reads: list[str] = []

    def read() -> None:
        reads.append(trigger)
        operations.mark_read("job", trigger)

    reader = threading.Timer(0.05, read)
    reader.start()
    operations.wait_until_read(60)
    assert reads == [trigger]
    reader.join()


def test_stop_prints_savepoint_of_local_job(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from millstream.table import EnvironmentSettings, TableEnvironment\n"
        "t = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())\n"
        "t.execute_sql(\"CREATE TABLE o (id INT) WITH ('connector' = 'datagen', 'rows-per-second' = '5')\")\n"
        "t.execute_sql(\"CREATE TABLE s (id INT) WITH ('connector' = 'blackhole')\")\n"
        "t.execute_sql('INSERT INTO s SELECT id FROM o').wait()\n"
    )
    millstream = [sys.executable, "-m", "millstream"]
    command = [*millstream, "run", "--local", "-D", "rest.port=auto", str(script)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        first = program.stderr.readline()
        address = first.removeprefix("millstream: jobs are served at http://").strip()

        def jobs() -> list[dict[str, Any]]:
            listed = subprocess.run([*millstream, "list", "--json", "-m", address], capture_output=True, text=True)
            return json.loads(listed.stdout) if listed.returncode == 0 else []

        try:
            wait_until(lambda: any(job["state"] == "RUNNING" for job in jobs()))
            stop = [*millstream, "stop", "-p", str(tmp_path / "savepoints"), "-m", address, jobs()[0]["jid"]]
            stopped = subprocess.run(stop, capture_output=True, text=True)
            program.wait(60)
        finally:
            program.kill()
    assert program.returncode == 0
    assert "was stopped with a savepoint" in stopped.stdout, stopped.stderr
