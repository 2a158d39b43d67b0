"""Valid checkpoints of a job's former drivers: those up to the checkpoint that a later driver restored."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.origin import claim_latest, find_origin
from millstream.checkpoint.snapshot import Snapshot
from millstream.checkpoint.storage import open_storage
from millstream.checkpoint.store import CheckpointStore, latest_checkpoints, open_checkpoint
from millstream.common import Configuration
from millstream.common.errors import DamagedStateError, InvalidProgramError

# A process that no longer exists.
DEAD = {"job": "job", "released": True}


def driver(directory: Path, job_id: str) -> CheckpointStore:
    store = CheckpointStore(open_storage(str(directory / job_id)), DEAD)
    store.take(lambda owner: False)
    return store


def write(store: CheckpointStore, number: int, timestamp: int) -> None:
    job_id = store.storage.url.rpartition("/")[2]
    (Path(store.storage.url) / "shared").mkdir(exist_ok=True)
    store.write(Manifest("checkpoint", number, timestamp, Snapshot(job_id, "job", number), "../shared"))


def settings(directory: Path) -> Configuration:
    return Configuration.from_dict(
        {"execution.checkpointing.dir": str(directory), "execution.state-recovery.path": "latest"}
    )


def start(directory: Path, job_id: str) -> str | None:
    """Start a driver; return the checkpoint that it restores."""
    origin = find_origin(settings(directory), "job")
    claim_latest(settings(directory), "job", origin, driver(directory, job_id).storage.url)
    return None if origin is None else origin.location.removeprefix(f"{directory}/")


def test_superseded_checkpoint_written_after_a_new_driver_is_ignored(tmp_path: Path) -> None:
    first = driver(tmp_path, "a")
    write(first, 1, 10)
    assert start(tmp_path, "b") == "a/chk-1"
    write(first, 2, 20)
    assert start(tmp_path, "c") == "a/chk-1"


def test_superseded_checkpoint_of_any_former_driver_is_ignored(tmp_path: Path) -> None:
    first = driver(tmp_path, "a")
    assert start(tmp_path, "b") is None
    write(first, 1, 10)
    assert start(tmp_path, "c") is None


def test_superseded_checkpoints_of_other_jobs_are_untouched(tmp_path: Path) -> None:
    other = CheckpointStore(open_storage(str(tmp_path / "o")), {**DEAD, "job": "other"})
    other.take(lambda owner: False)
    assert start(tmp_path, "a") is None
    (Path(other.storage.url) / "shared").mkdir()
    other.write(Manifest("checkpoint", 1, 10, Snapshot("o", "other", 1), "../shared"))
    assert [f.location for f in latest_checkpoints(str(tmp_path), "other")[0]] == [f"{tmp_path}/o/chk-1"]


def test_new_driver_with_the_same_id_is_not_superseded(tmp_path: Path) -> None:
    write(driver(tmp_path, "a"), 1, 10)
    assert start(tmp_path, "b") == "a/chk-1"
    write(driver(tmp_path, "a"), 2, 20)
    assert start(tmp_path, "c") == "a/chk-2"


def test_latest_checkpoints_reads_parent_and_job_directories(tmp_path: Path) -> None:
    store = driver(tmp_path, "a")
    write(store, 3, 10)
    write(store, 4, 20)
    (tmp_path / "notes.txt").write_text("not a job")
    for directory in (tmp_path, tmp_path / "a"):
        checkpoints, problems = latest_checkpoints(str(directory), "job")
        assert ([f.manifest.id for f in checkpoints], problems) == ([4, 3], [])


def test_checkpoint_directory_can_be_taken_after_release(tmp_path: Path) -> None:
    store = driver(tmp_path, "a")
    store.release()
    CheckpointStore(open_storage(str(tmp_path / "a")), DEAD).take(lambda owner: "released" not in owner)


@pytest.mark.parametrize("damage", [b"soon", b"", b"1.5", b"\xff\xfe", None])
def test_damaged_superseded_entry_is_reported_and_other_drivers_are_used(tmp_path: Path, damage: bytes | None) -> None:
    write(driver(tmp_path, "a"), 1, 10)
    entry_file = tmp_path / "a" / "_superseded"
    if damage is None:
        entry_file.mkdir()
    else:
        entry_file.write_bytes(damage)
    with pytest.raises(
        DamagedStateError, match=f"No checkpoint of job 'job' .*{entry_file}.* (is damaged|cannot be read)"
    ):
        start(tmp_path, "b")
    write(driver(tmp_path, "c"), 1, 5)
    assert start(tmp_path, "d") == "c/chk-1"
    # The file is rewritten: unreadable entries are ignored.
    assert entry_file.read_text() == "0"


@pytest.mark.parametrize(
    "damage", [b"[]", b"5", b'"me"', b"{", b"{}", b'{"host": "HERE"}', b'{"host": "HERE", "pid": "x"}', None]
)
def test_damaged_owner_file_counts_as_no_owner(tmp_path: Path, damage: bytes | None) -> None:
    write(driver(tmp_path, "a"), 1, 10)
    owner = tmp_path / "a" / "_owner"
    owner.unlink()
    if damage is None:
        owner.mkdir()
    else:
        owner.write_bytes(damage.replace(b"HERE", socket.gethostname().encode()))
    if damage == b"{}":
        # An owner without a host name counts as one of another host, which may still run.
        with pytest.raises(InvalidProgramError, match="still runs .*: stop it first"):
            start(tmp_path, "b")
    else:
        assert start(tmp_path, "b") == "a/chk-1"


def test_manifest_that_is_a_directory_is_reported(tmp_path: Path) -> None:
    write(driver(tmp_path, "a"), 1, 10)
    manifest = tmp_path / "a" / "chk-1" / "_metadata"
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(DamagedStateError, match=f"The file {manifest} cannot be read: Is a directory"):
        open_checkpoint(str(tmp_path / "a" / "chk-1"))
    write(driver(tmp_path, "c"), 1, 5)
    assert start(tmp_path, "d") == "c/chk-1"
