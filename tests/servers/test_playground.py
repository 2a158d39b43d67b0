"""The playground: real Kafka and PostgreSQL, a generator and a job, until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import psycopg
import pytest

from tests.support.paths import ROOT

SECONDS = 150.0


@contextmanager
def playground(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Start the playground in its own process group, as a shell does, and end all its processes."""
    command = [sys.executable, "-u", str(ROOT / "examples" / "playground" / "playground.py"), *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A background job of a shell ignores Ctrl-C, and the playground would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        for left in members(process.pid):
            left.kill()
        process.communicate()


def members(session: int) -> list[psutil.Process]:
    processes = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return processes


def found(process: subprocess.Popen[str], pattern: str) -> str:
    """Return the group of a pattern in the next line that matches it."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if match := re.search(pattern, line):
            return match.group(1)
    pytest.fail(f"{pattern} is not in {seen}")


# The fixtures skip the test on machines without the servers.
@pytest.mark.usefixtures("kafka", "postgres")
def test_playground_writes_results_until_interrupt() -> None:
    with playground("--local") as process:
        database = found(process, "^PostgreSQL: (.*)$")
        page = found(process, "jobs are served at (http.*)$")
        with psycopg.connect(database, autocommit=True) as shop:
            end = time.monotonic() + SECONDS
            while True:
                revenue = shop.execute("SELECT SUM(orders), COUNT(*) FROM revenue").fetchone()
                cities = shop.execute("SELECT COUNT(DISTINCT city) FROM windows").fetchone()
                assert revenue is not None and cities is not None
                if (revenue[1], cities[0]) >= (2, 4):
                    break
                assert process.poll() is None and time.monotonic() < end, (revenue, cities)
                time.sleep(0.2)
            # Changes of the database arrive, too: all products are in one category.
            shop.execute("UPDATE products SET category = 'all'")
            while shop.execute("SELECT COUNT(*) FROM revenue WHERE category = 'all'").fetchone() != (1,):
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.2)
        with urllib.request.urlopen(f"{page}/jobs/overview", timeout=30) as answer:
            assert [(job["name"], job["state"]) for job in json.load(answer)["jobs"]] == [("playground", "RUNNING")]
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert members(process.pid) == []
