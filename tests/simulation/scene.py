"""The parts of a schedule: the world, its input, the job's settings and the latencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from millstream.checkpoint.options import CheckpointOptions
from millstream.common.checkpointing_mode import CheckpointingMode, ExternalizedCheckpointRetention
from millstream.jobmaster.machine.options import ScalingOptions
from millstream.jobmaster.machine.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartStrategy

from .external import External
from .program import Input, make_input
from .storage import Disk
from .world import World

# Exactly once is the most frequent mode in practice, and the one with the most possible errors.
_MODES = (*[CheckpointingMode.EXACTLY_ONCE] * 8, CheckpointingMode.AT_LEAST_ONCE, CheckpointingMode.AT_MOST_ONCE)


@dataclass(frozen=True)
class Setup:
    """The part of a schedule that all its drivers share.

    Attributes:
        restart: returns a new restart strategy for a driver.
        epoch_seconds, writing_seconds: the maximum duration of an epoch and of writing a manifest.
        commit_delay: the number of checkpoints by which committers delay a commit.
        resident_slots: whether every epoch of an execution runs in the same processes.
        scaling: how the job adapts to the available slots; None if it does not.
    """

    checkpoints: CheckpointOptions
    restart: Callable[[], RestartStrategy]
    parallelisms: tuple[int, ...]
    epoch_seconds: float
    writing_seconds: float
    commit_delay: int
    resident_slots: bool
    scaling: ScalingOptions | None = None

    @property
    def mode(self) -> CheckpointingMode:
        return self.checkpoints.mode

    def describe(self) -> str:
        slots = "resident slots" if self.resident_slots else "new slots each epoch"
        spread = f"parallelism one of {self.parallelisms}, {self.scaling}"
        return f"{self.checkpoints}, {self.restart().describe()}, {spread}, {slots}"

    @staticmethod
    def draw(random: Random) -> Setup:
        options = _options(random)
        return Setup(
            options,
            _restart(random),
            random.choice(((1,), (2,), (1, 2, 3))),
            # Without a fault, a checkpoint and its epoch complete within the timeout.
            random.choice((0.01, 0.1, 0.3)) * options.timeout,
            random.choice((0.01, 0.1, 0.3)) * options.timeout,
            random.choice((0, 0, 1, 3)),
            random.random() < 0.7,
            _scaling(random),
        )


@dataclass(frozen=True)
class Scene:
    """All parts of a schedule."""

    world: World
    disk: Disk
    external: External
    records: Input
    setup: Setup

    @staticmethod
    def draw(world: World) -> Scene:
        setup = Setup.draw(world.random)
        disk = Disk(world)
        waits_for_manifest = setup.mode is CheckpointingMode.EXACTLY_ONCE
        external = External(world, disk, waits_for_manifest, setup.commit_delay)
        return Scene(world, disk, external, make_input(world.random), setup)

    def parallelism(self) -> int:
        return self.world.random.choice(self.setup.parallelisms)


def _options(random: Random) -> CheckpointOptions:
    min_pause = random.choice((0.0, 0.0, 0.5))
    return CheckpointOptions(
        enabled=True,
        interval=random.choice((0.01, 0.1, 0.5, 2.0)),
        mode=random.choice(_MODES),
        timeout=random.choice((0.5, 2.0, 10.0)),
        min_pause=min_pause,
        max_concurrent=1 if min_pause else random.choice((1, 2, 4)),
        tolerable_failures=random.choice((0, 1, 3)),
        # A job that fails or is cancelled must leave a checkpoint for the next driver to restore.
        retention=ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        retained=random.choice((1, 1, 2, 3)),
        incremental=random.choice((None, False)),
    )


def _scaling(random: Random) -> ScalingOptions | None:
    if random.random() < 2 / 3:
        return None
    return ScalingOptions(
        # Slots become available eventually.
        wait=math.inf,
        start_stabilization_timeout=random.choice((0.0, 0.5)),
        cooldown=random.choice((0.0, 0.5)),
        stabilization_timeout=random.choice((0.0, 0.5)),
        max_delay=random.choice((0.0, 0.2, 2.0)),
    )


def _restart(random: Random) -> Callable[[], RestartStrategy]:
    strategies: tuple[Callable[[], RestartStrategy], ...] = (
        NoRestart,
        partial(FixedDelay, 3, 0.2),
        partial(FixedDelay, 1_000, 1.0),
        partial(FailureRate, 2, 5.0, 0.1),
        partial(ExponentialDelay, 0.1, 2.0, 2.0, 5.0, 0.1, 5, random.random),
    )
    return random.choice(strategies)
