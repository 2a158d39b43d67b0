"""What states a program declares, found out without running it: its functions are opened, on state that is empty."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from millstream.operators.base import Operator, RuntimeServices
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.subtask import Subtask
from millstream.operators.runtime.vertex import Vertex
from millstream.runtime_services import requests, stopwatch, wall_clock

# Which state ("" of keys, "operator") -> table -> kind, address, type, ttl.
Tables = dict[str, dict[str, dict[str, str]]]


@dataclass
class Declared:
    """What an operator of a program declares.

    Attributes:
        tables: its tables, as in OperatorSnapshot.
        problem: why the states of its functions are not known; nothing when they are.
    """

    tables: Tables = field(default_factory=dict)
    problem: str = ""


class _Nowhere:
    """Storage for state that is never written."""

    def read(self, name: str) -> bytes:
        raise AssertionError(f"there is no file {name}")

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        raise AssertionError(f"{name} is not to be written")

    def forget(self, names: list[str]) -> None:
        """Do nothing: there are no files."""

    def scratch(self, name: str) -> str:
        raise AssertionError("state is kept in memory")


def declared_states(plan: JobPlan) -> dict[str, Declared]:
    """Return what the operators of a plan that can have state declare, by operator id.

    Only those are opened. What a function asks for later than in `open` is not known.
    """
    found: dict[str, Declared] = {}
    parallelisms = {v.id: (v.parallelism, v.max_parallelism) for v in plan.vertices}
    for vertex in plan.vertices:
        stateful = [n for n in vertex.nodes if _can_have_state(n.operator)]
        if stateful:
            found.update(_open(plan, vertex, stateful, parallelisms))
    return found


def _can_have_state(operator: Operator) -> bool:
    return operator.keyed or operator.has_operator_state


def _open(
    plan: JobPlan, vertex: Vertex, nodes: list[ChainNode], parallelisms: dict[int, tuple[int, int]]
) -> dict[str, Declared]:
    found = {n.id: Declared() for n in nodes}
    services = RuntimeServices(wall_clock, requests, stopwatch(wall_clock))
    try:
        subtask = Subtask(vertex, 0, parallelisms, plan.settings, _Nowhere(), services)
    except Exception as e:
        return {n.id: Declared(problem=_in_one_line(e)) for n in nodes}
    for node in nodes:
        try:
            node.operator.open()
        except Exception as e:
            found[node.id].problem = _in_one_line(e)
    for state_id, tables in subtask.tables().items():
        operator, _, which = state_id.partition(".")
        found[operator].tables[which] = tables
    for node in nodes:
        # It was only opened to be asked; what it says when it is closed is nobody's concern.
        with contextlib.suppress(Exception):
            node.operator.close()
    return found


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {shorten(text)[1:-1]}" if text else type(error).__name__
