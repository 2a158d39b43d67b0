"""Regions: the parts of a job that have nothing to do with each other, so that one can fail alone."""

from __future__ import annotations

from millstream.checkpoint.restore import Start
from millstream.operators.runtime.messages import JobPlan


def region_of(plan: JobPlan, operator_id: str | None) -> frozenset[int] | None:
    """Return the vertices that are connected with an operator; None when that is the whole job, or not known."""
    start = next((v.id for v in plan.vertices if any(n.id == operator_id for n in v.nodes)), None)
    if start is None:
        return None
    neighbours: dict[int, set[int]] = {v.id: set() for v in plan.vertices}
    for edge in (e for v in plan.vertices for e in v.out_edges):
        neighbours[edge.source].add(edge.target)
        neighbours[edge.target].add(edge.source)
    found, todo = {start}, [start]
    while todo:
        for other in neighbours[todo.pop()] - found:
            found.add(other)
            todo.append(other)
    return None if len(found) == len(plan.vertices) else frozenset(found)


def operators_in(plan: JobPlan, region: frozenset[int]) -> set[str]:
    return {n.id for v in plan.vertices if v.id in region for n in v.nodes}


def combine(plan: JobPlan, region: frozenset[int], failed: Start, others: Start) -> Start:
    """Return a start in which a region goes back and the others go on from where they are."""
    heads = {v.head.id for v in plan.vertices if v.id in region}

    def choose(back: dict, on: dict) -> dict:  # type: ignore[type-arg]
        return {
            **{a: x for a, x in on.items() if a[0] not in region},
            **{a: x for a, x in back.items() if a[0] in region},
        }

    return Start(
        others.epoch,
        choose(failed.state_files, others.state_files),
        choose(failed.chains, others.chains),
        choose(failed.checksums, others.checksums),
        choose(failed.carried, others.carried),
        {
            **{o: s for o, s in others.sources.items() if o not in heads},
            **{o: s for o, s in failed.sources.items() if o in heads},
        },
        frozenset((failed.ended & region) | (others.ended - region)),
        failed.held | others.held,
        {**failed.tables, **others.tables},
    )
