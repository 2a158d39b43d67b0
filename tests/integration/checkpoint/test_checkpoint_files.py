"""Checkpoint files: damage is reported by file name, and restore falls back to the previous checkpoint."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.manifest import NAME, SHARED, Manifest, decode_manifest, encode_manifest
from millstream.checkpoint.origin import LATEST, PATH, delete_origin, find_origin, verify
from millstream.checkpoint.snapshot import Snapshot
from millstream.checkpoint.storage import DirectoryStorage, open_storage
from millstream.checkpoint.store import CheckpointStore, is_alive, latest_checkpoints, open_checkpoint, this_process
from millstream.common import Configuration, Types
from millstream.common.errors import DamagedStateError, DeposedError, InvalidProgramError, MillstreamError
from millstream.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor
from millstream.state import changelog
from millstream.testing import CollectSink, LocalJob
from tests.properties.checkpoint.test_restore import environment, process


class Written:
    """A job's directory with some checkpoints."""

    def __init__(self, directory: Path, checkpoints: int = 3) -> None:
        self.home = directory / ("ab" * 16)
        self.store = CheckpointStore(open_storage(str(self.home)), {"host": "elsewhere", "pid": 1})
        self.store.take(lambda owner: False)
        env = environment(2)
        process(env).sink_to(CollectSink())
        files: Any = DirectoryStorage(str(self.home / SHARED))
        self.job = LocalJob(env, epoch_sizes=lambda: 20, storage=files)
        for number in range(1, checkpoints + 1):
            self.job.run_epoch(flush=True)
            self.store.write(Manifest("checkpoint", number, number, self.job.live_snapshot(), f"../{SHARED}"))
        self.store.release()

    def location(self, number: int) -> str:
        return str(self.home / f"chk-{number}")

    def files(self, number: int) -> list[Path]:
        files = open_checkpoint(self.location(number)).manifest.snapshot.files()
        return [self.home / SHARED / name for name in sorted(files)] + [Path(self.location(number), NAME)]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def check(location: str) -> None:
    verify(open_checkpoint(location), {})


def test_checkpoint_files_are_readable_after_write(written: Written) -> None:
    for number in (1, 2, 3):
        check(written.location(number))


def test_checkpoint_check_detects_damage_in_every_file(written: Written) -> None:
    dice = random.Random(4)
    for path in written.files(3):
        intact = path.read_bytes()
        damaged = [intact[: dice.randrange(len(intact))] for _ in range(20)] + [b""]
        for _ in range(60):
            flipped = bytearray(intact)
            flipped[dice.randrange(len(intact))] ^= 1 << dice.randrange(8)
            damaged.append(bytes(flipped))
        for data in damaged:
            path.write_bytes(data)
            with pytest.raises(DamagedStateError, match=path.name):
                check(written.location(3))
        path.unlink()
        with pytest.raises(DamagedStateError, match=path.name):
            check(written.location(3))
        path.write_bytes(intact)
    check(written.location(3))


def test_checkpoint_check_detects_swapped_state_files(written: Written) -> None:
    """Each replacement (another subtask, another epoch, other rows) is a valid file, but not the right one."""
    *files, _ = written.files(3)
    for path in files:
        intact = path.read_bytes()
        for other in files:
            if other != path:
                path.write_bytes(other.read_bytes())
                with pytest.raises(DamagedStateError, match=f"{path.name} is not the file that this checkpoint wrote"):
                    check(written.location(3))
        decoded = changelog.decode(path.name, intact)
        changed = [replace(s, rows=dict(list(s.rows.items())[1:])) for s in decoded.sections()]
        path.write_bytes(b"".join(changelog.encode(decoded.header, changed)))
        with pytest.raises(DamagedStateError, match=f"{path.name} is not the file that this checkpoint wrote"):
            check(written.location(3))
        path.write_bytes(intact)
    check(written.location(3))


def test_manifest_of_newer_version_is_rejected(written: Written) -> None:
    path = Path(written.location(3), NAME)
    head, _, body = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps({**json.loads(head), "version": 99}).encode() + b"\n" + body)
    with pytest.raises(DamagedStateError, match=r"chk-3/_metadata was written by a newer millstream \(format 99\)"):
        check(written.location(3))


def latest(directory: Path) -> Configuration:
    name = "Flink Streaming Job"
    config = Configuration.from_dict({PATH.key: LATEST, "execution.checkpointing.dir": str(directory)})
    return config.set_string("pipeline.name", name)


