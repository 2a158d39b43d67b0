"""Slots that stay where they come to be, else Spark's shuffle: what `millstream.exchange: auto` means by its choice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from millstream.jobmaster.engine import QUICK, EpochFailed, EpochRunner
from millstream.operators.runtime.messages import LevelTask, SlotReport
from millstream.spark.resident_epochs import SlotsMissing

log = logging.getLogger("millstream")


class FallbackEpochs:
    """The epochs of one execution; follows `EpochRunner`."""

    slots_stay = True
    slices = QUICK

    def __init__(self, resident: EpochRunner, make_other: Callable[[], EpochRunner]) -> None:
        """Try slots that stay first.

        Args:
            resident: runs epochs in slots that stay.
            make_other: makes what runs them if those cannot be had.
        """
        self._runner = resident
        self._make_other = make_other
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._has_fallen_back = False
        self._lost: Callable[[], None] = lambda: None

    def open(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._runner.open(lost)

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        if self._has_fallen_back:
            return self._runner.run([_written(task) for task in tasks])
        try:
            return self._runner.run(tasks)
        except SlotsMissing as e:
            log.warning("%s This job goes on through Spark's shuffle.", e)
            self._runner.release()
        # No epoch has run: another runner can begin with the same one.
        with self._lock:
            self._runner = self._make_other()
            if self._is_cancelled:
                raise EpochFailed(f"Epoch {tasks[0].epoch} was broken off.")
        self._has_fallen_back = True
        self._runner.open(self._lost)
        return self._runner.run([_written(task) for task in tasks])

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            self._runner.cancel()

    def release(self) -> None:
        self._runner.release()


def _written(task: LevelTask) -> LevelTask:
    """Return a task that leaves its state in files: who made it does not know that slots no longer stay."""
    return replace(task, keep=True, in_memory=None)
