"""Listeners for the output of user functions: what they print and log."""

from __future__ import annotations

from typing import Protocol

from millstream.operators.runtime.messages import SlotReport


class Listener(Protocol):
    """Receives output on the job's thread."""

    def on_report(self, job_id: str, report: SlotReport) -> None:
        """Handle a report with printed text, log lines or a slot location."""
        ...

    def on_printed(self, job_id: str, text: str) -> None:
        """Handle text that a job has printed on the driver."""
        ...


_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Register a listener."""
    _listeners.append(listener)


def notify(job_id: str, reports: list[SlotReport]) -> None:
    """Notify listeners of the output of an epoch."""
    for listener in _listeners:
        for report in reports:
            if report.printed or report.logged or report.location is not None:
                listener.on_report(job_id, report)


def notify_printed(job_id: str, text: str) -> None:
    """Notify listeners of text that a job has printed on the driver."""
    for listener in _listeners:
        listener.on_printed(job_id, text)
