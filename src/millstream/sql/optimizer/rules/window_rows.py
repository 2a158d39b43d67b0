"""Recognises Top-N, deduplication and joins within windows, which are told when the windows end."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.errors import TableException
from millstream.sql.optimizer.rules.windows import Windowed, windowed
from millstream.sql.plan import nodes as n


def find_window_rank(node: n.Node) -> n.Node:
    """Make a WindowRank of a Rank or Deduplicate whose partition has a window."""
    if type(node) not in (n.Rank, n.Deduplicate):
        return node
    assert isinstance(node, (n.Rank, n.Deduplicate))
    window = windowed(node.input)
    partition = node.partition if isinstance(node, n.Rank) else node.keys
    if window is None or not {window.start, window.end} <= set(partition):
        return node
    if isinstance(node, n.Rank):
        return n.WindowRank(**vars(node), window=window.spec, has_window=(window.start, window.end))
    order = ((node.time, node.keeps_last, not node.keeps_last),)
    return n.WindowRank(
        node.fields,
        node.input,
        partition,
        order,
        "ROW_NUMBER",
        1,
        1,
        False,
        window=window.spec,
        has_window=(window.start, window.end),
        is_deduplicate=True,
    )


def find_window_join(node: n.Node) -> n.Node:
    """Make a WindowJoin of a Join of rows in the same window."""
    if type(node) is not n.Join:
        return node
    left, right = windowed(node.left), windowed(node.right)
    if left is None or right is None:
        return node
    pairs = set(zip(node.left_keys, node.right_keys, strict=True))
    if not {(left.start, right.start), (left.end, right.end)} <= pairs:
        return node
    if _alike(left) != _alike(right):
        raise TableException(
            "Currently, window join doesn't support different window table function of left and right inputs: join "
            "windows of the same kind, size and time attribute."
        )
    return n.WindowJoin(
        **vars(node), window=left.spec, left_window=(left.start, left.end), right_window=(right.start, right.end)
    )


def _alike(window: Windowed) -> n.WindowSpec:
    return replace(window.spec, time=0, partition=())
