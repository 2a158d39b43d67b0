"""Stack samples of a slot: stacks, whether they were on CPU, and the number of samples of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from millstream.common.aliases import Json

# Functions from the outermost to the innermost.
Stack = tuple[str, ...]
# The number of samples by stack and whether it was on CPU.
StackSamples = dict[tuple[bool, Stack], int]


class Sampler(Protocol):
    """Samples the stack of a slot's thread."""

    def begin(self) -> None:
        """Start to sample the calling thread for some time."""
        ...

    def enter(self, vertex: int | None) -> None:
        """Assign the following samples to a vertex; None to none."""
        ...

    def take(self) -> dict[int, StackSamples]:
        """Return the samples since the last call, by vertex."""
        ...


# Number of samples after which all counts are halved, so that older samples weigh less.
_MAX_SAMPLES = 3000


def added(first: Mapping[tuple[bool, Stack], int], second: Mapping[tuple[bool, Stack], int]) -> StackSamples:
    """Return the sums of both counts; beyond a maximum, older samples count half."""
    total = dict(first)
    if sum(total.values()) > _MAX_SAMPLES:
        total = {stack: count // 2 for stack, count in total.items() if count > 1}
    for stack, count in second.items():
        total[stack] = total.get(stack, 0) + count
    return total


@dataclass
class _Node:
    name: str
    value: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def as_dict(self) -> Json:
        children = sorted(self.children.values(), key=lambda n: n.name)
        return {"name": self.name, "value": self.value, "children": [n.as_dict() for n in children]}


def flame_graph(samples: Iterable[Mapping[tuple[bool, Stack], int]], on_cpu: Iterable[bool]) -> Json:
    """Return the tree of a flame graph: name, value and children.

    Args:
        samples: the samples of each subtask.
        on_cpu: whether to include stacks that were on CPU (True), off CPU (False), or both.

    Example:
        >>> tree = flame_graph([{(True, ("a", "b")): 2, (True, ("a",)): 1, (False, ("a", "c")): 4}], [True])
        >>> tree["value"], tree["children"][0]["name"], tree["children"][0]["children"]
        (3, 'a', [{'name': 'b', 'value': 2, 'children': []}])
    """
    root, kinds = _Node("root"), set(on_cpu)
    for stacks in samples:
        for (is_on_cpu, stack), count in stacks.items():
            if is_on_cpu in kinds:
                node = root
                node.value += count
                for name in stack:
                    node = node.children.setdefault(name, _Node(name))
                    node.value += count
    return root.as_dict()
