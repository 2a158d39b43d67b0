"""Watermark alignment: holds back sources and splits that are too far ahead of the slowest of their group."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.messages import JobPlan, Progress, SubtaskReport
from millstream.operators.source import SourceOperator
from millstream.operators.watermarks import WatermarkOperator

_NOTHING_YET = Progress(MIN_WATERMARK, {})


class Alignment:
    """Compares the watermarks of the sources of a group. Pure."""

    def __init__(self, plan: JobPlan, ended: frozenset[int]) -> None:
        # Source vertex -> (group, maximum drift in ms).
        self._drifts: dict[int, tuple[str, int]] = {}
        # Sources whose splits can be held back one by one.
        self._by_split: set[int] = set()
        self._come: dict[str, dict[tuple[int, int], Progress]] = {}
        # Ended sources report nothing, so no source waits for them.
        for vertex in (v for v in plan.vertices if v.id not in ended and v.is_source):
            for node in vertex.nodes:
                aligned = node.operator.strategy.alignment if isinstance(node.operator, WatermarkOperator) else None
                if aligned is not None:
                    self._drifts[vertex.id] = aligned[0], aligned[1].to_millis()
                    group = self._come.setdefault(aligned[0], {})
                    group.update({(vertex.id, i): _NOTHING_YET for i in range(vertex.parallelism)})
            head = vertex.head.operator
            if isinstance(head, SourceOperator) and head.source.aligns_splits:
                self._by_split.add(vertex.id)

    @property
    def sources(self) -> Collection[int]:
        """The aligned sources."""
        return self._drifts

    def learn(self, report: SubtaskReport) -> None:
        for group, progress in report.aligned.items():
            if group in self._come:
                self._come[group][report.vertex, report.subtask] = progress

    def forget(self, ended: Collection[int]) -> None:
        """Remove ended sources: a subtask that had ended before a restart reports nothing."""
        for come in self._come.values():
            for address in [a for a in come if a[0] in ended]:
                del come[address]

    def holds_back(self, vertex: int) -> bool:
        """Return whether a whole source must wait for others of its group.

        A source that has not reported yet is at the minimum and is waited for. The slowest source never waits, even if
        a part of it is ahead: otherwise no source would continue.
        """
        if vertex not in self._drifts or self._waits_by_split(vertex):
            return False
        group, drift = self._drifts[vertex]
        lows = [self._low(group, v) for v in self._sources_in(group) if v != vertex]
        mine = [p.watermark for p in self._progress(group, vertex)]
        return bool(lows and mine) and min(mine) > min(lows) and max(mine) > min(lows) + drift

    def ahead(self, vertex: int) -> frozenset[Hashable]:
        """Return the splits of a source that must wait: some of them, or all if the whole source waits."""
        if vertex not in self._drifts:
            return frozenset()
        group, drift = self._drifts[vertex]
        splits = [item for p in self._progress(group, vertex) for item in p.splits.items()]
        if not self._waits_by_split(vertex):
            return frozenset({None, *(name for name, _ in splits)}) if self.holds_back(vertex) else frozenset()
        max_watermark = min(self._low(group, v) for v in self._sources_in(group)) + drift
        return frozenset(name for name, watermark in splits if watermark > max_watermark)

    def _waits_by_split(self, vertex: int) -> bool:
        group, _ = self._drifts[vertex]
        return vertex in self._by_split and any(p.splits for p in self._progress(group, vertex))

    def _sources_in(self, group: str) -> set[int]:
        return {vertex for vertex, _ in self._come[group]}

    def _progress(self, group: str, vertex: int) -> list[Progress]:
        return [p for (v, _), p in self._come[group].items() if v == vertex]

    def _low(self, group: str, vertex: int) -> int:
        """Return the watermark of the slowest part of a source; subtasks without splits do not count."""
        progress = self._progress(group, vertex)
        splits = [watermark for p in progress for watermark in p.splits.values()]
        return min(splits or [p.watermark for p in progress])
