"""The cost of a job that waits for input: CPU time of all its processes, in % of one core.

Prints one JSON object: by process (driver, java, slots and their host processes) and in total.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import psutil

from bench.millstream_job import ClockedReader
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

# During the first seconds, sources are still polled often and the JVM still compiles.
SETTLING = 5.0


class SilentReader(ClockedReader):
    """A stream reader that returns a thousand records, and then none."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.polls = 0

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        self.polls += 1
        return {"at": 1000}


def kind_of(process: psutil.Process) -> str:
    if process.pid == psutil.Process().pid:
        return "driver"
    return "java" if "java" in process.name() else "slots"


def cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds of each kind of process so far."""
    cpu = {"driver": 0.0, "java": 0.0, "slots": 0.0}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        times = process.cpu_times()
        cpu[kind_of(process)] += times.user + times.system
    return cpu


def measure(seconds: float, timeout: int | None) -> dict[str, Any]:
    """Start a job, and measure for a number of seconds after its input has become idle."""
    settings = Configuration.from_dict({"millstream.quiet": "true", "millstream.exchange": "resident"})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    if timeout is not None:
        env.set_buffer_timeout(timeout)
    reader = SilentReader()
    counts = env.from_source(reader).key_by(lambda t: t[0]).reduce(lambda a, b: b)
    counts.add_sink(lambda value: None)
    client = env.execute_async()
    # The job is polled at this interval only after the first epoch.
    while reader.polls < 20:
        time.sleep(0.1)
    time.sleep(SETTLING)
    before, began = cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    after, took = cpu_seconds(), time.monotonic() - began
    client.cancel().result(20)
    percent = {kind: 100 * (after[kind] - before[kind]) / took for kind in before}
    return {**percent, "all": sum(percent.values()), "seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--timeout", type=int, help="the buffer timeout in milliseconds; without, the default")
    options = parser.parse_args()
    print(json.dumps(measure(options.seconds, options.timeout)))


if __name__ == "__main__":
    main()
