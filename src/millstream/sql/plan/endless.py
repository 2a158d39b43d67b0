"""State that grows for ever: what a user should know before a query has run for a month."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.graph.transformations import StreamEnd
from millstream.sql.plan import nodes as n

_FIX = (
    "Set 'table.exec.state.ttl' to how long a key lives that nothing comes for, such as '1 d', or use windows or an "
    "input that ends."
)


def endless_state(plans: Sequence[n.Planned]) -> list[str]:
    """Return a sentence for each operator of streaming plans whose state nothing bounds, with its key."""
    found: dict[int, str] = {}
    for planned in (p for root in plans for p in _all(root)):
        kept = _kept(planned)
        if kept is not None and not planned.traits.state_ttl and not _ends(planned):
            found[id(planned)] = f"{planned.name} keeps {kept} for ever, since its input does not end. {_FIX}"
    return list(found.values())


def _all(planned: n.Planned) -> Iterator[n.Planned]:
    yield planned
    for below in planned.inputs:
        yield from _all(below)


def _kept(planned: n.Planned) -> str | None:
    """Return what a node keeps where that is not bounded by time; None where it is, or nothing is kept."""
    node = planned.node
    if isinstance(node, n.Sink):
        return None if node.materialize is None else f"every row by {_names(node, node.materialize)}"
    if isinstance(node, (n.IntervalJoin, n.TemporalJoin)):
        return None
    if isinstance(node, n.Join):
        sides = ((node.left, node.left_keys), (node.right, node.right_keys))
        keys = " and ".join(_names(side, on) for side, on in sides)
        return f"every row of both inputs by {keys}" if node.left_keys else "every row of both inputs"
    if isinstance(node, n.SetOperation):
        return f"every row by {_names(node, range(len(node.fields)))}"
    if isinstance(node, n.Rank):
        return f"rows for every value of {_names(node, node.partition)}" if node.partition else None
    if isinstance(node, (n.Deduplicate, n.ChangelogNormalize)):
        return f"a row for every value of {_names(node, node.keys)}"
    if isinstance(node, n.Aggregate) and node.keys:
        return f"a row for every value of {_names(node, range(len(node.keys)))}"
    return None


def _names(node: n.Node, places: Sequence[int]) -> str:
    return ", ".join(node.fields[i].name for i in places)


def _ends(planned: n.Planned) -> bool:
    """Tell whether all that a node reads comes to an end."""
    node = planned.node
    if isinstance(node, n.Scan):
        return node.source.is_bounded
    if isinstance(node, n.StreamScan):
        return all(map(_stream_ends, node.stream.ends))
    return all(map(_ends, planned.inputs))


def _stream_ends(end: StreamEnd) -> bool:
    return end.source.is_bounded and all(map(_stream_ends, end.source.inputs))
