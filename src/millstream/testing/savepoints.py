"""Checkpoints and savepoints of local jobs: written as a cluster writes them, and restored."""

from __future__ import annotations

import os
from collections.abc import Callable

from millstream.checkpoint.manifest import NAME, SHARED, Manifest, encode_manifest
from millstream.checkpoint.snapshot import Snapshot
from millstream.checkpoint.storage import open_storage
from millstream.checkpoint.store import open_checkpoint
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.graph.transformations import Transformation
from millstream.testing.local_job import LocalJob, MemoryStorage

_PARTS = "savepoint"


def save_checkpoint(job: LocalJob, directory: str | os.PathLike[str], number: int = 1) -> str:
    """Take a checkpoint of a local job; return its path.

    Args:
        job: the job, between two epochs.
        directory: the job's directory: the checkpoint is `chk-<number>` in it.
        number: the number of the checkpoint.

    Example:
        >>> import tempfile
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([1, 2, 3]).print()  # doctest: +ELLIPSIS
        <...>
        >>> job = LocalJob(env, epoch_sizes=lambda: 1)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     os.path.basename(save_checkpoint(job, directory, 7))
        'chk-7'
    """
    _run_epoch(job, number)
    snapshot = job.live_snapshot()
    storage = open_storage(os.fspath(directory))
    for name in snapshot.files():
        storage.write(f"{SHARED}/{name}", [job.storage.read(name)])
    return _publish(os.path.join(directory, f"chk-{number}"), "checkpoint", number, snapshot, f"../{SHARED}")


def save_savepoint(job: LocalJob, directory: str | os.PathLike[str]) -> str:
    """Take a savepoint of a local job; return its path, which is the directory.

    Example:
        >>> import tempfile
        >>> from millstream.testing import CollectSink
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> counts = env.from_collection(["a", "b", "a"]).map(lambda w: (w, 1)).key_by(lambda t: t[0]).sum(1)
        >>> _ = counts.uid("counts").sink_to(CollectSink())
        >>> job = LocalJob(env, epoch_sizes=lambda: 2)
        >>> _ = job.run_epoch()
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     sorted(os.listdir(save_savepoint(job, directory)))[-1]
        '_metadata'
    """
    _run_epoch(job, 1, _PARTS)
    snapshot = job.savepoint()
    storage = open_storage(os.fspath(directory))
    for vertex in snapshot.vertices.values():
        for part in (p for s in vertex.subtasks for p in s.parts.values()):
            storage.write(part.file, [job.storage.read(f"{_PARTS}/{part.file}")])
    return _publish(os.fspath(directory), "savepoint", snapshot.epoch, snapshot, "")


def start_from(
    env: StreamExecutionEnvironment,
    location: str | os.PathLike[str],
    clock: Callable[[], int] | None = None,
    epoch_sizes: Callable[[], int] | None = None,
    sinks: list[Transformation] | None = None,
    job_name: str | None = None,
) -> LocalJob:
    """Return a local job of an environment's program, restored from a checkpoint or savepoint on disk.

    This tests an upgrade without a cluster, with a cluster's snapshot. The other arguments are those of LocalJob.

    Example:
        >>> import tempfile
        >>> from millstream.testing import CollectSink
        >>> sink = CollectSink()
        >>> def program():
        ...     env = StreamExecutionEnvironment.get_execution_environment()
        ...     env.from_collection([1, 2, 3]).map(lambda x: x * x).sink_to(sink)
        ...     return env
        >>> job = LocalJob(program(), epoch_sizes=lambda: 1)
        >>> _ = job.run_epoch()
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     start_from(program(), save_savepoint(job, directory)).run()
        >>> sink.results()
        [1, 4, 9]
    """
    checkpoint = open_checkpoint(os.fspath(location))
    storage, source = MemoryStorage(), open_storage(checkpoint.state_url())
    snapshot = checkpoint.manifest.snapshot
    for name in snapshot.files().union(snapshot.parts()):
        storage.files[name] = bytes(source.read(name))
    return LocalJob(env, clock, epoch_sizes, snapshot, storage, sinks, job_name)


def _run_epoch(job: LocalJob, checkpoint: int, savepoint: str | None = None) -> None:
    tasks = job.execution.tasks({}, frozenset(), flush=True, checkpoint=checkpoint, savepoint=savepoint)
    job.run_tasks(tasks)
    job.output.finish()


def _publish(location: str, kind: str, number: int, snapshot: Snapshot, state: str) -> str:
    storage = open_storage(location)
    # The epoch serves as the time: a test's clock may not advance.
    storage.publish(NAME, encode_manifest(Manifest(kind, number, snapshot.epoch, snapshot, state)))
    return storage.url
