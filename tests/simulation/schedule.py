"""One schedule, from its seed to the verdict."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from millstream.checkpoint import origin, store
from millstream.common import faults
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.job_status import JobStatus

from .driver import Driver
from .outcome import Outcome
from .program import Names, Record
from .scene import Scene
from .storage import SimulatedStorage
from .world import Violated, World

# No schedule has as many faults.
_MAX_DRIVERS = 50


def run_schedule(seed: int, verbose: bool = False) -> Outcome:
    """Run the schedule of a seed."""
    world = World(seed, verbose)
    scene = Scene.draw(world)
    world.note(scene.setup.describe())
    with patched_services(scene), suppress(Violated):
        _run_to_the_end(scene)
        check_output(scene)
    return Outcome(seed, world.violation, world.faults.happened, world.log)


def _run_to_the_end(scene: Scene) -> None:
    """Start one driver after the other until the job has finished."""
    world = scene.world
    for number in range(1, _MAX_DRIVERS):
        driver = Driver(scene, number)
        status = driver.run()
        if world.violation is not None:
            raise Violated(world.violation)
        # The job has finished if its driver dies while it deletes the last checkpoints.
        if status is JobStatus.FINISHED or (driver.has_finished and not scene.disk.manifests(driver.home)):
            return
        world.sleep(world.random.choice((0.0, 0.0, 1.0, 10.0)) * world.random.random())
    world.violate("the job does not end within the maximum number of drivers")


# --- the verdict


def check_output(scene: Scene) -> None:
    """Compare the committed output with the input."""
    for region, splits in enumerate(scene.records):
        names = Names(region)
        expected = Counter(r.id for split in splits for r in split)
        counts = scene.external.committed(names.counts)
        _check_records(scene, names.records, expected, scene.external.committed(names.records))
        _check_records(scene, names.counts, expected, [c[0] for c in counts])
        if scene.setup.mode is CheckpointingMode.EXACTLY_ONCE:
            _check_counts(scene.world, names.counts, splits, counts)


def _check_records(scene: Scene, sink: str, expected: Counter[Any], committed: list[Any]) -> None:
    """Check that no record is lost or duplicated, as far as the mode guarantees it."""
    actual = Counter(committed)
    if scene.setup.mode is not CheckpointingMode.AT_MOST_ONCE and (lost := expected - actual):
        scene.world.violate(f"lost in {sink}: {sorted(lost)}")
    if scene.setup.mode is not CheckpointingMode.AT_LEAST_ONCE and (duplicates := actual - expected):
        scene.world.violate(f"duplicated in {sink}: {sorted(duplicates)}")


def _check_counts(world: World, sink: str, splits: list[list[Record]], counts: list[Any]) -> None:
    """Check that each count is its predecessor plus one, and each sum its predecessor plus the record's value."""
    values = {r.id: r.value for split in splits for r in split}
    sums: dict[int, tuple[int, int]] = {}
    for record, key, number, total in sorted(counts, key=lambda c: c[2]):
        before = sums.get(key, (0, 0))
        if (number, total) != (before[0] + 1, before[1] + values[record]):
            world.violate(f"wrong count in {sink}: {record} of key {key} has {(number, total)} after {before}")
        sums[key] = number, total


# --- real services replaced by simulated ones


@contextmanager
def patched_services(scene: Scene) -> Iterator[None]:
    """Redirect storage, fault points and logging to the simulated world."""
    world = scene.world

    def open_storage(url: str, options: object = None, cache: str | None = None) -> SimulatedStorage:
        return SimulatedStorage(world, scene.disk, url)

    log = logging.getLogger("millstream")
    before = store.open_storage, origin.open_storage, faults._reached, log.level, log.propagate  # type: ignore[attr-defined]
    handler = _LogHandler(world)
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.WARNING if world.verbose else logging.CRITICAL)
    store.open_storage = origin.open_storage = open_storage  # type: ignore[assignment, attr-defined]
    faults._reached = world.step
    try:
        yield
    finally:
        store.open_storage, origin.open_storage, faults._reached = before[:3]  # type: ignore[attr-defined]
        log.setLevel(before[3])
        log.propagate = before[4]
        log.removeHandler(handler)


class _LogHandler(logging.Handler):
    """Adds the job's log records to the event log."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(f"log: {record.getMessage()}")
