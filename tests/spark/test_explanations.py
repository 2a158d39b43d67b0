"""What the job service tells of jobs on Spark."""

from __future__ import annotations

import time
from typing import Any

from conftest import Env
from starlette.testclient import TestClient

from millstream.common import WatermarkStrategy
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry


def _slow(x: int) -> int:
    time.sleep(0.001)
    return x


def test_the_vertex_that_holds_a_job_up_is_named_and_the_one_with_a_hot_key(env: Env, slots_stay: bool) -> None:
    numbers = env.from_source(NumberSequenceSource(1, 10**9), WatermarkStrategy.no_watermarks(), "numbers")
    spread = numbers.map(lambda x: x).key_by(lambda x: x % 100).map(_slow).name("slow")
    spread.key_by(lambda x: 0 if x % 10 else x).reduce(lambda a, b: a).name("hot").add_sink(lambda v: None)
    job = env.execute_async("three levels")
    registry = Registry()
    registry.add(job._job, {})  # type: ignore[attr-defined]
    client = TestClient(make_app(Service(registry)))
    try:
        told = _until(
            client, str(job.get_job_id()), registry, wanted={"skew", *(["back pressure"] if slots_stay else [])}
        )
    finally:
        job.cancel().result()
    if slots_stay:
        assert told["back pressure"]["title"] == "slow holds the job up"
        assert "Source: numbers -> Map" in told["back pressure"]["text"]
        assert "made at test_explanations.py:" in told["back pressure"]["text"]
    assert told["skew"]["title"] == "hot -> Sink has more to do in one subtask"


def _until(client: TestClient, job: str, registry: Registry, wanted: set[str]) -> dict[str, Any]:
    end = time.monotonic() + 40
    while True:
        registry.sample()
        time.sleep(0.3)
        told = {e["kind"]: e for e in client.get(f"/jobs/{job}/explanations").json()["explanations"]}
        if wanted <= set(told):
            return told
        assert time.monotonic() < end, (told, client.get(f"/jobs/{job}").json()["vertices"])
