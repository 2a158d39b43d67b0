"""Watermark alignment: a source that is too far ahead of the slowest of its group is not read."""

from __future__ import annotations

from collections.abc import Collection

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.protocol import JobPlan, SubtaskReport
from millstream.operators.watermarks import WatermarkOperator


class Alignment:
    """Compares how far the sources of a group have come. Pure: told by reports, asked before reading."""

    def __init__(self, plan: JobPlan, ended: frozenset[int]) -> None:
        # Source vertex -> (group, how far it may be ahead in ms).
        self._drifts: dict[int, tuple[str, int]] = {}
        self._come: dict[str, dict[tuple[int, int], int]] = {}
        # Nobody waits for a source that has ended: it tells nothing any more.
        for vertex in (v for v in plan.vertices if v.id not in ended):
            for node in vertex.nodes:
                if vertex.is_source and isinstance(node.operator, WatermarkOperator):
                    aligned = node.operator.strategy.alignment
                    if aligned is not None:
                        self._drifts[vertex.id] = aligned[0], aligned[1].to_millis()
                        group = self._come.setdefault(aligned[0], {})
                        group.update({(vertex.id, i): MIN_WATERMARK for i in range(vertex.parallelism)})

    def learn(self, report: SubtaskReport) -> None:
        for group, watermark in report.aligned.items():
            if group in self._come:
                self._come[group][report.vertex, report.subtask] = watermark

    def forget(self, ended: Collection[int]) -> None:
        """Sources have ended. A subtask that had ended before a restart, and others had not, has told nothing."""
        for come in self._come.values():
            for address in [a for a in come if a[0] in ended]:
                del come[address]

    def holds_back(self, vertex: int) -> bool:
        """Tell whether a source must wait for others of its group."""
        if vertex not in self._drifts:
            return False
        group, drift = self._drifts[vertex]
        come = self._come[group]
        mine = [w for (v, _), w in come.items() if v == vertex]
        others = [w for (v, _), w in come.items() if v != vertex]
        # A source that has told nothing yet is nowhere, and is waited for; but it must not wait itself.
        return bool(others) and min(mine) != MIN_WATERMARK and max(mine) > min(others) + drift
