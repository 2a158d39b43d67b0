"""One thing that is worth knowing of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.operators.runtime.vertex import Vertex


@dataclass(frozen=True)
class Explanation:
    """One thing that is worth knowing.

    Attributes:
        kind: what it is about.
        level: `high` for what stops a job from getting on, `low` for what slows it, `ok` for what is good to know.
        vertex: the vertex it is about, by its id; None for the whole job.
        about: the same for machines.
    """

    kind: str
    level: str
    title: str
    text: str
    vertex: str | None = None
    about: dict[str, Any] = field(default_factory=dict)


def where(vertex: Vertex) -> str:
    """Say where the operators of a vertex were made."""
    places = [n.made_at for n in vertex.nodes if n.made_at]
    return f" (made at {', '.join(dict.fromkeys(places))})" if places else ""
