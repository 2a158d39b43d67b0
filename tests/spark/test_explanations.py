"""The job service's diagnostics of jobs on Spark."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from starlette.testclient import TestClient

from millstream.common import WatermarkStrategy
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from tests.conftest import Env
from tests.support.helpers import job_of


def _slow(x: int) -> int:
    time.sleep(0.001)
    return x


def test_diagnosis_names_backpressuring_vertex_and_hot_key(env: Env, resident_slots: bool) -> None:
    numbers = env.from_source(NumberSequenceSource(1, 10**9), WatermarkStrategy.no_watermarks(), "numbers")
    spread = numbers.map(_busy).key_by(lambda x: x % 100).map(_slow).name("slow")
    spread.key_by(lambda x: 0 if x % 10 else x).reduce(lambda a, b: a).name("hot").add_sink(lambda v: None)
    job = env.execute_async("three levels")
    registry = Registry()
    registry.add(job_of(job), {})
    client = TestClient(make_app(Service(registry)))
    try:
        reported = _until(
            client, str(job.get_job_id()), registry, expected={"skew", *(["back pressure"] if resident_slots else [])}
        )
        seen = _flames(client, str(job.get_job_id()))
    finally:
        job.cancel().result()
    # Flame graphs attribute time to the user's lines: one sleeps, the other computes.
    off, on = seen["off_cpu"], seen["on_cpu"]
    # On a busy machine the sleeper also waits for a core, which counts as on-CPU.
    assert off["_slow"] > off["_busy"] and on["_busy"] * off["_slow"] > 2 * on["_slow"] * off["_busy"], seen
    if resident_slots:
        assert reported["back pressure"]["title"] == "slow is the bottleneck"
        assert "Source: numbers -> Map" in reported["back pressure"]["text"]
        assert "made at test_explanations.py:" in reported["back pressure"]["text"]
    assert reported["skew"]["title"] == "hot -> Sink has data skew"
    # Nine of ten records have the key 0.
    (hottest, *_) = reported["skew"]["about"]["keys"]
    assert hottest["key"] == "0" and hottest["share"] > 0.7
    assert "hot key 0 with " in reported["skew"]["text"]


def _busy(x: int) -> int:
    return sum(range(15_000)) * 0 + x


def _flames(client: TestClient, job: str) -> dict[str, Counter[str]]:
    """Return the number of samples of each user function, by kind of flame graph, over all vertices."""
    vertices = [v["id"] for v in client.get(f"/jobs/{job}").json()["vertices"]]
    end = time.monotonic() + 40
    while True:
        seen: dict[str, Counter[str]] = {"on_cpu": Counter(), "off_cpu": Counter()}
        for kind, counted in seen.items():
            for vertex in vertices:
                answer = client.get(f"/jobs/{job}/vertices/{vertex}/flamegraph?type={kind}").json()
                _count(answer.get("data", {"name": "", "value": 0, "children": []}), counted)
        if seen["off_cpu"]["_slow"] > 20 and seen["on_cpu"]["_busy"] > 20:
            return seen
        assert time.monotonic() < end, seen
        time.sleep(0.2)


def _count(node: dict[str, Any], counted: Counter[str]) -> None:
    if node["name"].startswith("test_explanations.py:"):
        counted[node["name"].split()[1]] += node["value"]
    for child in node["children"]:
        _count(child, counted)


def _until(client: TestClient, job: str, registry: Registry, expected: set[str]) -> dict[str, Any]:
    end = time.monotonic() + 40
    while True:
        registry.sample()
        time.sleep(0.3)
        answer = {e["kind"]: e for e in client.get(f"/jobs/{job}/explanations").json()["explanations"]}
        if expected <= set(answer) and answer["skew"]["about"]["keys"]:
            return answer
        assert time.monotonic() < end, (answer, client.get(f"/jobs/{job}").json()["vertices"])