def test_find_origin_falls_back_to_latest_readable_checkpoint(
    written: Written, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, name = latest(tmp_path), "Flink Streaming Job"
    for expected in (3, 2, 1):
        origin = find_origin(config, name)
        assert origin is not None and origin.location == written.location(expected) and origin.claimed
        newest = set(written.files(expected)) - (set(written.files(expected - 1)) if expected > 1 else set())
        damaged = sorted(newest)[0]
        damaged.write_bytes(damaged.read_bytes()[:-3])
        if expected < 3:
            assert "starts from" in caplog.text
        caplog.clear()
    with pytest.raises(DamagedStateError, match="No checkpoint of job"):
        find_origin(config, name)


def test_find_origin_rejects_damaged_checkpoint_given_by_path(written: Written) -> None:
    Path(written.location(2), NAME).write_bytes(b"{")
    config = Configuration.from_dict({PATH.key: written.location(2)})
    with pytest.raises(DamagedStateError, match="chk-2/_metadata"):
        find_origin(config, "any")


def test_find_origin_returns_none_without_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_origin(latest(tmp_path), "new") is None
    assert "it starts from the beginning" in caplog.text
    with pytest.raises(InvalidProgramError, match=r"set execution\.checkpointing\.dir"):
        find_origin(Configuration.from_dict({PATH.key: LATEST}), "new")


def test_find_origin_ignores_checkpoint_without_manifest(written: Written, tmp_path: Path) -> None:
    (written.home / "chk-9").mkdir()
    origin = find_origin(latest(tmp_path), "Flink Streaming Job")
    assert origin is not None and origin.location == written.location(3)
    for number in (1, 2, 3):
        Path(written.location(number), NAME).unlink()
    assert find_origin(latest(tmp_path), "Flink Streaming Job") is None


def test_find_origin_ignores_checkpoints_of_other_jobs(written: Written, tmp_path: Path) -> None:
    checkpoints, problems = latest_checkpoints(str(tmp_path), "another job")
    assert checkpoints == [] and problems == []
    assert find_origin(latest(tmp_path), "another job") is None


def test_find_origin_rejects_checkpoint_of_running_job(written: Written, tmp_path: Path) -> None:
    (written.home / "_owner").write_text(json.dumps(this_process("x")))
    with pytest.raises(InvalidProgramError, match=r"chk-3 still runs \(process \d+"):
        find_origin(latest(tmp_path), "Flink Streaming Job")


def test_claimed_checkpoint_is_deleted_with_its_job_directory(written: Written, tmp_path: Path) -> None:
    for left in (2, 1, 0):
        origin = find_origin(latest(tmp_path), "Flink Streaming Job")
        assert origin is not None
        delete_origin(origin, {})
        assert written.home.exists() == (left > 0)


def test_open_checkpoint_rejects_directory_without_metadata(tmp_path: Path) -> None:
    with pytest.raises(DamagedStateError, match="is not a checkpoint or savepoint: there is no file _metadata"):
        open_checkpoint(str(tmp_path))


def test_checkpoint_write_raises_deposed_after_directory_was_deleted(written: Written) -> None:
    written.store.take(lambda owner: False)
    shutil.rmtree(written.home)
    with pytest.raises(DeposedError, match=f"The job's directory .*{written.home} or its files were deleted"):
        written.store.write(Manifest("checkpoint", 9, 9, Snapshot("j", "n", 1), f"../{SHARED}"))


def test_checkpoint_write_fails_after_another_job_took_directory(written: Written) -> None:
    manifest = Manifest("checkpoint", 9, 9, Snapshot("j", "n", 1), f"../{SHARED}")
    written.store.take(lambda owner: False)
    written.store.write(manifest)
    second = CheckpointStore(open_storage(str(written.home)), this_process("second"))
    with pytest.raises(InvalidProgramError, match="in use by another job"):
        second.take(lambda owner: True)
    second.take(lambda owner: False)
    with pytest.raises(MillstreamError, match=r"Another job has taken the directory .*/_owner"):
        written.store.write(manifest)


def test_is_alive_distinguishes_live_and_dead_owners() -> None:
    me = this_process("x")
    assert is_alive(me)
    assert not is_alive({**me, "started": "1"})
    assert not is_alive({**me, "pid": 1 << 22})
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    # A zombie is still in the process list.
    with open(f"/proc/{ended.pid}/stat") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    assert not is_alive({**me, "pid": ended.pid, "started": started})
    ended.wait()
    # The liveness of a process on another host is unknown here.
    assert is_alive({**me, "host": "far away", "pid": 1 << 22})


def test_checkpoint_store_deletes_unreferenced_shared_files(written: Written) -> None:
    shared = written.home / SHARED
    all_names = {p.name for p in shared.iterdir()}
    needed = open_checkpoint(written.location(1)).manifest.snapshot.files()
    assert needed < all_names
    unneeded = all_names - needed
    written.store.delete_state([min(unneeded)])
    assert {p.name for p in shared.iterdir()} == all_names - {min(unneeded)}
    written.store.sweep_state(needed)
    assert {p.name for p in shared.iterdir()} == needed
    check(written.location(1))


def test_manifest_round_trips_all_fields() -> None:
    env = environment(2)
    process(env).sink_to(CollectSink())
    job = LocalJob(env, epoch_sizes=lambda: 20)
    job.run_epoch()
    snapshot = job.live_snapshot()
    snapshot.committables = {"sink": b"staged"}
    manifest = Manifest("savepoint", 7, 8, snapshot, "", {"a": 1})
    assert decode_manifest("m", encode_manifest(manifest)) == manifest


def test_fsspec_storage_lists_writes_and_deletes(tmp_path: Path) -> None:
    # Through fsspec, with renames, as on HDFS.
    storage = open_storage(f"local://{tmp_path}/there", cache=str(tmp_path / "copies"))
    assert storage.list("") == []
    storage.publish("chk-1/_metadata", b"manifest")
    storage.write("shared/state", [b"a", b"b"])
    assert sorted(storage.list("")) == ["chk-1", "shared"]
    assert (tmp_path / "there/chk-1/_metadata").read_bytes() == b"manifest"
    assert bytes(storage.read("shared/state")) == b"ab"
    storage.delete("chk-1")
    storage.delete("chk-1")
    assert storage.list("") == ["shared"]
    with pytest.raises(InvalidProgramError, match="nowhere"):
        open_storage("nowhere://x")


def _in_memory(path: Path) -> bool:
    """Return whether the page cache holds the first page of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _can_leave_memory(directory: Path) -> bool:
    """Return whether files of this directory are on a disk and the system reports cached pages."""
    path = directory / "tried"
    with path.open("wb") as file:
        file.write(b"x" * 100_000)
        file.flush()
        os.fsync(file.fileno())
        was_there = _in_memory(path)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return was_there and not _in_memory(path)


def test_directory_storage_drops_durable_state_files_from_page_cache(tmp_path: Path) -> None:
    if not _can_leave_memory(tmp_path):
        pytest.skip("this file system has its files in memory")
    storage = DirectoryStorage(str(tmp_path))
    storage.write("state", [b"x" * 100_000])
    storage.make_durable(["state"])
    assert not _in_memory(tmp_path / "state")
    assert bytes(storage.read("state")) == b"x" * 100_000


class _Counts(KeyedProcessFunction):
    """Counts; once, when it has a checkpoint, all state files are deleted and it fails."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        damaged = self._home.with_name("spoiled")
        if not damaged.exists() and list(self._home.glob("*/chk-*/_metadata")):
            damaged.touch()
            for file in self._home.glob("*/shared/*"):
                file.unlink()
            raise RuntimeError("no luck")
        yield value, count


def test_job_fails_when_no_retained_checkpoint_is_readable(tmp_path: Path) -> None:
    settings = {"execution.checkpointing.dir": str(tmp_path / "cp"), "execution.checkpointing.interval": "20 ms"}
    settings |= {"millstream.engine": "local", "restart-strategy.fixed-delay.delay": "10 ms"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(1)
    sink = CollectSink()
    numbers = env.from_source(DataGeneratorSource(lambda i: i, 100_000, 500))
    numbers.key_by(lambda v: v % 7).process(_Counts(tmp_path / "cp")).uid("counts").sink_to(sink)
    with pytest.raises(MillstreamError, match=r"(?s)cannot be read and no earlier one is retained.*is missing"):
        env.execute("counts")
    # Committed output stays, without duplicates.
    assert len(sink.results()) == len(set(sink.results()))
