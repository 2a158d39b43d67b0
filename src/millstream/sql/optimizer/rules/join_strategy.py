"""How joins are done in BATCH: as a hint says, else by hash, unless that is switched off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Call, Column, Expression, conjunction, conjuncts
from millstream.sql.plan import nodes as n
from millstream.sql.types import DataTypes

_DISABLED = "table.exec.disabled-operators"
# What Flink knows of. Aggregates have one operator here, which cannot be switched off.
_OPERATORS = (
    *("NestedLoopJoin", "ShuffleHashJoin", "BroadcastHashJoin", "SortMergeJoin", "HashJoin"),
    *("HashAgg", "SortAgg"),
)
# Which of them switch a strategy off.
_SWITCHES = {
    n.JoinStrategy.HASH: {"HashJoin", "ShuffleHashJoin"},
    n.JoinStrategy.MERGE: {"SortMergeJoin"},
    n.JoinStrategy.LOOP: {"NestedLoopJoin"},
}
_HINTED = {
    "SHUFFLE_HASH": n.JoinStrategy.HASH,
    "BROADCAST": n.JoinStrategy.HASH,
    "SHUFFLE_MERGE": n.JoinStrategy.MERGE,
    "NEST_LOOP": n.JoinStrategy.LOOP,
}


def choose_strategy(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Say how a join is done."""
    if type(node) is not n.Join:
        return node
    disabled = _disabled(settings)
    # What is best comes first.
    ways = list(n.JoinStrategy) if node.left_keys else [n.JoinStrategy.LOOP]
    able = [s for s in ways if not _SWITCHES[s] & disabled]
    if not able:
        raise TableException(
            f"'{_DISABLED}' = '{settings[_DISABLED]}' leaves no operator for a join"
            f"{'' if node.left_keys else ' without an equality'}: take {ways[0].value} out of it."
        )
    hinted = [_HINTED[hint] for hint in node.hints]
    chosen = next((s for s in hinted if s in able), able[0])
    return replace(_without_keys(node) if chosen is n.JoinStrategy.LOOP else node, join_strategy=chosen)


def _without_keys(node: n.Join) -> n.Join:
    """Return a join whose equalities are conditions like others."""
    tests: list[Expression] = []
    for a, b, null_safe in zip(node.left_keys, node.right_keys, node.null_safe, strict=True):
        left = Column(node.left.fields[a].type, a)
        right = Column(node.right.fields[b].type, len(node.left.fields) + b)
        tests.append(Call(DataTypes.BOOLEAN(), "IS NOT DISTINCT FROM" if null_safe else "=", (left, right)))
    tests += conjuncts(node.condition)
    condition = conjunction(tests) if tests else None
    return replace(node, left_keys=(), right_keys=(), null_safe=(), condition=condition)


def _disabled(settings: Mapping[str, str]) -> set[str]:
    names = {name.strip() for name in settings.get(_DISABLED, "").split(",") if name.strip()}
    unknown = sorted(names - set(_OPERATORS))
    if unknown:
        raise ValidationException(f"'{_DISABLED}' names '{unknown[0]}', which is none of {', '.join(_OPERATORS)}.")
    return names
