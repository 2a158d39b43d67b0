"""Asks a running service for every path of Flink's OpenAPI file, with parameters made up by schemathesis and real ids.

Runs in a venv of its own, see bench/venvs.py: python conform.py URL WORLD. WORLD is JSON: which operations are left
out, what stands in the place of parts of the file, what each path parameter may be, and what requests carry. An answer
must be one of those the file has for that path, with a body of the shape it has there, or a refusal: 4xx, and
{"errors": [...]} alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

HERE = Path(__file__).parent
FILE = HERE / "flink-rest-v1-2.3.0.yml"
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
EXAMPLES = 4


def check(operation: Any, url: str, world: dict[str, Any]) -> tuple[set[int], list[str]]:
    """Ask one path some times; return the status codes that were seen, and what was wrong."""
    name = f"{operation.method.upper()} {operation.path}"
    seen: set[int] = set()
    wrong: list[str] = []

    def ask(case: Any) -> None:
        case.headers = {**(case.headers or {}), **world["headers"]}
        answer = case.call(base_url=url, timeout=30)
        seen.add(answer.status_code)
        if 400 <= answer.status_code < 500:
            if list(answer.json()) != ["errors"]:
                wrong.append(f"{name}: refused with {answer.content[:200]!r}")
            return
        try:
            case.validate_response(answer, checks=CHECKS)
        except BaseExceptionGroup as e:
            wrong.extend(f"{name}: {type(x).__name__}: {_short(x)}" for x in e.exceptions)
        except AssertionError as e:
            wrong.append(f"{name}: {_short(e)}")

    # As a client would ask.
    parameters = {**world["parameters"], **world["special"].get(name, {})}
    real = {p: v for p, v in parameters.items() if f"{{{p}}}" in operation.path}
    about: dict[str, Any] = {"path_parameters": real, "query": world["queries"].get(name, {})}
    if name in world["bodies"]:
        about |= {"body": world["bodies"][name], "media_type": "application/json"}
    known = operation.Case(**about)
    ask(known)
    if name in world["once"]:
        return seen, wrong

    # As nobody would: parameters made up, on what is there and on what is not.
    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def made_up(case: Any) -> None:
        ask(case)
        if real:
            case.path_parameters = real
            ask(case)

    made_up()
    return seen, wrong


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def main(url: str, world_path: str) -> int:
    world = json.loads(Path(world_path).read_text())
    raw = yaml.safe_load(FILE.read_text())
    raw["components"]["schemas"].update(world["corrected"])
    schema = schemathesis.openapi.from_dict(raw)
    problems, asked = [], 0
    for result in schema.get_all_operations():
        operation = result.ok()
        name = f"{operation.method.upper()} {operation.path}"
        if name in world["left_out"]:
            continue
        asked += 1
        seen, wrong = check(operation, url, world)
        problems += wrong
        if not seen & {200, 202}:
            problems.append(f"{name}: never answered, only {sorted(seen)}")
    for problem in dict.fromkeys(problems):
        print(problem)
    print(f"{asked} operations asked, {len(set(problems))} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
