"""Checks whether a program can start from a checkpoint or savepoint, and what happens to each state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from millstream.checkpoint.inspect import KEYED, Inspection, OperatorInfo, StateInfo
from millstream.checkpoint.restore import has_state
from millstream.checkpoint.state_rows import is_internal, shown_name
from millstream.operators.base import Operator, RuntimeServices
from millstream.operators.broadcast import BroadcastProcessOperator
from millstream.operators.cep.pattern_runner import StatesOfPattern
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.subtask import Subtask
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.source import SourceOperator
from millstream.runtime_services import requests, stopwatch, wall_clock
from millstream.state.kinds import kind_named

# State ("" for keyed state, "operator") -> table -> kind, address, type, ttl.
Tables = dict[str, dict[str, dict[str, str]]]


@dataclass
class DeclaredStates:
    """The states that an operator of a program declares.

    Attributes:
        tables: its tables, as in OperatorSnapshot.
        problem: why the states of its functions are unknown; empty if they are known.
    """

    tables: Tables = field(default_factory=dict)
    problem: str = ""


class _NoStorage:
    """Storage for state that is never written."""

    def read(self, name: str) -> bytes:
        raise AssertionError(f"there is no file {name}")

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        raise AssertionError(f"{name} is not to be written")

    def drop_local_copies(self, names: list[str]) -> None:
        """Do nothing: there are no files."""

    def scratch(self, name: str) -> str:
        raise AssertionError("state is kept in memory")


def declared_states(plan: JobPlan) -> dict[str, DeclaredStates]:
    """Return the states that the operators of a plan declare, by operator id.

    Only those are opened. What a function asks for later than in `open` is not known.
    """
    declared: dict[str, DeclaredStates] = {}
    parallelisms = {v.id: (v.parallelism, v.max_parallelism) for v in plan.vertices}
    for vertex in plan.vertices:
        stateful = [n for n in vertex.nodes if _can_have_state(n.operator)]
        if stateful:
            declared.update(_open(plan, vertex, stateful, parallelisms))
    return declared


def _can_have_state(operator: Operator) -> bool:
    return operator.keyed or operator.has_operator_state


def _open(
    plan: JobPlan, vertex: Vertex, nodes: list[ChainNode], parallelisms: dict[int, tuple[int, int]]
) -> dict[str, DeclaredStates]:
    declared = {n.id: DeclaredStates() for n in nodes}
    services = RuntimeServices(wall_clock, requests, stopwatch(wall_clock))
    try:
        subtask = Subtask(vertex, 0, parallelisms, plan.settings, _NoStorage(), services)
    except Exception as e:
        return {n.id: DeclaredStates(problem=_in_one_line(e)) for n in nodes}
    for node in nodes:
        try:
            node.operator.open()
        except Exception as e:
            declared[node.id].problem = _in_one_line(e)
    for state_id, tables in subtask.tables().items():
        operator, _, which = state_id.partition(".")
        declared[operator].tables[which] = tables
    for node in nodes:
        # The operator was opened only to find its states: errors of close() do not matter.
        with contextlib.suppress(Exception):
            node.operator.close()
    return declared


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {shorten(text)[1:-1]}" if text else type(error).__name__


@dataclass(frozen=True)
class Finding:
    """A finding about an operator or one of its states."""

    operator: str
    state: str | None
    text: str


@dataclass(frozen=True)
class Match:
    """An operator that both the savepoint and the program have.

    Attributes:
        restores: what is restored: "position" for a source, and the names of states with their rows.
    """

    operator: str
    uid: str | None
    id: str
    parallelism: tuple[int, int]
    max_parallelism: tuple[int, int]
    restores: list[str]


@dataclass
class UpgradeReport:
    """The effect on a savepoint's state if a program is restored from it.

    Attributes:
        matches: the operators whose state is restored.
        new: operators and states that start empty.
        lost: state without an operator.
        changed: state that the program reads differently than it was written.
        unknown: what could not be compared.
        warnings: what works now but is fragile.
    """

    matches: list[Match] = field(default_factory=list)
    new: list[Finding] = field(default_factory=list)
    lost: list[Finding] = field(default_factory=list)
    changed: list[Finding] = field(default_factory=list)
    unknown: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def is_compatible(self, allow_lost: bool = False) -> bool:
        """Return whether the program can start from the savepoint without loss, or with the allowed loss."""
        return not self.changed and (allow_lost or not self.lost)


def check_upgrade(inspection: Inspection, plan: JobPlan, declared: dict[str, DeclaredStates]) -> UpgradeReport:
    """Compare the contents of a checkpoint or savepoint with the declarations of a program.

    Args:
        inspection: the savepoint.
        plan: the program's plan.
        declared: the states its operators declare, see `declared_states`.
    """
    report = UpgradeReport()
    nodes_by_id = {n.id: (n, v) for v in plan.vertices for n in v.nodes}
    for operator in inspection.operators():
        if not has_state(inspection.vertices[operator.id], operator.id, inspection.snapshot):
            continue
        if operator.id in nodes_by_id:
            node, vertex = nodes_by_id[operator.id]
            report.matches.append(_match(inspection, operator, vertex))
            _compare(report, operator, node, declared.get(node.id, DeclaredStates()))
        else:
            report.lost.append(_lost_finding(inspection, operator))
    matched = {m.id for m in report.matches}
    for node, _ in nodes_by_id.values():
        if node.id not in matched:
            _add_new(report, node, declared.get(node.id, DeclaredStates()), node.id in inspection.vertices)
    return report


def _match(inspection: Inspection, operator: OperatorInfo, now: Vertex) -> Match:
    return Match(
        operator.name,
        operator.uid,
        operator.id,
        (operator.parallelism, now.parallelism),
        (operator.max_parallelism, now.max_parallelism),
        _contents(inspection, operator),
    )


def _contents(inspection: Inspection, operator: OperatorInfo) -> list[str]:
    contents = ["position"] if operator.id in inspection.snapshot.sources else []
    contents += [f"{s.name} ({s.kind}, {s.rows} {'row' if s.rows == 1 else 'rows'})" for s in operator.states if s.rows]
    if operator.id in inspection.snapshot.committables:
        contents.append("staged output")
    return contents


def _lost_finding(inspection: Inspection, operator: OperatorInfo) -> Finding:
    contents = ", ".join(_contents(inspection, operator)) or "nothing but empty state"
    if operator.uid is None:
        return Finding(
            operator.name,
            None,
            f"{contents}: it had no uid, and no operator has its generated id {operator.id[:8]}",
        )
    return Finding(operator.name, None, f"{contents}: the program has no operator with uid '{operator.uid}'")


def _compare(report: UpgradeReport, operator: OperatorInfo, node: ChainNode, declared: DeclaredStates) -> None:
    if node.uid is None:
        report.warnings.append(_missing_uid(node))
    if declared.problem:
        report.unknown.append(Finding(operator.name, None, f"its functions could not be opened: {declared.problem}"))
    seen: set[tuple[str, str]] = set()
    for state in operator.states:
        tables = declared.tables.get("" if state.scope == KEYED else "operator", {})
        seen.add((state.scope, state.table))
        about = tables.get(state.table)
        if about is not None:
            report.changed += (Finding(operator.name, state.name, text) for text in _changes(state, about))
            if state.table == "_window_contents" and "_merging_windows" in tables and not _merged(operator):
                report.changed.append(
                    Finding(
                        operator.name, state.name, "belongs to windows that did not merge, and the windows merge now"
                    )
                )
        elif state.is_internal:
            if state.rows and not _taken_over(state, tables):
                text = f"{state.rows} rows of the previous operator, which the new one does not read"
                report.changed.append(Finding(operator.name, state.name, text))
        elif not declared.problem and not _is_broadcast_of(node, state):
            text = "is not used in open(): it is kept unchanged until it is used"
            report.warnings.append(Finding(operator.name, state.name, text))
    for name in _declared_names(declared):
        if name not in seen:
            report.new.append(Finding(operator.name, shown_name(name[1]), "starts empty"))


def _changes(state: StateInfo, now: dict[str, str]) -> Iterator[str]:
    """Yield how the declaration of a state has changed; a state without a file cannot be misread."""
    if not state.size:
        return
    before, after = state.layout.kind, kind_named(now["kind"], f"State {state.name!r} of the program")
    if before is not after:
        yield f"was {before.name} state and is {after.name} state now"
        return
    declared = now.get("type", "")
    states = StatesOfPattern.removed_and_added_states(state.type, declared)
    if states is not None:
        removed, new = states
        if removed:
            more = f"; new are {', '.join(new)}" if new else ""
            yield f"may have runs in states that the pattern no longer has: {', '.join(removed)}{more}"
    elif state.type and declared and declared != state.type:
        yield f"was declared as {state.type} and is declared as {declared} now; stored values are not converted"
    if bool(state.ttl) != bool(now.get("ttl", "")):
        change = "had a TTL and has none now" if state.ttl else "had no TTL and has one now"
        yield f"{change}, which changes the stored format"


def _taken_over(state: StateInfo, now: dict[str, dict[str, str]]) -> bool:
    """Return whether an operator reads the windows of another kind of window operator."""
    if state.table == "_merging_windows":
        return "_sessions" in now
    if state.table in ("_panes", "_sessions"):
        general = _combines(now.get("_window_contents")) and not {"_panes", "_sessions"} & set(now)
        return general and ("_merging_windows" in now) == (state.table == "_sessions")
    return False


def _combines(contents: dict[str, str] | None) -> bool:
    return contents is not None and kind_named(contents["kind"], "The state of windows").combines


def _merged(operator: OperatorInfo) -> bool:
    return any(s.table == "_merging_windows" and s.rows for s in operator.states)


def _is_broadcast_of(node: ChainNode, state: StateInfo) -> bool:
    """Return whether it is broadcast state of the program: functions request it when records arrive."""
    names = node.operator.names if isinstance(node.operator, BroadcastProcessOperator) else []
    return state.layout.is_broadcast and state.table in names


def _declared_names(declared: DeclaredStates) -> Iterator[tuple[str, str]]:
    for which, tables in declared.tables.items():
        # State of a function, not internal state of the operator.
        names = (name for name, about in tables.items() if "type" in about and not is_internal(name))
        yield from (("operator" if which else KEYED, name) for name in names)


def _add_new(report: UpgradeReport, node: ChainNode, declared: DeclaredStates, existed: bool) -> None:
    if isinstance(node.operator, SourceOperator):
        report.new.append(Finding(node.name, None, "is a new source and is read from its beginning"))
        return
    names = [shown_name(name) for _, name in _declared_names(declared)]
    if not any(declared.tables.values()) and not declared.problem:
        return
    text = "had no state and starts empty" if existed else "is new and starts empty"
    report.new.append(Finding(node.name, None, f"{text} ({', '.join(names)})" if names else text))
    if node.uid is None:
        report.warnings.append(_missing_uid(node))


def _missing_uid(node: ChainNode) -> Finding:
    return Finding(
        node.name, None, "has state but no uid: its generated id depends on the structure of the program. Set .uid(...)"
    )
