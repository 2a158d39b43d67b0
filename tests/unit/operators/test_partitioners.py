from __future__ import annotations

import pytest

from millstream.operators.runtime.partitioners import pointwise_targets


def flinks_pointwise(up: int, down: int) -> dict[int, list[int]]:
    """Flink's own rule, from the receivers' view: the senders connected to each receiver."""
    targets: dict[int, list[int]] = {s: [] for s in range(up)}
    for t in range(down):
        if up >= down:
            senders = range(t * up // down, (t + 1) * up // down)
        else:
            senders = range(t * up // down, t * up // down + 1)
        for s in senders:
            targets[s].append(t)
    return targets


@pytest.mark.parametrize("up", range(1, 12))
@pytest.mark.parametrize("down", range(1, 12))
def test_pointwise_targets_match_flink(up: int, down: int) -> None:
    assert {s: list(pointwise_targets(s, up, down)) for s in range(up)} == flinks_pointwise(up, down)
