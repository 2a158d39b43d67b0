"""The origin of a job, the checkpoint or savepoint that it starts from: finds, verifies, claims and deletes it.

A job that continues another driver's or leader's also takes precedence over that one's checkpoints: it marks them as
superseded before it starts, and deletes them when it has enough of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum

from millstream.checkpoint.manifest import Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.signing import SigningKeys, signing_keys
from millstream.checkpoint.storage import open_storage, storage_options
from millstream.checkpoint.store import (
    StoredCheckpoint,
    clear_former,
    clear_home,
    is_alive,
    latest_checkpoints,
    list_checkpoints,
    open_checkpoint,
    read_owner,
    supersede,
    supersede_home,
)
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import DamagedStateError, InvalidProgramError
from millstream.common.setting import ChoiceSetting, FlagSetting, TextSetting
from millstream.state.changelog import StoredState
from millstream.state.restored import stored_sections

log = logging.getLogger("millstream")


class ClaimMode(Enum):
    """Who owns the checkpoint that a job starts from: the new job, or its former owner."""

    CLAIM = 0
    NO_CLAIM = 1
    LEGACY = 2


PATH = TextSetting("execution.state-recovery.path", None, ("execution.savepoint.path",))
IGNORE_UNCLAIMED = FlagSetting(
    "execution.state-recovery.ignore-unclaimed-state", False, ("execution.savepoint.ignore-unclaimed-state",)
)
CLAIM_MODE = ChoiceSetting(
    "execution.state-recovery.claim-mode", ClaimMode.NO_CLAIM, ("execution.savepoint-restore-mode",)
)
LATEST = "latest"

# Returns whether an owner of a directory still runs.
IsAlive = Callable[[dict[str, Json]], bool]


def starts_from_latest(config: Configuration) -> bool:
    """Return whether a job starts from the latest checkpoint of its name."""
    return PATH.read(config) == LATEST


def find_origin(config: Configuration, job_name: str, is_alive: IsAlive = is_alive) -> Origin | None:
    """Return what a job starts from according to its settings; None for the beginning.

    Args:
        config: the job's settings.
        job_name: its name.
        is_alive: returns whether an owner of a directory still runs.
    """
    path = PATH.read(config)
    if path is None:
        return None
    allow, claim = IGNORE_UNCLAIMED.read(config), CLAIM_MODE.read(config)
    options, keys = storage_options(config), signing_keys(config)
    if path == LATEST:
        latest = _latest(config, job_name, options, keys, is_alive)
        if latest is None:
            return None
        stored, size = latest
    else:
        stored = open_checkpoint(path, options, keys)
        size = verify(stored, options)
    claimed = claim is ClaimMode.CLAIM or path == LATEST
    return Origin(stored.manifest, stored.location, stored.state_url(), allow, claimed, size)


def find_published(config: Configuration, job_name: str, locations: Sequence[str]) -> Origin:
    """Return the newest readable checkpoint of a job's published ones, which are given oldest first."""
    options, keys, problems = storage_options(config), signing_keys(config), []
    for location in reversed(locations):
        try:
            stored = open_checkpoint(location, options, keys)
            size = verify(stored, options)
        except DamagedStateError as e:
            problems.append(str(e))
            continue
        for problem in problems:
            log.warning("%s The job starts from %s instead.", problem, location)
        return Origin(stored.manifest, stored.location, stored.state_url(), IGNORE_UNCLAIMED.read(config), True, size)
    raise DamagedStateError(f"No checkpoint of job '{job_name}' can be read: {problems[0]}")


def supersede_runs(directory: str, runs: Sequence[str], origin: Origin | None, options: dict[str, Json]) -> None:
    """Write to the directories of earlier leaders up to which checkpoint they count.

    A reader that does not know of leaders would otherwise find checkpoints of a deposed leader.
    """
    existing = set(open_storage(directory, options).list(""))
    for run in (r for r in runs if r in existing):
        home = open_storage(f"{directory}/{run}", options)
        is_origin = origin is not None and origin.location.rpartition("/")[0] == home.url
        supersede_home(home, origin.manifest.id if is_origin and origin is not None else 0)


