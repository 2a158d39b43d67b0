"""The latency of a session cluster for its clients: 20 idle jobs, 200 concurrent clients, by view.

    python -m bench.rest_load [--jobs 20] [--clients 200]

Starts its own cluster, and a program for each job. For every view it first sends one request, then one from every
client at once, each over its own connection and about the jobs in turn. Prints one JSON object: milliseconds by view,
and the CPU time of the cluster's process for all clients together, which does not depend on other load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from millstream.service.client import ServiceClient
from millstream.service.run_file import RunningService, running_services

PROGRAM = """
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.from_source(DataGeneratorSource(lambda i: i, None, 1)).key_by(lambda i: i % 3).reduce(lambda a, b: b).print()
env.execute("idle")
"""
# The requests of a page and of Prometheus. {job} and {vertex} are those of the client's job.
VIEWS = (
    "/overview",
    "/jobs/overview",
    "/jobs/{job}",
    "/jobs/{job}/checkpoints",
    "/jobs/{job}/metrics?get=uptime,numRestarts",
    "/jobs/{job}/vertices/{vertex}",
    "/jobs/{job}/vertices/{vertex}/subtasks/metrics",
    "/jobs/{job}/explanations",
    "/jobs/metrics",
    "/taskmanagers",
)
# Responses are cached for a second.
CACHE_SECONDS = 1.5


@contextmanager
def cluster(jobs: int) -> Iterator[ServiceClient]:
    """Start a cluster with a number of jobs; yield its client."""
    with tempfile.TemporaryDirectory(prefix="rest-load-") as home:
        os.environ["XDG_RUNTIME_DIR"] = home
        program = os.path.join(home, "idle.py")
        with open(program, "w") as file:
            file.write(PROGRAM)
        command = [sys.executable, "-m", "millstream"]
        slots = ["-D", f"taskmanager.numberOfTaskSlots={jobs}", "-D", "slot.request.timeout=600 s"]
        subprocess.run([*command, "cluster", "start", "-d", *slots], check=True, stdout=sys.stderr)
        service = next(running_services())
        client = ServiceClient(service.url, service.token)
        try:
            for _ in range(jobs):
                client.ask("/programs", "POST", {"path": program, "directory": home, "settings": {}})
            yield client
        finally:
            subprocess.run([*command, "cluster", "stop"], check=True, stdout=sys.stderr)


def running(client: ServiceClient, jobs: int) -> list[tuple[str, str]]:
    """Wait until all jobs run; return the id of each, and of its last vertex."""
    deadline = time.monotonic() + 600
    while sum(j["state"] == "RUNNING" and j["tasks"]["running"] > 0 for j in client.jobs()) < jobs:
        assert time.monotonic() < deadline, client.jobs()
        time.sleep(1)
    ids = [j["jid"] for j in client.jobs()]
    return [(job, client.ask(f"/jobs/{job}")["vertices"][-1]["id"]) for job in ids]


async def request_ms(address: str, path: str, token: str) -> float:
    """Send one request over a new connection; return the milliseconds until the whole response has arrived."""
    host, _, port = address.partition("://")[2].partition(":")
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"GET /v1{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    answer = await reader.read(-1)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), (path, answer[:300])
    return (time.perf_counter() - began) * 1000


def cpu_ms(process: psutil.Process) -> float:
    """Return the CPU time of a process in milliseconds."""
    times = process.cpu_times()
    return float(times.user + times.system) * 1000


async def view_times(service: RunningService, view: str, jobs: list[tuple[str, str]], clients: int) -> dict[str, float]:
    """Return the latency of a view for one client, and for a number of clients at once."""
    url, token, process = service.url, service.token or "", psutil.Process(service.pid)
    paths = [view.format(job=job, vertex=vertex) for job, vertex in jobs]
    await asyncio.sleep(CACHE_SECONDS)
    alone = await request_ms(url, paths[0], token)
    await asyncio.sleep(CACHE_SECONDS)
    before = cpu_ms(process)
    times = await asyncio.gather(*(request_ms(url, paths[n % len(paths)], token) for n in range(clients)))
    processor = round(cpu_ms(process) - before)
    return {"one": round(alone), "median": round(statistics.median(times)), "max": round(max(times)), "cpu": processor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--clients", type=int, default=200)
    options = parser.parse_args()
    with cluster(options.jobs) as client:
        jobs = running(client, options.jobs)
        service = next(s for s in running_services() if s.url == client.url)
        times: dict[str, Any] = {}
        for view in VIEWS:
            times[view] = asyncio.run(view_times(service, view, jobs, options.clients))
            print(f"{view:50} {times[view]}", file=sys.stderr)
        print(json.dumps({"jobs": options.jobs, "clients": options.clients, "load": os.getloadavg()[0], "ms": times}))


if __name__ == "__main__":
    main()
