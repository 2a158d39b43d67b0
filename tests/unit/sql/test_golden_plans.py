"""Compiled plans of earlier versions run, and uids of SQL operators are independent of class and field names."""

from __future__ import annotations

import gzip
import json
from dataclasses import field
from typing import Any

import pytest
from golden.plans import FILE, NOT_COMPILED, environment, plans

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.optimizer import planner
from millstream.sql.plan import nodes as n
from millstream.sql.plan import records
from millstream.sql.plan.records import RECORDS
from millstream.table import PlanReference

GOLDEN: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    return plans()  # type: ignore[no-any-return]


def _tags(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$record"]} if "$record" in value else set()
        return own.union(*map(_tags, value.values()))
    return set().union(*map(_tags, value)) if isinstance(value, list) else set()


def test_golden_plans_cover_every_plan_record() -> None:
    assert set(RECORDS) - _tags(list(GOLDEN.values())) == NOT_COMPILED


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_plan_round_trips(name: str, compiled: dict[str, Any]) -> None:
    t_env, _ = compiled[name]
    read = t_env.load_plan(PlanReference.from_json_string(json.dumps(GOLDEN[name])))
    assert json.loads(read.as_json_string()) == GOLDEN[name]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_plan_uids_are_stable(name: str, compiled: dict[str, Any]) -> None:
    now = json.loads(compiled[name][1])
    assert [node["uid"] for node in now["nodes"]] == [node["uid"] for node in GOLDEN[name]["nodes"]]


def test_plan_signature_ignores_class_names_and_default_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    @fast_dataclass
    class Renamed(n.SetOperation):
        added: int = field(default=5)

    before = n.SetOperation(None, None, None, "INTERSECT", True)  # type: ignore[arg-type]
    expected = planner.signature(before)
    monkeypatch.setitem(records.RECORDS, "set-operation", Renamed)
    monkeypatch.setattr(records, "_TAGS", {Renamed: "set-operation"})

    assert planner.signature(Renamed(None, None, None, "INTERSECT", True)) == expected  # type: ignore[arg-type]
    assert planner.signature(Renamed(None, None, None, "INTERSECT", True, 6)) != expected  # type: ignore[arg-type]


def test_plan_sharing_keeps_column_names_of_each_query() -> None:
    t_env = environment()
    statements = t_env.create_statement_set()
    for name in ("x1", "x2"):
        t_env.execute_sql(f"CREATE TABLE {name}_sink (n BIGINT) WITH ('connector' = 'blackhole')")
        statements.add_insert_sql(
            f"INSERT INTO {name}_sink SELECT {name} FROM (SELECT id, COUNT(*) AS {name} FROM src GROUP BY id)"
        )
    optimized = statements.explain().partition("== Optimized Physical Plan ==")[2]
    assert "AS x1]" in optimized and "AS x2]" in optimized
