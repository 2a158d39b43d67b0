"""What a slot was doing, sampled: stacks, whether the processor worked on them, and how often each was seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# Functions from the outermost to the innermost, as a person reads them.
Stack = tuple[str, ...]
# How often each stack was seen, with whether the processor worked on it.
Seen = dict[tuple[bool, Stack], int]


class Sampler(Protocol):
    """What looks at a slot while it works."""

    def begin(self) -> None:
        """Look at the thread that calls this, for a while."""
        ...

    def enter(self, vertex: int | None) -> None:
        """Note whose work comes now."""
        ...

    def take(self) -> dict[int, Seen]:
        """Return what was seen since it was last asked, by vertex."""
        ...


# Of how many looks a subtask's picture is made: of older ones less and less counts.
_MOST_LOOKS = 3000


def added(first: Mapping[tuple[bool, Stack], int], second: Mapping[tuple[bool, Stack], int]) -> Seen:
    """Return how often stacks were seen in all; when that was very often, what is old counts half."""
    total = dict(first)
    if sum(total.values()) > _MOST_LOOKS:
        total = {stack: count // 2 for stack, count in total.items() if count > 1}
    for stack, count in second.items():
        total[stack] = total.get(stack, 0) + count
    return total


@dataclass
class _Node:
    name: str
    value: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        children = sorted(self.children.values(), key=lambda n: n.name)
        return {"name": self.name, "value": self.value, "children": [n.as_dict() for n in children]}


def flame_graph(seen: Iterable[Mapping[tuple[bool, Stack], int]], wanted: Iterable[bool]) -> dict[str, Any]:
    """Return stacks as the tree that a flame graph is: name, value and children.

    Args:
        seen: what was seen, of each subtask.
        wanted: whether stacks count on which the processor worked (True), on which it did not (False), or both.

    Example:
        >>> tree = flame_graph([{(True, ("a", "b")): 2, (True, ("a",)): 1, (False, ("a", "c")): 4}], [True])
        >>> tree["value"], tree["children"][0]["name"], tree["children"][0]["children"]
        (3, 'a', [{'name': 'b', 'value': 2, 'children': []}])
    """
    root, kinds = _Node("root"), set(wanted)
    for stacks in seen:
        for (works, stack), count in stacks.items():
            if works in kinds:
                node = root
                node.value += count
                for name in stack:
                    node = node.children.setdefault(name, _Node(name))
                    node.value += count
    return root.as_dict()
