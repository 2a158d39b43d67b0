"""File compaction of FileSink: triggers, compactors, and driver failures at every step."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.files import compaction, part_files
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import CommitContext, Committer
from millstream.datastream.connectors.file_system import (
    BulkWriterFactory,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    RollingPolicy,
)
from millstream.testing import LocalJob
from millstream.testing.savepoints import save_savepoint
from tests.integration.connectors.test_file_sink import (
    BASE_PATH,
    UTF8,
    ByDigit,
    bulk,
    counted_lines,
    epoch,
    finished,
    hidden,
    hurried,
    lines,
    writer_of,
)
from tests.support.chaos import OPERATOR, ChaoticJob, Crash, travelled

CONCAT = FileCompactor.concat_file_compactor()
Committables = list[tuple[int, Any]]


def strategy(checkpoints: int | None = None, size: int | None = None, threads: int = 1) -> FileCompactStrategy:
    builder = FileCompactStrategy.builder().set_num_compact_threads(threads)
    if checkpoints is not None:
        builder.enable_compaction_on_checkpoint(checkpoints)
    if size is not None:
        builder.set_size_threshold(size)
    return builder.build()


def compacting(
    base: Path, when: FileCompactStrategy, compactor: FileCompactor = CONCAT, assigner: Any = BASE_PATH
) -> FileSink:
    builder = FileSink.for_row_format(str(base), UTF8).with_bucket_assigner(assigner)
    return builder.enable_compact(when, compactor).build()


def committer_of(sink: FileSink, job_id: str = "job") -> Committer:
    return sink.create_committer(CommitContext(job_id, OPERATOR))


class Run:
    """The lifecycle of a sink with one subtask, checkpoint by checkpoint."""

    def __init__(self, sink: FileSink) -> None:
        self.writer = writer_of(sink)
        self.committer = committer_of(sink)
        self.number = 0
        self.manifest: Committables = []

    def stage(self, *values: Any) -> Committables:
        """Take a checkpoint, up to its manifest."""
        self.number += 1
        staged = epoch(self.writer, self.number, list(values), flush=True)
        new = [] if staged is None else [(0, staged)]
        self.manifest = travelled([*self.committer.waiting(), *new])
        return self.manifest

    def checkpoint(self, *values: Any) -> None:
        self.committer.commit(self.stage(*values))


# --- triggers and compactors


def test_file_compaction_runs_after_checkpoint_count(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=3)))
    run.checkpoint("a")
    run.checkpoint("b")
    assert finished(tmp_path) == {} and run.committer.wants_checkpoints
    run.checkpoint("c")
    assert list(finished(tmp_path).values()) == ["a\nb\nc\n"]
    assert [p.name.startswith("compacted-part-") for p in tmp_path.iterdir()] == [True]
    assert run.committer.waiting() == [] and not run.committer.wants_checkpoints
    run.checkpoint("d")
    run.checkpoint()
    assert lines(tmp_path) == ["a", "b", "c"]
    # Checkpoints without output count too.
    run.checkpoint()
    assert lines(tmp_path) == ["a", "b", "c", "d"] and hidden(tmp_path) == []


def test_file_compaction_runs_at_size_threshold(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(size=6)))
    for value in "abcd":
        run.checkpoint(value)
    assert list(finished(tmp_path).values()) == ["a\nb\nc\n"]
    assert not run.committer.wants_checkpoints
    run.checkpoint("large enough")
    assert sorted(finished(tmp_path).values()) == ["a\nb\nc\n", "d\nlarge enough\n"]
    assert hidden(tmp_path) == []


def test_file_compaction_runs_at_first_reached_threshold(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=2, size=8)))
    run.checkpoint("0123456789")
    assert lines(tmp_path) == ["0123456789"]
    run.checkpoint("a")
    run.checkpoint("b")
    assert sorted(finished(tmp_path).values()) == ["0123456789\n", "a\nb\n"]


@pytest.mark.parametrize("threads", [1, 4])
def test_file_compaction_is_per_bucket(tmp_path: Path, threads: int) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=2, threads=threads), assigner=ByDigit()))
    run.checkpoint(1, 2, 3)
    run.checkpoint(4, 5, 6)
    assert {p.parent.name: t for p, t in ((p, p.read_text()) for p in tmp_path.rglob("compacted-*"))} == {
        "0": "3\n6\n",
        "1": "1\n4\n",
        "2": "2\n5\n",
    }


def test_concat_compactor_writes_delimiter_between_files(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=3), FileCompactor.concat_file_compactor(b"--\n")))
    for value in "abc":
        run.checkpoint(value)
    assert list(finished(tmp_path).values()) == ["a\n--\nb\n--\nc\n"]


def test_identical_compactor_does_not_merge_files(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=2), FileCompactor.identical_file_compactor()))
    run.checkpoint("a")
    assert finished(tmp_path) == {}
    run.checkpoint("b")
    assert sorted(finished(tmp_path).values()) == ["a\n", "b\n"]
    assert all(p.name.startswith("compacted-part-") for p in tmp_path.iterdir())


def test_file_compaction_finishes_pending_parts_at_end_of_input(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(size=4)))
    run.committer.commit([*run.stage("a"), *run.stage("b"), *run.stage("c")])
    run.committer.finish()
    assert sorted(finished(tmp_path).values()) == ["a\nb\n", "c\n"] and hidden(tmp_path) == []
    run.committer.finish()
    assert lines(tmp_path) == ["a", "b", "c"]


def test_file_compaction_leaves_no_pending_parts_after_finish_or_savepoint(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(list(range(10))).sink_to(compacting(tmp_path / "out", strategy(checkpoints=100)))
    job = LocalJob(env, epoch_sizes=lambda: 1)
    for _ in range(3):
        job.run_epoch(flush=True)
    assert lines(tmp_path / "out") == [] and len(hidden(tmp_path / "out")) == 3
    save_savepoint(job, tmp_path / "saved")
    assert list(finished(tmp_path / "out").values()) == ["0\n1\n2\n"]
    job.run()
    assert lines(tmp_path / "out") == sorted(map(str, range(10))) and len(finished(tmp_path / "out")) == 2


def test_file_compaction_rejects_invalid_settings() -> None:
    with pytest.raises(InvalidProgramError, match="set a condition"):
        FileCompactStrategy.builder().build()
    with pytest.raises(InvalidProgramError, match="set_size_threshold takes a number above 0, not 0"):
        FileCompactStrategy.builder().set_size_threshold(0)
    with pytest.raises(InvalidProgramError, match="enable_compaction_on_checkpoint"):
        FileCompactStrategy.builder().enable_compaction_on_checkpoint(-1)
    with pytest.raises(InvalidProgramError, match="delimiter as bytes"):
        FileCompactor.concat_file_compactor("\n")  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="enable_compact takes a FileCompactStrategy"):
        FileSink.for_row_format("/tmp/x", UTF8).enable_compact(CONCAT, CONCAT)  # type: ignore[arg-type]


def test_file_compaction_can_be_disabled_after_enable(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(str(tmp_path), UTF8).with_bucket_assigner(BASE_PATH)
    run = Run(builder.enable_compact(strategy(checkpoints=2), CONCAT).disable_compact().build())
    run.checkpoint("a")
    assert [p.name.startswith("part-") for p in tmp_path.iterdir()] == [True]


# --- repeated commits


def test_file_compaction_commit_is_idempotent(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=2)))
    first = run.stage("a")
    # Two concurrent checkpoints: the second was taken before the output of the first was committed.
    both = [*first, *run.stage("b")]
    run.committer.commit(first)
    run.committer.commit(both)
    run.committer.commit(both)
    run.committer.finish()
    assert lines(tmp_path) == ["a", "b"] and hidden(tmp_path) == []


def test_file_compaction_commit_rejects_lost_part(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=2)))
    staged = run.stage("a")
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(MillstreamError, match="has the 2 bytes that were written"):
        run.committer.commit(staged)


def test_file_compaction_rejects_pending_part_deleted_before_compaction(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=2)))
    run.checkpoint("a")
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(MillstreamError, match="was deleted or moved before compaction"):
        run.checkpoint("b")


# --- another driver


def test_file_compaction_restores_pending_parts_across_jobs(tmp_path: Path) -> None:
    sink = compacting(tmp_path, strategy(checkpoints=100))
    run = Run(sink)
    run.checkpoint("a")
    manifest = run.stage("b")
    # Each job restores the checkpoint of the previous one.
    for former, job_id in (("job", "job2"), ("job2", "job3"), ("job3", "job4")):
        committer = committer_of(sink, job_id)
        committer.recover(travelled(manifest), former)
        manifest = committer.waiting()
        assert finished(tmp_path) == {}
    committer.finish()
    assert list(finished(tmp_path).values()) == ["a\nb\n"] and hidden(tmp_path) == []


def test_file_compaction_aborts_parts_without_checkpoint(tmp_path: Path) -> None:
    sink = compacting(tmp_path, strategy(checkpoints=100))
    run = Run(sink)
    run.checkpoint("a")
    manifest = run.manifest
    run.checkpoint("b")
    committer = committer_of(sink)
    committer.recover(manifest, "job")
    committer.finish()
    assert lines(tmp_path) == ["a"] and hidden(tmp_path) == []


def test_file_compaction_recovery_does_not_recreate_deleted_file(tmp_path: Path) -> None:
    sink = compacting(tmp_path, strategy(checkpoints=1))
    run = Run(sink)
    run.checkpoint("a")
    for path in tmp_path.iterdir():
        path.unlink()
    committer = committer_of(sink)
    committer.recover(run.manifest, "job")
    committer.finish()
    assert list(tmp_path.iterdir()) == []


def test_file_compaction_disabled_on_restore_publishes_pending_parts(tmp_path: Path) -> None:
    run = Run(compacting(tmp_path, strategy(checkpoints=2)))
    run.checkpoint("a")
    manifest = run.stage("b")
    with dying_at(4), pytest.raises(Crash):
        run.committer.commit(manifest)
    assert any(".compacting." in name for name in hidden(tmp_path))
    plain = FileSink.for_row_format(str(tmp_path), UTF8).with_bucket_assigner(BASE_PATH).build()
    committer_of(plain, "job2").recover(manifest, "job")
    assert sorted(finished(tmp_path).values()) == ["a\n", "b\n"] and hidden(tmp_path) == []


def test_file_compaction_leaves_files_finished_before_it_unchanged(tmp_path: Path) -> None:
    plain = FileSink.for_row_format(str(tmp_path), UTF8).with_bucket_assigner(BASE_PATH).build()
    run = Run(plain)
    run.checkpoint("a")
    committer = committer_of(compacting(tmp_path, strategy(checkpoints=1)), "job2")
    committer.recover(run.manifest, "job")
    assert [p.name.startswith("part-") for p in tmp_path.iterdir()] == [True]


# --- crashes


@contextmanager
def at_step(number: int, action: Callable[[], None]) -> Iterator[list[int]]:
    """Run an action before the nth file system step; steps of the action itself are not counted."""
    count = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == number + 1:
                action()
            return function(*args, **kwargs)

        return step

    create, sync = counted(part_files.create), counted(part_files.sync)
    with (
        patch.object(os, "rename", counted(os.rename)),
        patch.object(os, "unlink", counted(os.unlink)),
        patch.object(compaction, "create", create),
        patch.object(compaction, "sync", sync),
        patch.object(compaction, "_pieces", counted(compaction._pieces)),
    ):
        yield count


def _die() -> None:
    raise Crash


def dying_at(number: int) -> Any:
    return at_step(number, _die)


def prepared(base: Path) -> tuple[FileSink, Run, Committables]:
    """Prepare two pending parts; the next commit compacts them with a third."""
    sink = compacting(base, strategy(checkpoints=3))
    run = Run(sink)
    run.checkpoint("a")
    run.checkpoint("b")
    return sink, run, run.stage("c")


def steps_of_commit(base: Path) -> int:
    _, run, manifest = prepared(base)
    with at_step(-1, _die) as count:
        run.committer.commit(manifest)
    return count[0]


@pytest.mark.parametrize("former", ["job", "elsewhere"])
def test_file_compaction_recovers_from_driver_failure_at_any_step(tmp_path: Path, former: str) -> None:
    """`elsewhere`: a driver failed, another restored and failed at once, so that a third knows only the first."""
    steps = steps_of_commit(tmp_path / "measured")
    assert steps > 15
    for number in range(steps):
        base = tmp_path / f"{number}"
        sink, run, manifest = prepared(base)
        if former == "elsewhere":
            run.committer = committer_of(sink, "between")
            with dying_at(number), suppress(Crash):
                run.committer.recover(travelled(manifest), "job")
        else:
            with dying_at(number), pytest.raises(Crash):
                run.committer.commit(travelled(manifest))
        seen = lines(base)
        assert seen in ([], ["a", "b", "c"])
        committer = committer_of(sink, "job2")
        committer.recover(travelled(manifest), "job")
        committer.finish()
        assert lines(base) == ["a", "b", "c"], number
        assert [name for name in hidden(base) if "between" not in name] == []


def test_file_compaction_recovers_after_published_file_is_removed(tmp_path: Path) -> None:
    for number in range(steps_of_commit(tmp_path / "measured")):
        base = tmp_path / f"{number}"
        sink, run, manifest = prepared(base)
        with dying_at(number), pytest.raises(Crash):
            run.committer.commit(travelled(manifest))
        lines_before = lines(base)
        for path in finished(base):
            os.unlink(base / path)
        committer = committer_of(sink)
        committer.recover(travelled(manifest), "job")
        committer.finish()
        assert lines_before + lines(base) == ["a", "b", "c"], number


def test_file_compaction_recovers_from_failure_during_recovery(tmp_path: Path) -> None:
    for number in range(steps_of_commit(tmp_path / "measured")):
        for again in range(12):
            base = tmp_path / f"{number}-{again}"
            sink, run, manifest = prepared(base)
            with dying_at(number), pytest.raises(Crash):
                run.committer.commit(travelled(manifest))
            with dying_at(again), suppress(Crash):
                committer_of(sink, "job2").recover(travelled(manifest), "job")
            committer = committer_of(sink, "job3")
            committer.recover(travelled(manifest), "job")
            committer.finish()
            assert lines(base) == ["a", "b", "c"], (number, again)


@pytest.mark.parametrize("finishes", [True, False])
@pytest.mark.parametrize("first", ["job", "between"])
def test_file_compaction_tolerates_superseded_driver(tmp_path: Path, finishes: bool, first: str) -> None:
    """Another driver recovers, and perhaps finishes, between any two steps of the first, which then continues.

    `between`: the first driver is itself recovering, and the other does not know of it.
    """
    for number in range(steps_of_commit(tmp_path / "measured")):
        base = tmp_path / f"{number}"
        sink, run, manifest = prepared(base)
        other = committer_of(sink, "job2")

        def take_over(other: Committer = other, manifest: Committables = manifest) -> None:
            other.recover(travelled(manifest), "job")
            if finishes:
                other.finish()

        with at_step(number, take_over), suppress(MillstreamError, OSError):
            if first == "job":
                run.committer.commit(travelled(manifest))
            else:
                committer_of(sink, first).recover(travelled(manifest), "job")
        # The other driver's next commit finds its parts changed: it fails, and restores its checkpoint.
        with suppress(MillstreamError, OSError):
            other.finish()
        last = committer_of(sink, "job2")
        last.recover(travelled(manifest), "job")
        last.finish()
        assert lines(base) == ["a", "b", "c"], number


def test_file_compaction_tolerates_group_published_during_recovery(tmp_path: Path) -> None:
    for number in range(20):
        base = tmp_path / f"{number}"
        sink, _, manifest = prepared(base)
        missed: list[tuple[str, str]] = []
        rename = os.rename

        def stopping(source: str, target: str, missed: Any = missed, rename: Any = rename) -> None:
            if ".compacted." in target:
                missed.append((source, target))
                raise Crash
            rename(source, target)

        def continue_job(missed: Any = missed, rename: Any = rename) -> None:
            with suppress(FileNotFoundError):
                rename(*missed[0])

        with patch.object(os, "rename", stopping), suppress(Crash):
            committer_of(sink, "between").recover(travelled(manifest), "job")
        assert len(missed) == 1
        other = committer_of(sink, "job2")
        with at_step(number, continue_job):
            other.recover(travelled(manifest), "job")
        other.finish()
        assert lines(base) == ["a", "b", "c"], number
        # No part is left that could be published later.
        for path in finished(base):
            os.unlink(base / path)
        committer_of(sink, "job3").recover([], "job2")
        assert lines(base) == [], number


def random_sink(base: Path, dice: random.Random) -> tuple[FileSink, Callable[[Path], list[str]]]:
    when = strategy(dice.choice([None, 1, 2, 5]), dice.choice([5, 20, 100]), dice.choice([1, 1, 2]))
    assigner = dice.choice([BASE_PATH, ByDigit()])
    if dice.random() < 0.2:
        bulk_builder = FileSink.for_bulk_format(str(base), bulk_factory(base)).with_bucket_assigner(assigner)
        return bulk_builder.enable_compact(when, FileCompactor.identical_file_compactor()).build(), counted_lines
    policy = dice.choice(
        [RollingPolicy.default_rolling_policy(12, 500, 300), RollingPolicy.on_checkpoint_rolling_policy()]
    )
    compactor = FileCompactor.concat_file_compactor(dice.choice([None, b"\n"]))
    builder = FileSink.for_row_format(str(base), UTF8).with_bucket_assigner(assigner).with_rolling_policy(policy)
    return builder.with_bucket_check_interval(50).enable_compact(when, compactor).build(), lines


def bulk_factory(base: Path) -> BulkWriterFactory:
    factory: BulkWriterFactory = bulk(base)._make_writer.keywords["open_writer"].__self__  # type: ignore[attr-defined]
    return factory


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_file_compaction_is_exactly_once_for_random_failures(seed: int) -> None:
    dice = random.Random(seed)
    with hurried(dice) as folder:
        base, copies = folder / "out", folder / "waiting"
        base.mkdir()
        sink, read = random_sink(base, dice)
        shares = [list(range(1000 * i, 1000 * i + dice.randrange(5, 60))) for i in range(dice.choice([1, 2, 3]))]

        def counting() -> Counter[int]:
            """Visible and pending records."""
            copies.mkdir(exist_ok=True)
            counts = Counter(map(int, read(base)))
            for part in (p for _, staged in job._committer.waiting() for p in staged.files):
                copy = copies / os.path.basename(part.final)
                copy.write_bytes(Path(part.hidden).read_bytes()[: part.length])
            counts.update(map(int, read(copies)))
            for path in copies.iterdir():
                path.unlink()
            return counts

        job = ChaoticJob(sink, shares, dice, counting, lambda steps: dying_at(steps * dice.randrange(1, 6)))
        job.run()
        job._committer.finish()
        assert Counter(map(int, read(base))) == Counter(v for share in shares for v in share)
        assert hidden(base) == []
