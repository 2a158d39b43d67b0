"""What a job has done so far: records by vertex and subtask, epochs and how long they take, metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millstream.operators.slot import SlotReport


@dataclass
class SubtaskProgress:
    """The sums of one subtask."""

    records_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    watermark: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)


class Progress:
    """Adds up the reports of a job's epochs."""

    def __init__(self) -> None:
        self.epochs = 0
        self.last_epoch_seconds = 0.0
        self.subtasks: dict[tuple[int, int], SubtaskProgress] = {}

    def add(self, reports: list[SlotReport]) -> None:
        self.epochs += 1
        for slot in reports:
            for report in slot.subtasks:
                mine = self.subtasks.setdefault((report.vertex, report.subtask), SubtaskProgress())
                mine.records_in += report.records_in
                mine.records_out += report.records_out
                mine.bytes_out += report.bytes_out
                mine.watermark = report.watermark
                mine.metrics = report.metrics

    def epoch_took(self, seconds: float) -> None:
        self.last_epoch_seconds = seconds

    def records_in(self, vertices: Iterable[int]) -> int:
        wanted = set(vertices)
        return sum(p.records_in for (v, _), p in self.subtasks.items() if v in wanted)

    def metrics(self) -> dict[str, Any]:
        """Return users' metrics, numbers added up over the subtasks."""
        total: dict[str, Any] = {}
        for progress in self.subtasks.values():
            for name, value in progress.metrics.items():
                if isinstance(value, (int, float)) and isinstance(total.get(name, 0), (int, float)):
                    total[name] = total.get(name, 0) + value
                else:
                    total[name] = value
        return total
