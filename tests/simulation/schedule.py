"""One schedule, from its seed to the verdict."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from millstream.checkpoint import restore_location, store
from millstream.common import faults
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.job_status import JobStatus

from .driver import Driver
from .outcome import Outcome
from .program import Names, Record
from .scene import Scene
from .storage import SimulatedStorage
from .world import Violated, World

# There are fewer faults than this in any schedule.
_MOST_DRIVERS = 50


def run_schedule(seed: int, verbose: bool = False) -> Outcome:
    """Run the schedule of a seed."""
    world = World(seed, verbose)
    scene = Scene.draw(world)
    world.note(scene.circumstances.describe())
    with patched_services(scene), suppress(Violated):
        _run_to_the_end(scene)
        check_output(scene)
    return Outcome(seed, world.violation, world.faults.happened, world.log)


def _run_to_the_end(scene: Scene) -> None:
    """Start one driver after the other until the job has finished."""
    world = scene.world
    for number in range(1, _MOST_DRIVERS):
        driver = Driver(scene, number)
        status = driver.live()
        if world.violation is not None:
            raise Violated(world.violation)
        # A driver that dies while it deletes a finished job's checkpoints, and leaves none to restore, has finished.
        if status is JobStatus.FINISHED or (driver.has_finished and not scene.disk.manifests(driver.home)):
            return
        world.sleep(world.random.choice((0.0, 0.0, 1.0, 10.0)) * world.random.random())
    world.violate("the job does not get to its end, however often it is started")


# --- the verdict


def check_output(scene: Scene) -> None:
    """Compare the committed output with the input."""
    for region, splits in enumerate(scene.records):
        names = Names(region)
        expected = Counter(r.id for split in splits for r in split)
        counts = scene.external.committed(names.counts)
        _check_records(scene, names.records, expected, scene.external.committed(names.records))
        _check_records(scene, names.counts, expected, [c[0] for c in counts])
        if scene.circumstances.mode is CheckpointingMode.EXACTLY_ONCE:
            _check_counts(scene.world, names.counts, splits, counts)


def _check_records(scene: Scene, sink: str, expected: Counter[Any], committed: list[Any]) -> None:
    """Nothing is lost, and nothing is doubled, as far as the mode promises it."""
    actual = Counter(committed)
    if scene.circumstances.mode is not CheckpointingMode.AT_MOST_ONCE and (lost := expected - actual):
        scene.world.violate(f"lost in {sink}: {sorted(lost)}")
    if scene.circumstances.mode is not CheckpointingMode.AT_LEAST_ONCE and (doubled := actual - expected):
        scene.world.violate(f"doubled in {sink}: {sorted(doubled)}")


def _check_counts(world: World, sink: str, splits: list[list[Record]], counts: list[Any]) -> None:
    """Every key must have been counted one by one, and each sum be the one before plus the record's value."""
    values = {r.id: r.value for split in splits for r in split}
    sums: dict[int, tuple[int, int]] = {}
    for record, key, number, total in sorted(counts, key=lambda c: c[2]):
        before = sums.get(key, (0, 0))
        if (number, total) != (before[0] + 1, before[1] + values[record]):
            world.violate(f"wrong count in {sink}: {record} of key {key} has {(number, total)} after {before}")
        sums[key] = number, total


# --- the world in the place of the real one


@contextmanager
def patched_services(scene: Scene) -> Iterator[None]:
    """Have the storage opened, the fault points reached and the log written in the simulated world."""
    world = scene.world

    def open_storage(url: str, options: object = None, cache: str | None = None) -> SimulatedStorage:
        return SimulatedStorage(world, scene.disk, url)

    log = logging.getLogger("millstream")
    before = store.open_storage, restore_location.open_storage, faults._reached, log.level, log.propagate  # type: ignore[attr-defined]
    handler = _Notes(world)
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.WARNING if world.verbose else logging.CRITICAL)
    store.open_storage = restore_location.open_storage = open_storage  # type: ignore[assignment, attr-defined]
    faults._reached = world.step
    try:
        yield
    finally:
        store.open_storage, restore_location.open_storage, faults._reached = before[:3]  # type: ignore[attr-defined]
        log.setLevel(before[3])
        log.propagate = before[4]
        log.removeHandler(handler)


class _Notes(logging.Handler):
    """Adds the job's log records to the event log."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(f"log: {record.getMessage()}")
