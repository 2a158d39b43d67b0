"""The cost of monitoring for a job: 50 clients that poll all REST paths every 3 s, or the flame graph's sampler.

With `--flames` it measures the sampler, else the clients. Prints one JSON object: records per second without and with
monitoring (medians of alternating turns), the cost in percent, and the same from the job's CPU time per million records
(driver and slots, without Java), which other load on the machine does not distort. With clients, also the answered
requests per second, and the CPU time of the clients, which would run on other machines. A client keeps its connection,
and sends the web page's requests.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from typing import Any

import psutil

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.collect import LocalJobClient
from millstream.datastream.connectors.number_seq import NumberSequenceSource

CLIENTS, EVERY = 50, 3.0
WARM_UP = 8.0
_METRICS = "get=busyTimeMsPerSecond,backPressuredTimeMsPerSecond,idleTimeMsPerSecond,numRecordsInPerSecond"


def paths(url: str, job: str) -> list[str]:
    """Return the paths that a client requests."""
    with urllib.request.urlopen(f"{url}/jobs/{job}") as answer:
        vertices = [v["id"] for v in json.load(answer)["vertices"]]
    of_job = ["", "/status", "/plan", "/config", "/exceptions", "/accumulators", "/metrics?get=uptime,numRestarts"]
    of_job += ["/checkpoints", "/checkpoints/config", "/explanations", "/execution-result"]
    of_vertex = ["", "/backpressure", "/watermarks", "/subtasktimes", "/taskmanagers", "/accumulators", "/metrics"]
    of_vertex += ["/diagnostics", f"/subtasks/metrics?{_METRICS}"]
    result = ["/overview", "/config", "/jobs", "/jobs/overview", "/taskmanagers", "/jobmanager/config"]
    result += [f"/jobs/{job}{rest}" for rest in of_job]
    return result + [f"/jobs/{job}/vertices/{v}{rest}" for v in vertices for rest in of_vertex]


async def poll(host: str, port: int, request_paths: list[str], seconds: float) -> int:
    """Run 50 clients for some seconds; return the number of responses."""
    end = time.monotonic() + seconds

    async def client(number: int) -> int:
        answered = 0
        reader, writer = await asyncio.open_connection(host, port)
        await asyncio.sleep(EVERY * number / CLIENTS)
        while time.monotonic() < end:
            began = time.monotonic()
            for path in request_paths:
                writer.write(f"GET /v1{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200"), head
                length = int(head.lower().split(b"content-length:")[1].split()[0])
                await reader.readexactly(length)
                answered += 1
                if time.monotonic() >= end:
                    break
            await asyncio.sleep(max(0.0, min(EVERY - (time.monotonic() - began), end - time.monotonic())))
        writer.close()
        return answered

    return sum(await asyncio.gather(*(client(i) for i in range(CLIENTS))))


def run_clients(url: str, job: str, seconds: float) -> None:
    """The client process: print the number of responses and the CPU time used here."""
    host, port = url.removeprefix("http://").split(":")
    request_paths = paths(url, job)
    began = time.process_time()
    answers = asyncio.run(poll(host, int(port), request_paths, seconds))
    print(json.dumps({"answers": answers, "cpu": time.process_time() - began, "paths": len(request_paths)}))


def work() -> float:
    """Return the CPU time used by the job: this process and the slots, without Java, which is idle."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            if "java" not in process.name() and "--clients" not in process.cmdline():
                used = process.cpu_times()
                total += used.user + used.system
    return total


def measure(seconds: float, turns: int, flames: bool) -> dict[str, Any]:
    settings = {"millstream.quiet": "false", "rest.port": "auto", "parallelism.default": "2"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    numbers = env.from_source(NumberSequenceSource(1, 10**13), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(lambda x: (x % 1000, x)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).add_sink(
        lambda v: None
    )
    from millstream.service.run_file import running_services

    client = env.execute_async("polled")
    assert isinstance(client, LocalJobClient)
    job = str(client.get_job_id())
    (url,) = (s.url for s in running_services() if s.pid == os.getpid())
    time.sleep(WARM_UP)
    rates: dict[bool, list[float]] = {False: [], True: []}
    efforts: dict[bool, list[float]] = {False: [], True: []}
    answers, cpu, path_count = 0, 0.0, 0
    for turn in range(2 * turns):
        # Each goes first equally often.
        is_watched = (turn + turn // 2) % 2 == 1
        command = [sys.executable, __file__, "--clients", url, job, "--seconds", str(seconds)]
        others = subprocess.Popen(command, stdout=subprocess.PIPE) if is_watched and not flames else None
        if is_watched and flames:
            client.job.sample(seconds - 0.5)
        # Wait until the clients have started.
        time.sleep(1.0)
        used, before, began = work(), read(url, job), time.monotonic()
        time.sleep(seconds - 2.0)
        records = read(url, job) - before
        rates[is_watched].append(records / (time.monotonic() - began))
        efforts[is_watched].append((work() - used) / records * 1e6)
        if others is not None:
            answer = json.loads(others.communicate()[0])
            answers, cpu, path_count = answers + answer["answers"], cpu + answer["cpu"], answer["paths"]
        else:
            time.sleep(1.0)
    client.cancel().result(20)
    alone, monitored = statistics.median(rates[False]), statistics.median(rates[True])
    effort, more = statistics.median(efforts[False]), statistics.median(efforts[True])
    results = {
        "alone": alone,
        "polled": monitored,
        "cost_percent": 100 * (1 - monitored / alone),
        "seconds_per_million": effort,
        "seconds_per_million_polled": more,
        "cpu_cost_percent": 100 * (more / effort - 1),
        "of_a_core_percent": 100 * (more - effort) * monitored / 1e6,
    }
    if flames:
        return results
    return {
        **results,
        "answers_per_second": answers / (turns * seconds),
        "clients_cpu_percent": 100 * cpu / (turns * seconds),
        "clients": CLIENTS,
        "paths": path_count,
    }


def read(url: str, job: str) -> int:
    with urllib.request.urlopen(f"{url}/jobs/{job}") as answer:
        vertices = json.load(answer)["vertices"]
    return int(vertices[0]["metrics"]["read-records"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=12.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--flames", action="store_true", help="measure the sampler of the flame graph instead")
    parser.add_argument("--clients", nargs=2, metavar=("URL", "JOB"), help="be the clients")
    options = parser.parse_args()
    if options.clients:
        url, job = options.clients
        run_clients(url, job, options.seconds)
    else:
        print(json.dumps(measure(options.seconds, options.turns, options.flames)))


if __name__ == "__main__":
    main()
