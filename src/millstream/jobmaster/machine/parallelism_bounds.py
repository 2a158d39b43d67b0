"""Bounds of each vertex's parallelism, and the parallelism that fits the available slots. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.vertex import Vertex

# The parallelism of each vertex, by id.
Parallelisms = Mapping[int, int]


@fast_dataclass
class Bounds:
    """The minimum and maximum parallelism of a vertex."""

    lower: int
    upper: int


class Requirements:
    """The resource requirements of a job: bounds for each vertex; slot sharing groups share slots."""

    def __init__(self, plan: JobPlan, bounds: Mapping[int, Bounds]) -> None:
        self.bounds = dict(bounds)
        # Vertices of one slot sharing group have the same first slot.
        self._groups: dict[int, list[int]] = {}
        for vertex in plan.vertices:
            self._groups.setdefault(vertex.slot_offset, []).append(vertex.id)
        self._groups_of_equal_parallelism = _forward_groups(plan)

    @staticmethod
    def of(plan: JobPlan, reactive: bool) -> Requirements:
        """Return the requirements of a program; in reactive mode the upper bound is the max parallelism."""
        return Requirements(plan, {v.id: Bounds(1, _upper_bound(v, reactive)) for v in plan.vertices})

    @property
    def desired(self) -> int:
        """The number of slots the job can use."""
        return sum(max(self.bounds[v].upper for v in group) for group in self._groups.values())

    @property
    def sufficient(self) -> int:
        """The minimum number of slots."""
        return sum(max(self.bounds[v].lower for v in group) for group in self._groups.values())

    def within_slots(self, slots: int) -> Parallelisms | None:
        """Return the parallelism of each vertex; None if there are too few slots.

        Groups get their minimum; each further slot goes to the group with the fewest.
        """
        if slots < self.sufficient:
            return None
        slots_of = {g: max(self.bounds[v].lower for v in vertices) for g, vertices in self._groups.items()}
        max_slots = {g: max(self.bounds[v].upper for v in vertices) for g, vertices in self._groups.items()}
        for _ in range(min(slots, self.desired) - sum(slots_of.values())):
            slots_of[min((g for g in slots_of if slots_of[g] < max_slots[g]), key=lambda g: (slots_of[g], g))] += 1
        parallelism = {
            v: min(self.bounds[v].upper, slots_of[g]) for g, vertices in self._groups.items() for v in vertices
        }
        for vertices in self._groups_of_equal_parallelism:
            lowest = min(parallelism[v] for v in vertices)
            parallelism |= dict.fromkeys(vertices, lowest)
        return parallelism

    def changed(self, plan: JobPlan, bounds_by_vertex: Mapping[str, Bounds]) -> Requirements:
        """Return the requirements with new bounds for every vertex, by the vertex ids that users see.

        Raises:
            InvalidProgramError: the bounds are invalid.
        """
        by_name = {v.head.id: v for v in plan.vertices}
        if missing := [f"'{v.name}' ({i})" for i, v in by_name.items() if i not in bounds_by_vertex]:
            raise InvalidProgramError(f"There are no bounds for {', '.join(missing)}: name every vertex of the job.")
        if unknown := [i for i in bounds_by_vertex if i not in by_name]:
            raise InvalidProgramError(f"The job has no vertex {', '.join(unknown)}.")
        for name, bounds in bounds_by_vertex.items():
            _check(by_name[name], bounds)
        return Requirements(plan, {by_name[name].id: bounds for name, bounds in bounds_by_vertex.items()})


def _upper_bound(vertex: Vertex, reactive: bool) -> int:
    if vertex.non_parallel:
        return 1
    return vertex.max_parallelism if reactive else vertex.parallelism


def _check(vertex: Vertex, bounds: Bounds) -> None:
    max_parallelism = 1 if vertex.non_parallel else vertex.max_parallelism
    if not 1 <= bounds.lower <= bounds.upper <= max_parallelism:
        raise InvalidProgramError(
            f"The parallelism of '{vertex.name}' cannot be from {bounds.lower} to {bounds.upper}: it must be from 1 to "
            f"its max parallelism {max_parallelism}, the lower bound not above the upper."
        )


def _forward_groups(plan: JobPlan) -> list[list[int]]:
    """Return groups of vertices with equal parallelism: a forward edge connects subtasks of the same index."""
    group_of = {v.id: [v.id] for v in plan.vertices}
    for edge in (e for v in plan.vertices for e in v.out_edges if e.partitioner.name == "FORWARD"):
        ours, theirs = group_of[edge.source], group_of[edge.target]
        if ours is not theirs:
            ours += theirs
            group_of |= dict.fromkeys(theirs, ours)
    return [vertices for v, vertices in group_of.items() if vertices[0] == v and len(vertices) > 1]


def spread(plan: JobPlan, parallelisms: Parallelisms) -> JobPlan:
    """Return a plan with other parallelisms and as few slots as possible."""
    width: dict[int, int] = {}
    for vertex in plan.vertices:
        width[vertex.slot_offset] = max(width.get(vertex.slot_offset, 0), parallelisms[vertex.id])
    offsets = {group: sum(w for g, w in width.items() if g < group) for group in width}
    vertices = [replace(v, parallelism=parallelisms[v.id], slot_offset=offsets[v.slot_offset]) for v in plan.vertices]
    return JobPlan(settings=plan.settings, vertices=vertices)