def claim_latest(
    config: Configuration, job_name: str, origin: Origin | None, home: str, is_alive: IsAlive = is_alive
) -> None:
    """Make sure that no other job restores from another checkpoint than this one, which starts from the latest.

    A dead driver's checkpoint could still reach storage while its output is aborted, or while other output is committed
    in its place.

    Args:
        config: the job's settings.
        job_name: its name.
        origin: what it starts from; None for the beginning.
        home: its own directory.
        is_alive: returns whether an owner of a directory still runs.
    """
    directory = CheckpointOptions.read(config).directory
    if starts_from_latest(config) and directory is not None:
        chosen = None if origin is None else (origin.location.rpartition("/")[0], origin.manifest.id)
        supersede(directory, job_name, chosen, home, is_alive, storage_options(config))


def delete_former_drivers(config: Configuration, job_name: str, own: str, is_alive: IsAlive) -> None:
    """Delete the checkpoints of former drivers of a job that starts from the latest one."""
    directory = CheckpointOptions.read(config).directory
    if starts_from_latest(config) and directory is not None:

        def is_former(home: str, owner: dict[str, Json]) -> bool:
            return home != own and owner.get("job") == job_name and not is_alive(owner)

        clear_former(directory, is_former, storage_options(config))


def delete_former_runs(directory: str, runs: Sequence[str], options: dict[str, Json]) -> None:
    """Delete the checkpoints of a job's earlier leaders."""
    clear_former(directory, lambda home, _: home.rpartition("/")[2] in runs, options)


def _latest(
    config: Configuration, job_name: str, options: dict[str, Json], keys: SigningKeys | None, is_alive: IsAlive
) -> tuple[StoredCheckpoint, int] | None:
    """Return the newest readable checkpoint of a job of that name, and the bytes of its state."""
    directory = CheckpointOptions.read(config).directory
    if directory is None:
        raise InvalidProgramError(
            "The latest checkpoint cannot be found: set execution.checkpointing.dir to its directory."
        )
    candidates, problems = latest_checkpoints(directory, job_name, options)
    for candidate in candidates:
        owner = read_owner(open_storage(candidate.location.rpartition("/")[0], options))
        if owner is not None and is_alive(owner):
            raise InvalidProgramError(
                f"The job of the latest checkpoint {candidate.location} still runs (process {owner.get('pid')} on "
                f"{owner.get('host')}): stop it first."
            )
        try:
            if keys is not None:
                # Only now: jobs of other names may have other keys, or none.
                candidate = open_checkpoint(candidate.location, options, keys)
            size = verify(candidate, options)
        except DamagedStateError as e:
            problems.append(str(e))
            continue
        for problem in problems:
            log.warning("%s The job starts from %s instead.", problem, candidate.location)
        return candidate, size
    for problem in problems:
        log.warning("%s", problem)
    if problems:
        raise DamagedStateError(f"No checkpoint of job '{job_name}' in {directory} can be read: {problems[0]}")
    log.warning("there is no checkpoint of job '%s' in %s yet: it starts from the beginning", job_name, directory)
    return None


def verify(checkpoint: StoredCheckpoint, options: dict[str, Json]) -> int:
    """Read everything in a checkpoint and return its size; damage is an error that names the file."""
    storage = open_storage(checkpoint.state_url(), options)
    sizes: dict[str, int] = {}

    def read(name: str) -> memoryview:
        data = storage.read(name)
        sizes[name] = len(data)
        return data

    for vertex in checkpoint.manifest.snapshot.vertices.values():
        for subtask in vertex.subtasks:
            stored = [StoredState(c[-1], subtask.checksums.get(i)) for i, c in subtask.states.items()]
            stored += subtask.parts.values()
            for file in stored:
                for _ in stored_sections(file, read, only_check=True):
                    pass
    return sum(sizes.values())


def delete_origin(origin: Origin, options: dict[str, Json]) -> None:
    """Delete a claimed checkpoint, and its job's directory if nothing else is in it."""
    open_storage(origin.location, options).delete("")
    if origin.manifest.kind == "checkpoint":
        home = origin.location.rpartition("/")[0]
        if not list_checkpoints(home, options):
            clear_home(open_storage(home, options))
