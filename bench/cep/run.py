"""Patterns compared with Flink Java: the same generated events, the same patterns, two slots each.

    python -m bench.cep.run CASE:EVENTS:KEYS ...          millstream on Spark
    python -m bench.cep.run --flink CASE:EVENTS:KEYS ...  Flink, from the jars of PyPI's apache-flink; needs a JDK

CASE is strict, relaxed, greedy, any, not or keys. Prints one line of JSON for each. A small job runs first, so that the
figures include neither the start of Spark or Flink nor Java's compiler.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from millstream.cep import CEP, AfterMatchSkipStrategy, Pattern
from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.testing import CollectSink

HERE = Path(__file__).resolve().parent


def pattern(case: str) -> Pattern:
    def is_(letter: str) -> Any:
        return lambda e: e[1] == letter

    a = Pattern.begin("a").where(is_("a"))
    if case in ("strict", "keys"):
        return a.next("b").where(is_("b")).next("c").where(is_("c"))
    if case == "relaxed":
        first = Pattern.begin("a", AfterMatchSkipStrategy.skip_past_last_event()).where(is_("a"))
        return first.followed_by("b").where(is_("b")).followed_by("c").where(is_("c"))
    if case == "greedy":
        return a.next("b").where(is_("b")).one_or_more().greedy().next("c").where(is_("c")).within(2_000)
    if case == "any":
        return a.followed_by_any("b").where(is_("b")).followed_by_any("c").where(is_("c")).within(2_000)
    assert case == "not", case
    return a.not_followed_by("b").where(is_("b")).within(1_000)


def millstream(case: str, events: int, keys: int) -> dict[str, Any]:
    half = events // 2

    def event_of(i: int) -> tuple[int, str, int]:
        h = (i * 2654435761 + 12345) & 0xFFFFFFFF
        h ^= h >> 15
        h = (h * 2246822519) & 0xFFFFFFFF
        h ^= h >> 13
        return (h >> 8) % keys * 2 + (i >= half), "abcd"[h & 3], i % half // 5

    config = Configuration.from_dict(
        {"spark.master": "local[2]", "parallelism.default": "2", "millstream.quiet": "true"}
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    marks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[2])
    stream = env.from_source(NumberSequenceSource(0, events - 1)).map(event_of).assign_timestamps_and_watermarks(marks)
    sink = CollectSink()
    matches = CEP.pattern(stream.key_by(lambda e: e[0]), pattern(case)).select(len)
    matches.sink_to(sink)
    start = time.perf_counter()
    env.execute()
    seconds = time.perf_counter() - start
    return {"case": case, "events": events, "seconds": round(seconds, 2), "matches": len(sink.results())}


def flink(cases: list[str]) -> None:
    from tests.support.apache_flink import flink_folder

    folder = flink_folder()
    assert folder is not None, "apache-flink is not installed"
    jars = [*folder.glob("lib/flink-cep*.jar"), *folder.glob("lib/flink-dist*.jar"), *folder.glob("lib/log4j*.jar")]
    classpath = ":".join(map(str, jars))
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", classes, str(HERE / "CepBench.java")], check=True)
        opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang")]
        command = ["java", "-Xmx1200m", *opens, "-cp", f"{classes}:{classpath}", "CepBench", *cases]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    cases = [a for a in sys.argv[1:] if a != "--flink"]
    if "--flink" in sys.argv:
        flink(cases)
    else:
        millstream("strict", 100_000, 1_000)
        for case in cases:
            name, events, keys = case.split(":")
            print(json.dumps(millstream(name, int(events), int(keys))), flush=True)
