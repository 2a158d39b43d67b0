"""Progress of a job: records by vertex and subtask, epochs and their duration, metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.diagnostics.io_metrics import SlotTraffic
from millstream.operators.diagnostics.sampling import StackSamples, added
from millstream.operators.diagnostics.subtask_diagnostics import SubtaskDiagnostics
from millstream.operators.runtime.messages import Address, SlotLocation, SlotReport, SubtaskReport
from millstream.operators.source import Lags


@fast_dataclass(kw_only=True)
class SubtaskProgress:
    """Totals of one subtask.

    Attributes:
        taken: records passed to its sinks; None if not counted.
        seconds: its busy time.
        diagnostics: its last diagnostics.
        epochs_here: epochs that found the state in the process.
        epochs_read: epochs that read the state from files.
    """

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    taken: int | None = 0
    seconds: float = 0.0
    watermark: int | None = None
    metrics: Mapping[str, Value] = field(default_factory=dict)
    diagnostics: SubtaskDiagnostics | None = None
    epochs_here: int = 0
    epochs_read: int = 0

    def after(self, report: SubtaskReport) -> SubtaskProgress:
        return SubtaskProgress(
            records_in=self.records_in + report.records_in,
            records_out=self.records_out + report.records_out,
            bytes_in=self.bytes_in + report.bytes_in,
            bytes_out=self.bytes_out + report.bytes_out,
            taken=None if self.taken is None or report.sink_records is None else self.taken + report.sink_records,
            seconds=self.seconds + report.seconds,
            watermark=report.watermark,
            metrics=report.metrics,
            diagnostics=report.diagnostics or self.diagnostics,
            epochs_here=self.epochs_here + (report.state_was_local is True),
            epochs_read=self.epochs_read + (report.state_was_local is False),
        )


_NOTHING = SubtaskProgress()


@fast_dataclass(kw_only=True)
class JobProgress:
    """Totals of a job; immutable, so that any thread may read them.

    Attributes:
        traffic: the last I/O metrics of each resident slot of this execution.
        lags: the unassigned input of sources that report it.
        samples: stack samples by vertex and slot.
        locations: the location of each slot of this execution, as far as known.
    """

    epochs: int = 0
    last_epoch_seconds: float = 0.0
    subtasks: Mapping[Address, SubtaskProgress] = field(default_factory=dict)
    traffic: Mapping[int, SlotTraffic] = field(default_factory=dict)
    lags: Lags = field(default_factory=dict)
    samples: Mapping[tuple[int, int], StackSamples] = field(default_factory=dict)
    locations: Mapping[int, SlotLocation] = field(default_factory=dict)

    def after(self, reports: list[SlotReport]) -> JobProgress:
        """Return the totals after another epoch."""
        subtasks = dict(self.subtasks)
        for report in (r for slot in reports for r in slot.subtasks):
            address = report.vertex, report.subtask
            subtasks[address] = subtasks.get(address, _NOTHING).after(report)
        reported = {slot.slot: slot.traffic for slot in reports if slot.traffic is not None}
        traffic = {**self.traffic, **reported} if reported else self.traffic
        placed = {slot.slot: slot.location for slot in reports if slot.location is not None}
        locations = {**self.locations, **placed} if placed else self.locations
        after = replace(self, epochs=self.epochs + 1, subtasks=subtasks, traffic=traffic, locations=locations)
        sampled = {(vertex, slot.slot): samples for slot in reports for vertex, samples in slot.samples.items()}
        return after._with_samples(sampled) if sampled else after

    def _with_samples(self, new: Mapping[tuple[int, int], StackSamples]) -> JobProgress:
        samples = dict(self.samples)
        for owner, new_samples in new.items():
            samples[owner] = added(samples.get(owner, {}), new_samples)
        return replace(self, samples=samples)

    def with_new_slots(self) -> JobProgress:
        """Return the totals at the start of a new execution."""
        return replace(self, traffic={}, locations={})

    def sources_polled(self, lags: Lags) -> JobProgress:
        """Return the totals with the reported lag of sources."""
        return replace(self, lags={**self.lags, **lags}) if lags else self

    def epoch_took(self, seconds: float) -> JobProgress:
        return replace(self, last_epoch_seconds=seconds)

    def records_in(self, vertices: Iterable[int]) -> int:
        selected = set(vertices)
        return sum(p.records_in for (v, _), p in self.subtasks.items() if v in selected)

    def state_epochs(self) -> tuple[int, int]:
        """Return how many subtask epochs found state in the process, and how many read it from files."""
        subtasks = self.subtasks.values()
        return sum(p.epochs_here for p in subtasks), sum(p.epochs_read for p in subtasks)

    def metrics(self) -> dict[str, Value]:
        """Return user metrics, with numbers summed over the subtasks."""
        total: dict[str, Value] = {}
        for progress in self.subtasks.values():
            for name, value in progress.metrics.items():
                if isinstance(value, (int, float)) and isinstance(total.get(name, 0), (int, float)):
                    total[name] = total.get(name, 0) + value
                else:
                    total[name] = value
        return total
