"""What functions print and log, for whoever keeps it: a job's service."""

from __future__ import annotations

from typing import Protocol

from millstream.operators.runtime.messages import SlotReport


class Listener(Protocol):
    """Who keeps it; is told on the job's thread."""

    def hear(self, job_id: str, report: SlotReport) -> None:
        """Take a report in which functions say something, or a slot where it is."""
        ...

    def hear_printed(self, job_id: str, text: str) -> None:
        """Take what a job has printed on the driver."""
        ...


_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Be told from now on."""
    _listeners.append(listener)


def tell(job_id: str, reports: list[SlotReport]) -> None:
    """Tell what was said in an epoch to those who listen."""
    for listener in _listeners:
        for report in reports:
            if report.printed or report.logged or report.location is not None:
                listener.hear(job_id, report)


def tell_printed(job_id: str, text: str) -> None:
    """Tell what a job has printed on the driver to those who listen."""
    for listener in _listeners:
        listener.hear_printed(job_id, text)
