"""Diagnosis of queries without results: an idle source, rows that wait for the watermark, a join without partners."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from millstream.common import Types, WatermarkStrategy
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from millstream.table import Schema, StreamTableEnvironment
from tests.integration.service.test_window_diagnosis import Splits, environment
from tests.support.helpers import job_of


def tables(**rows: list[int]) -> StreamTableEnvironment:
    """Return an environment with tables (k, at, ts) of these times, which then stay idle without ending."""
    env = environment(1)
    t_env = StreamTableEnvironment.create(env)
    for name, times in rows.items():
        source = env.from_source(Splits(**{name: times}), WatermarkStrategy.no_watermarks(), name)
        stream = source.map(lambda v: v, Types.TUPLE([Types.STRING(), Types.LONG()]))
        schema = (
            Schema.new_builder()
            .column("f0", "STRING")
            .column("f1", "BIGINT")
            .column_by_expression("ts", "TO_TIMESTAMP_LTZ(f1, 3)")
            .watermark("ts", "ts - INTERVAL '1' SECOND")
            .build()
        )
        t_env.create_temporary_view(name, t_env.from_data_stream(stream, schema))
    return t_env


@contextmanager
def running(t_env: StreamTableEnvironment, query: str, columns: str) -> Iterator[tuple[TestClient, str]]:
    t_env.execute_sql(f"CREATE TABLE nowhere ({columns}) WITH ('connector' = 'blackhole')")
    job = t_env.execute_sql(f"INSERT INTO nowhere {query}").get_job_client()
    assert job is not None
    registry = Registry()
    registry.add(job_of(job), {})
    try:
        yield TestClient(make_app(Service(registry))), str(job.get_job_id())
    finally:
        job.cancel().result()


def explanations(client: TestClient, job: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = client.get(f"/jobs/{job}/explanations").json()["explanations"]
    return results


def wait_for_explanation(client: TestClient, job: str, kind: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while True:
        matching = [e for e in explanations(client, job) if e["kind"] == kind]
        if matching:
            return matching[0]
        assert time.monotonic() < end
        time.sleep(0.05)


WINDOWS = (
    "SELECT f0, COUNT(*) FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY f0, window_start, "
    "window_end"
)
WAITS = {
    "windows": (WINDOWS.format("all_events"), "f0 STRING, c BIGINT"),
    "rows": ("SELECT f0, SUM(f1) OVER (PARTITION BY f0 ORDER BY ts) FROM all_events", "f0 STRING, s BIGINT"),
}


@pytest.mark.parametrize("kind", WAITS)
def test_diagnosis_names_idle_source_that_holds_watermark_back(kind: str) -> None:
    t_env = tables(orders=[1_000, 1_500, 90_000], payments=[])
    t_env.execute_sql("CREATE TEMPORARY VIEW all_events AS SELECT * FROM orders UNION ALL SELECT * FROM payments")
    with running(t_env, *WAITS[kind]) as (client, job):
        explanation = wait_for_explanation(client, job, "event time")
    assert "payments" in explanation["title"], explanation
    # In SQL terms, not those of the DataStream API.
    assert (
        "SET 'table.exec.source.idle-timeout' = '10 s'" in explanation["text"]
        and "with_idleness" not in explanation["text"]
    )
    count = explanation["about"]["waiting"][kind]
    assert count >= 2 and f"{count} {kind} wait, the first for 1970-01-01 00:00:01." in explanation["text"], explanation


FIRST = "SELECT f0, f1 FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY f0 ORDER BY ts) AS rn FROM orders) WHERE rn = 1"
NEAR = (
    "SELECT o.f0, p.f1 FROM orders AS o {} JOIN payments AS p ON o.f0 = p.f0 AND o.ts BETWEEN p.ts AND p.ts + INTERVAL "
    "'1' SECOND"
)


def test_diagnosis_counts_rows_waiting_for_watermark() -> None:
    """The watermark is a second behind the only rows, and no later row arrives."""
    with running(tables(orders=[1_000, 1_500]), FIRST, "f0 STRING, f1 BIGINT") as (client, job):
        explanation = wait_for_explanation(client, job, "event time")
    assert "Source: orders delays event time" in explanation["title"], explanation
    assert "1 row waits, the first for 1970-01-01 00:00:01." in explanation["text"], explanation


def test_diagnosis_counts_outer_join_rows_waiting_for_both_sides() -> None:
    with running(tables(orders=[1_000, 90_000], payments=[]), NEAR.format("LEFT"), "f0 STRING, f1 BIGINT") as (
        client,
        job,
    ):
        explanation = wait_for_explanation(client, job, "event time")
    assert "payments" in explanation["title"] and explanation["about"]["waiting"] == {"rows": 2}, explanation


JOINS = {
    "Join(joinType=[InnerJoin]": "SELECT o.f0, p.f1 FROM orders AS o JOIN payments AS p ON o.f1 = p.f1",
    "Join(joinType=[LeftSemiJoin]": "SELECT f0, f1 FROM orders WHERE f1 IN (SELECT f1 FROM payments)",
    "IntervalJoin(": NEAR.format(""),
    "Intersect(": "SELECT f0, f1 FROM orders INTERSECT SELECT f0, f1 FROM payments",
}


@pytest.mark.parametrize("name", JOINS)
def test_diagnosis_names_join_with_rows_of_one_side(name: str) -> None:
    t_env = tables(orders=[1_000, 2_000], payments=[])
    with running(t_env, JOINS[name], "f0 STRING, f1 BIGINT") as (client, job):
        explanation = wait_for_explanation(client, job, "waiting join")
    assert explanation["title"].startswith(name) and explanation["title"].endswith("waits for its second input")
    assert explanation["text"].startswith("2 rows wait for a matching row of "), explanation
    assert "payments" in explanation["text"] and explanation["about"] == {"input": 1, "rows": 2}


def have_arrived(client: TestClient, job: str, count: int) -> bool:
    """Return whether `count` batches have reached the join."""
    vertex = next(v["id"] for v in client.get(f"/jobs/{job}").json()["vertices"] if "Join(" in v["name"])
    n: int = client.get(f"/jobs/{job}/vertices/{vertex}/diagnostics").json()["subtasks"][0]["records-in"]
    return n >= count


@pytest.mark.parametrize(
    ("join", "payments", "batches"),
    # Rows without a partner are emitted; both sides have rows, though none match.
    [("LEFT JOIN", [], 1), ("JOIN", [5_000], 2)],
)
def test_diagnosis_ignores_joins_that_do_not_wait(join: str, payments: list[int], batches: int) -> None:
    t_env = tables(orders=[1_000, 2_000], payments=payments)
    query = f"SELECT o.f0, p.f1 FROM orders AS o {join} payments AS p ON o.f1 = p.f1"
    with running(t_env, query, "f0 STRING, f1 BIGINT") as (client, job):
        end = time.monotonic() + 60
        while not have_arrived(client, job, batches) or "waiting join" in {
            e["kind"] for e in explanations(client, job)
        }:
            assert time.monotonic() < end, explanations(client, job)
            time.sleep(0.05)
