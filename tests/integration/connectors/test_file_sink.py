"""FileSink: real files, driven as the engine drives it."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Encoder
from millstream.common.errors import InvalidProgramError, LostOutputError, MillstreamError
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.connectors.collection import DriverSink
from millstream.connectors.files import sink as file_sink
from millstream.connectors.files import writer
from millstream.connectors.files import writer as file_writers
from millstream.connectors.files.bucket_assigner import BucketContext, python_template
from millstream.connectors.files.writer import RowWriter, TextWriter
from millstream.datastream.connectors.base import CommitContext, SinkWriter
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    BulkWriterFactory,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.testing import LocalEnvironment
from millstream.testing.clock import ManualClock
from tests.support.chaos import OPERATOR, ChaoticJob, Crash, runtime_context, travelled

UTF8 = Encoder.simple_string_encoder()
BASE_PATH = BucketAssigner.base_path_bucket_assigner()
CONTEXT = CommitContext("job", OPERATOR)


def rows(base: Path, encoder: Any = UTF8, **options: Any) -> FileSink:
    """Return a sink of lines to the base path; options are the builder's without with_."""
    builder = FileSink.for_row_format(str(base), encoder).with_bucket_assigner(BASE_PATH)
    for name, value in options.items():
        getattr(builder, f"with_{name}")(value)
    return builder.build()


def writer_of(sink: FileSink, clock: ManualClock | None = None) -> SinkWriter:
    """Return a writer as in another process."""
    with patch.object(file_sink, "wall_clock", clock or ManualClock()):
        writer: SinkWriter = pickle.loads(cloudpickle.dumps(sink)).create_writer(runtime_context())
    return writer


def epoch(writer: SinkWriter, number: int, values: list[Any], flush: bool = False) -> Any:
    """Run an epoch; return its committable."""
    writer.begin(f"job-{OPERATOR}-0-{number}-a")
    for value in values:
        writer.write(value)
    committable = travelled(writer.prepare_commit(flush))
    if flush:
        assert writer.runtime_snapshot() is None
    return committable


def commit(sink: FileSink, *committables: Any) -> None:
    committer = sink.create_committer(CONTEXT)
    committer.commit([(0, c) for c in committables if c is not None])


def finished(base: Path) -> dict[str, str]:
    """Return the visible files: path below the base to contents."""
    paths = [p for p in base.rglob("*") if p.is_file() and not p.name.startswith(".")]
    return {str(p.relative_to(base)): p.read_text() for p in paths}


def hidden(base: Path) -> list[str]:
    return sorted(p.name for p in base.rglob(".*") if p.is_file())


def lines(base: Path) -> list[str]:
    return sorted("".join(finished(base).values()).split())


def test_file_sink_publishes_records_on_commit_only(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    writer = writer_of(sink)
    staged = epoch(writer, 1, ["a", ("b", 1), 3], flush=True)
    assert finished(tmp_path) == {}
    assert len(hidden(tmp_path)) == 1
    assert hidden(tmp_path)[0].endswith(f".inprogress.{CONTEXT.prefix()}0-1-a")
    commit(sink, staged)
    assert list(finished(tmp_path).values()) == ["a\n('b', 1)\n3\n"]
    assert hidden(tmp_path) == []


def test_file_sink_writes_no_file_for_empty_epoch(tmp_path: Path) -> None:
    writer = writer_of(rows(tmp_path))
    assert epoch(writer, 1, []) is None
    assert epoch(writer, 2, [], flush=True) is None
    assert list(tmp_path.iterdir()) == []


def test_file_sink_appends_to_file_until_checkpoint(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    writer = writer_of(sink)
    assert epoch(writer, 1, ["a"]) is None
    assert epoch(writer, 2, ["b"]) is None
    assert epoch(writer, 3, []) is None
    assert [part.length for part in travelled(writer.runtime_snapshot())] == [4]
    commit(sink, epoch(writer, 4, ["c"], flush=True), epoch(writer, 5, ["d"], flush=True))
    assert sorted(finished(tmp_path).values()) == ["a\nb\nc\n", "d\n"]


def test_file_sink_commit_is_idempotent(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    staged = epoch(writer_of(sink), 1, ["a", "b"], flush=True)
    commit(sink, staged)
    before = finished(tmp_path)
    commit(sink, staged)
    sink.create_committer(CommitContext("other", OPERATOR)).recover([(0, staged)], "job")
    assert finished(tmp_path) == before


def test_file_sink_commit_names_missing_file(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    staged = epoch(writer_of(sink), 1, ["a"], flush=True)
    (tmp_path / hidden(tmp_path)[0]).unlink()
    with pytest.raises(MillstreamError, match=staged.files[0].final):
        commit(sink, staged)


def test_file_sink_commit_names_truncated_file(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    staged = epoch(writer_of(sink), 1, ["abc"], flush=True)
    os.truncate(staged.files[0].hidden, 1)
    with pytest.raises(MillstreamError, match=staged.files[0].final):
        commit(sink, staged)
    assert finished(tmp_path) == {}


def test_file_sink_commit_truncates_unacknowledged_data(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    staged = epoch(writer_of(sink), 1, ["a"], flush=True)
    with open(staged.files[0].hidden, "a") as late:
        late.write("junk\n")
    commit(sink, staged)
    assert lines(tmp_path) == ["a"]


def test_file_sink_writer_takes_over_files_of_another_process(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    first, second = writer_of(sink), writer_of(sink)
    epoch(first, 1, ["a"])
    snapshot = travelled(first.runtime_snapshot())
    epoch(first, 2, ["not acknowledged"])
    second.restore(snapshot)
    staged = [epoch(second, 2, ["b"]), epoch(second, 3, ["c"], flush=True)]
    assert all(os.path.getsize(part.hidden) == part.length for s in staged for part in s.files)
    # The first writer is still alive.
    epoch(first, 3, ["late"])
    commit(sink, *staged)
    assert sorted(finished(tmp_path).values()) == ["a\n", "b\nc\n"]
    # The file of the aborted epoch was deleted and must not reappear.
    with pytest.raises(MillstreamError, match="no longer exists"):
        epoch(first, 4, ["later"])
    sink.create_committer(CONTEXT).recover([], "job")
    assert sorted(finished(tmp_path).values()) == ["a\n", "b\nc\n"]
    assert hidden(tmp_path) == []


def test_file_sink_finished_file_ignores_late_writes_to_open_file(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    first, second = writer_of(sink), writer_of(sink)
    epoch(first, 1, ["a"])
    snapshot = travelled(first.runtime_snapshot())
    with open(snapshot[0].hidden, "a") as held:
        second.restore(snapshot)
        commit(sink, epoch(second, 2, [], flush=True))
        held.write("late\n")
    assert lines(tmp_path) == ["a"]


def test_file_sink_writer_abandons_files_of_epoch_run_elsewhere(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    first, second = writer_of(sink), writer_of(sink)
    epoch(first, 1, ["a"])
    second.restore(travelled(first.runtime_snapshot()))
    staged = [epoch(second, 2, ["b"], flush=True)]
    # The snapshot of epoch 2 names no open file, which is valid, too.
    first.restore(None)
    staged.append(epoch(first, 3, ["c"], flush=True))
    commit(sink, *staged)
    assert lines(tmp_path) == ["a", "b", "c"]


def test_file_sink_aborted_epoch_leaves_no_data(tmp_path: Path) -> None:
    sink = rows(tmp_path, rolling_policy=RollingPolicy.default_rolling_policy(part_size=6))
    writer = writer_of(sink)
    epoch(writer, 1, ["a"])
    writer.begin(f"job-{OPERATOR}-0-2-a")
    with patch.object(file_writers, "LINES", 1):
        for value in ["broken", "off", "here"]:
            writer.write(value)
    commit(sink, epoch(writer, 2, ["b"], flush=True))
    assert lines(tmp_path) == ["a", "b"]


def test_file_sink_reports_acknowledged_data_lost_on_disk(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    first, second = writer_of(sink), writer_of(sink)
    epoch(first, 1, ["abc"])
    snapshot = travelled(first.runtime_snapshot())
    os.truncate(snapshot[0].hidden, 2)
    second.restore(snapshot)
    with pytest.raises(MillstreamError, match="2 bytes, but 4 were acknowledged"):
        epoch(second, 2, [], flush=True)


def test_file_sink_recover_deletes_staged_files_without_commit(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    counts = epoch(writer_of(sink), 1, ["a"], flush=True)
    epoch(writer_of(sink), 1, ["twin"], flush=True)
    epoch(writer_of(sink), 2, ["failed"])
    others = ["job-beef-0-1-a", f"jobs-{OPERATOR}-0-1-a", f"other-{OPERATOR}-0-1-a"]
    for name in others:
        writer = writer_of(sink)
        writer.begin(name)
        writer.write("somebody else's")
        writer.prepare_commit(True)
    (tmp_path / ".keep").touch()
    sink.create_committer(CommitContext("other", OPERATOR)).recover([(0, counts)], "job")
    assert lines(tmp_path) == ["a"]
    assert sorted(name.rpartition(".inprogress.")[2] for name in hidden(tmp_path)) == [".keep", *others[:2]]


def test_file_sink_recover_ignores_missing_base_path(tmp_path: Path) -> None:
    rows(tmp_path / "missing").create_committer(CONTEXT).recover([], "job")
    assert not (tmp_path / "missing").exists()


def test_file_sink_commit_resumes_after_crash_between_renames(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    staged = [epoch(writer_of(sink), 1, [name], flush=True) for name in "abc"]
    with pytest.raises(Crash), crashing(2):
        commit(sink, *staged)
    assert lines(tmp_path) == ["a", "b"]
    commit(sink, *staged)
    assert lines(tmp_path) == ["a", "b", "c"]


def test_file_sink_killed_process_leaves_no_visible_files(tmp_path: Path) -> None:
    script = f"""
import os, signal
from tests.support.chaos import runtime_context
from {__name__} import *
writer = rows(Path({str(tmp_path)!r})).create_writer(runtime_context())
epoch(writer, 1, ["a"] * 100_000)
writer.begin("job-{OPERATOR}-0-2-a")
for i in range(100_000):
    writer.write("b" * 10)
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = os.pathsep.join(sys.path)
    died = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path})
    assert died.returncode == -signal.SIGKILL
    assert finished(tmp_path) == {}
    assert len(hidden(tmp_path)) == 1
    rows(tmp_path).create_committer(CONTEXT).recover([], "job")
    assert hidden(tmp_path) == []


# --- rolling


def test_file_sink_rolls_file_at_part_size(tmp_path: Path) -> None:
    sink = rows(tmp_path, Doubled(), rolling_policy=RollingPolicy.default_rolling_policy(part_size=10))
    commit(sink, epoch(writer_of(sink), 1, ["1234", "56", "7"]))
    assert sorted(finished(tmp_path).values()) == ["123412345656"]
    assert len(hidden(tmp_path)) == 1


def test_file_sink_rolls_text_file_at_part_size(tmp_path: Path) -> None:
    sink = rows(tmp_path, rolling_policy=RollingPolicy.default_rolling_policy(part_size=10_000))
    values = [f"{i:09}" for i in range(5000)]
    commit(sink, epoch(writer_of(sink), 1, values, flush=True))
    assert lines(tmp_path) == values
    sizes = sorted(len(text) for text in finished(tmp_path).values())
    assert 4 <= len(sizes) <= 5
    assert sizes[-1] < 10_000 + file_writers.LINES * 10


def test_file_sink_rolls_file_after_rollover_interval(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    sink = rows(tmp_path, bucket_check_interval=1)
    writer = writer_of(sink, clock)
    commit(sink, epoch(writer, 1, ["a"]))
    clock.millis += 59_000
    commit(sink, epoch(writer, 2, ["b"]))
    assert lines(tmp_path) == []
    clock.millis += 1_000
    commit(sink, epoch(writer, 3, ["c"]))
    assert lines(tmp_path) == ["a", "b", "c"]
    assert writer.runtime_snapshot() is None


def test_file_sink_rolls_inactive_file(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    policy = RollingPolicy.default_rolling_policy(inactivity_interval=100)
    sink = rows(tmp_path, bucket_check_interval=1, rolling_policy=policy)
    writer = writer_of(sink, clock)
    epoch(writer, 1, ["a"])
    clock.millis += 100
    commit(sink, epoch(writer, 2, []))
    assert lines(tmp_path) == ["a"]


def test_file_sink_checks_file_age_at_bucket_check_interval(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    policy = RollingPolicy.default_rolling_policy(rollover_interval=10)
    sink = rows(tmp_path, bucket_check_interval=1000, rolling_policy=policy)
    writer = writer_of(sink, clock)
    epoch(writer, 1, ["a"])
    clock.millis += 900
    assert epoch(writer, 2, []) is None
    clock.millis += 100
    assert epoch(writer, 3, []) is not None


def test_file_sink_checkpoint_policy_rolls_on_checkpoint_only(tmp_path: Path) -> None:
    clock = ManualClock()
    sink = rows(tmp_path, bucket_check_interval=1, rolling_policy=RollingPolicy.on_checkpoint_rolling_policy())
    writer = writer_of(sink, clock)
    for number in range(5):
        clock.millis += 1_000_000
        assert epoch(writer, number, ["x" * 300_000]) is None
    commit(sink, epoch(writer, 6, [], flush=True))
    assert [len(text) for text in finished(tmp_path).values()] == [5 * 300_001]


# --- buckets and names


class ByLetter(BucketAssigner):
    """Assigns buckets by first letter and clock."""

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        assert context.timestamp() is None
        assert context.current_watermark() == MIN_WATERMARK
        return f"letter={element[0]}/at={context.current_processing_time()}"


def test_file_sink_assigns_bucket_to_each_record(tmp_path: Path) -> None:
    clock = ManualClock(7)
    sink = rows(tmp_path, bucket_assigner=ByLetter())
    writer = writer_of(sink, clock)
    staged = [epoch(writer, 1, ["a1", "b1", "a2"])]
    clock.millis = 8
    staged.append(epoch(writer, 2, ["b2", "a3"], flush=True))
    commit(sink, *staged)
    assert {os.path.dirname(path): text for path, text in finished(tmp_path).items()} == {
        "letter=a/at=7": "a1\na2\n",
        "letter=b/at=7": "b1\n",
        "letter=b/at=8": "b2\n",
        "letter=a/at=8": "a3\n",
    }


class Escaping(BucketAssigner):
    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return str(element)


@pytest.mark.parametrize("bucket", ["/etc", "..", "a/../../b"])
def test_file_sink_rejects_bucket_outside_base_path(tmp_path: Path, bucket: str) -> None:
    writer = writer_of(rows(tmp_path / "base", bucket_assigner=Escaping()))
    with pytest.raises(MillstreamError, match="not a directory below"):
        epoch(writer, 1, [bucket], flush=True)


def test_file_sink_uses_hourly_buckets_by_default(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(tmp_path, UTF8).build()
    writer = writer_of(sink, ManualClock(1_700_000_000_000))
    commit(sink, epoch(writer, 1, ["a"], flush=True))
    (path,) = finished(tmp_path)
    assert len(os.path.dirname(path)) == len("2023-11-14--22")
    assert os.path.dirname(path).startswith("2023-11-1")


@pytest.mark.parametrize(
    ("pattern", "zone", "bucket"),
    [
        ("yyyy-MM-dd--HH", "UTC", "2023-11-14--22"),
        ("yyyy-MM-dd--HH", "Z", "2023-11-14--22"),
        ("yyyy-MM-dd--HH", "Asia/Tokyo", "2023-11-15--07"),
        ("yyyy-MM-dd HH:mm", "GMT-08:00", "2023-11-14 14:13"),
        ("d.M.yy H-m-s", "+05:30", "15.11.23 3-43-20"),
        ("'year='yyyy/'month='MM", "UTC", "year=2023/month=11"),
        ("yyyy'T'HHmmss", "UTC+1", "2023T231320"),
        ("HH 'o''clock' ''y''", "UTC", "22 o'clock '2023'"),
    ],
)
def test_date_time_bucket_assigner_formats_pattern_in_zone(pattern: str, zone: str, bucket: str) -> None:
    assigner = BucketAssigner.date_time_bucket_assigner(pattern, zone)
    assert assigner.get_bucket_id(None, BucketContext(lambda: 1_700_000_000_999)) == bucket


@pytest.mark.parametrize("pattern", ["yyyy-QQ", "MMM", "EEE", "yyyy'", "HH[mm]", "{HH}", "yyyyy"])
def test_date_time_pattern_rejects_unsupported_letters(pattern: str) -> None:
    with pytest.raises(InvalidProgramError, match="is not supported"):
        python_template(pattern)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "GMT+25", "", "../x"])
def test_date_time_bucket_assigner_rejects_unknown_zone(zone: str) -> None:
    with pytest.raises(InvalidProgramError, match="no time zone"):
        BucketAssigner.date_time_bucket_assigner("yyyy", zone)


def test_date_time_bucket_follows_clock(tmp_path: Path) -> None:
    clock = ManualClock(0)
    assigner = BucketAssigner.date_time_bucket_assigner("HH", "UTC")
    sink = rows(tmp_path, bucket_assigner=assigner)
    writer = writer_of(sink, clock)
    staged = [epoch(writer, 1, ["a"])]
    clock.millis = 3_600_000
    staged.append(epoch(writer, 2, ["b"], flush=True))
    commit(sink, *staged)
    assert {os.path.dirname(path): text for path, text in finished(tmp_path).items()} == {"00": "a\n", "01": "b\n"}


def test_file_sink_part_files_use_prefix_and_suffix(tmp_path: Path) -> None:
    config = OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".txt").build()
    assert (config.get_part_prefix(), config.get_part_suffix()) == ("words", ".txt")
    sink = rows(tmp_path, output_file_config=config)
    writer = writer_of(sink)
    commit(sink, epoch(writer, 1, ["a"], flush=True), epoch(writer, 2, ["b"], flush=True))
    first, second = sorted(finished(tmp_path))
    assert first.startswith("words-") and first.endswith("-0.txt")
    assert second == first.replace("-0.txt", "-1.txt")


# --- encoders and paths


class Doubled:
    """An encoder that is only an object with the method."""

    def encode(self, value: Any, stream: BinaryIO) -> None:
        stream.write(value.encode())
        stream.write(value.encode())


def test_file_sink_accepts_encoder_of_user(tmp_path: Path) -> None:
    sink = rows(tmp_path, Doubled())
    assert isinstance(writer_of(sink), RowWriter)
    commit(sink, epoch(writer_of(sink), 1, ["ab", "c"], flush=True))
    assert list(finished(tmp_path).values()) == ["ababcc"]


def test_file_sink_writes_charset_of_encoder(tmp_path: Path) -> None:
    latin = rows(tmp_path / "latin", Encoder.simple_string_encoder("ISO-8859-1"))
    utf8 = rows(tmp_path / "utf8")
    assert isinstance(writer_of(utf8), TextWriter)
    for sink in (latin, utf8):
        commit(sink, epoch(writer_of(sink), 1, ["höher", 1], flush=True))
    assert [p.read_bytes() for p in (tmp_path / "latin").iterdir()] == [b"h\xf6her\n1\n"]
    assert [p.read_bytes() for p in (tmp_path / "utf8").iterdir()] == [b"h\xc3\xb6her\n1\n"]


@pytest.mark.parametrize("charset", ["UTF-9", "UTF-16", "hex"])
def test_string_encoder_rejects_unsupported_charset(charset: str) -> None:
    with pytest.raises(InvalidProgramError, match=charset):
        Encoder.simple_string_encoder(charset)


def test_file_sink_accepts_file_url(tmp_path: Path) -> None:
    base = tmp_path / "with space"
    for number, url in enumerate([f"file://{tmp_path}/with%20space", f"file:{tmp_path}/with space"]):
        sink = FileSink.for_row_format(url, UTF8).with_bucket_assigner(BASE_PATH).build()
        commit(sink, epoch(writer_of(sink), 1, [number], flush=True))
    assert lines(base) == ["0", "1"]


@pytest.mark.parametrize(
    ("base", "error_text"),
    [
        ("s3://bucket/x", "s3:// is not supported yet"),
        ("hdfs://n/x", "hdfs://"),
        ("file://host/x", "host"),
        ("", "empty"),
    ],
)
def test_file_sink_rejects_unsupported_base_path(base: str, error_text: str) -> None:
    with pytest.raises(InvalidProgramError, match=error_text):
        FileSink.for_row_format(base, UTF8)


def test_file_sink_builder_rejects_invalid_arguments(tmp_path: Path) -> None:
    base = str(tmp_path)
    with pytest.raises(InvalidProgramError, match="takes an Encoder"):
        FileSink.for_row_format(base, "UTF-8")  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="takes a BulkWriterFactory"):
        FileSink.for_bulk_format(base, UTF8)  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="above 0"):
        FileSink.for_row_format(base, UTF8).with_bucket_check_interval(0)
    with pytest.raises(InvalidProgramError, match="takes a BucketAssigner"):
        FileSink.for_row_format(base, UTF8).with_bucket_assigner("yyyy")  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="on_checkpoint_rolling_policy"):
        FileSink.for_bulk_format(base, Counted()).with_rolling_policy(RollingPolicy.default_rolling_policy())
    with pytest.raises(InvalidProgramError, match="part_size must be above 0"):
        RollingPolicy.default_rolling_policy(part_size=0)
    with pytest.raises(InvalidProgramError, match="slash"):
        OutputFileConfig.builder().with_part_suffix("/x").build()
    with pytest.raises(InvalidProgramError, match="readers skip such files"):
        OutputFileConfig.builder().with_part_prefix(".x").build()


# --- bulk formats


class Counted(BulkWriterFactory):
    """A bulk format that is invalid without its last line, the number of records."""

    def open(self, file: BinaryIO) -> Any:
        return _CountedWriter(file)


class _CountedWriter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._count = 0

    def add_element(self, value: Any) -> None:
        self._file.write(f"{value}\n".encode())
        self._count += 1

    def finish(self) -> None:
        self._file.write(f"total {self._count}\n".encode())


def bulk(base: Path, assigner: BucketAssigner = BASE_PATH) -> FileSink:
    policy = RollingPolicy.on_checkpoint_rolling_policy()
    builder = FileSink.for_bulk_format(str(base), Counted()).with_bucket_assigner(assigner)
    return builder.with_rolling_policy(policy).build()


def counted_lines(base: Path) -> list[str]:
    lines: list[str] = []
    for text in finished(base).values():
        *values, total = text.splitlines()
        assert total == f"total {len(values)}"
        lines += values
    return sorted(lines)


def test_file_sink_bulk_format_writes_one_file_per_checkpoint(tmp_path: Path) -> None:
    sink = bulk(tmp_path)
    writer = writer_of(sink)
    staged = [epoch(writer, 1, [1, 2]), epoch(writer, 2, []), epoch(writer, 3, [3], flush=True)]
    assert staged[:2] == [None, None]
    commit(sink, *staged, epoch(writer, 4, [4], flush=True))
    assert sorted(finished(tmp_path).values()) == ["1\n2\n3\ntotal 3\n", "4\ntotal 1\n"]
    assert hidden(tmp_path) == []


def test_file_sink_bulk_format_spills_records_per_bucket(tmp_path: Path) -> None:
    sink = bulk(tmp_path, ByLetter())
    with patch.object(writer, "BATCH", 7):
        values = [f"{'ab'[i % 2]}{i:03}" for i in range(100)]
        commit(sink, epoch(writer_of(sink), 1, values, flush=True))
    assert counted_lines(tmp_path) == sorted(values)
    assert len(finished(tmp_path)) == 2
    assert hidden(tmp_path) == []


def test_file_sink_bulk_file_is_finished_by_another_process(tmp_path: Path) -> None:
    sink = bulk(tmp_path)
    first, second, third = writer_of(sink), writer_of(sink), writer_of(sink)
    epoch(first, 1, ["a"])
    second.restore(travelled(first.runtime_snapshot()))
    epoch(first, 2, ["late"])
    epoch(second, 2, ["b"])
    third.restore(travelled(second.runtime_snapshot()))
    staged = epoch(third, 3, ["c"], flush=True)
    epoch(first, 3, ["later"])
    commit(sink, staged)
    assert list(finished(tmp_path).values()) == ["a\nb\nc\ntotal 3\n"]
    assert hidden(tmp_path) == []


def test_file_sink_reports_record_that_bulk_writer_rejects(tmp_path: Path) -> None:
    class Refusing(_CountedWriter):
        def add_element(self, value: Any) -> None:
            raise TypeError("no")

    class Factory:
        def open(self, file: BinaryIO) -> Any:
            return Refusing(file)

    sink = FileSink.for_bulk_format(tmp_path, Factory()).build()  # type: ignore[arg-type]
    with pytest.raises(MillstreamError, match=r"record \('x', 1\) could not be written: TypeError"):
        epoch(writer_of(sink), 1, [("x", 1)], flush=True)


# --- randomized


@contextmanager
def crashing(steps: int) -> Iterator[None]:
    """Crash the driver after a number of renames."""
    left = steps
    rename = os.rename

    def dying(source: str, target: str) -> None:
        nonlocal left
        if left == 0:
            raise Crash
        left -= 1
        rename(source, target)

    with patch.object(os, "rename", dying):
        yield


class ByDigit(BucketAssigner):
    def get_bucket_id(self, element: Any, context: BucketContext) -> Any:
        return element % 3


def random_sink(base: Path, dice: random.Random) -> tuple[FileSink, bool]:
    assigner = dice.choice([BASE_PATH, ByDigit(), BucketAssigner.date_time_bucket_assigner("HH-mm", "UTC")])
    if dice.random() < 0.3:
        return bulk(base, assigner), True
    policies = [RollingPolicy.default_rolling_policy(12, 500, 300), RollingPolicy.on_checkpoint_rolling_policy()]
    encoder = dice.choice([UTF8, Encoder.simple_string_encoder("ascii")])
    options = {"bucket_assigner": assigner, "rolling_policy": dice.choice(policies), "bucket_check_interval": 50}
    return rows(base, encoder, **options), False


class JumpingClock:
    """A clock that jumps at random on every read."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._now = 0

    def __call__(self) -> int:
        self._now += self._dice.choice([0, 1, 100, 20_000])
        return self._now


@contextmanager
def hurried(dice: random.Random) -> Iterator[Path]:
    """Yield a directory, with small buffers and a jumping clock."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(file_sink, "wall_clock", JumpingClock(dice)),
        # The disk does not fail here, and fsync would leave time for fewer runs.
        patch.object(os, "fsync"),
        patch.object(file_writers, "LINES", 2),
        patch.object(file_writers, "BUFFER_BYTES", 16),
        patch.object(writer, "BATCH", 3),
    ):
        yield Path(folder)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_file_sink_writes_each_record_once_under_random_failures(seed: int) -> None:
    dice = random.Random(seed)
    with hurried(dice) as folder:
        base = folder
        sink, is_bulk = random_sink(base, dice)
        shares = [list(range(1000 * i, 1000 * i + dice.randrange(5, 60))) for i in range(dice.choice([1, 2, 3]))]
        read = counted_lines if is_bulk else lines
        job = ChaoticJob(sink, shares, dice, lambda: Counter(map(int, read(base))), crashing)
        job.run()
        assert hidden(base) == []


def test_file_sink_recover_reports_file_lost_before_commit(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    committer, writer = sink.create_committer(CONTEXT), writer_of(sink)
    committer.commit([(0, epoch(writer, 1, ["a"], flush=True))])
    staged = epoch(writer, 2, ["b"], flush=True)
    (tmp_path / hidden(tmp_path)[0]).unlink()
    with pytest.raises(LostOutputError, match=staged.files[0].final):
        committer.recover([(0, staged)], "job")


def test_file_sink_recover_accepts_committed_file_that_was_moved(tmp_path: Path) -> None:
    sink = rows(tmp_path)
    committer = sink.create_committer(CONTEXT)
    staged = epoch(writer_of(sink), 1, ["a"], flush=True)
    committer.commit([(0, staged)])
    os.unlink(staged.files[0].final)
    committer.recover([(0, staged)], "job")
    # The state of files of another job is unknown.
    sink.create_committer(CommitContext("other", OPERATOR)).recover([(0, staged)], "job")


def test_file_sink_names_in_progress_file_deleted_while_written(tmp_path: Path) -> None:
    writer = writer_of(rows(tmp_path))
    epoch(writer, 1, ["a"])
    shutil.rmtree(tmp_path)
    with pytest.raises(
        MillstreamError, match=f"FileSink: {tmp_path}/.*inprogress.* deleted or moved under the running"
    ):
        epoch(writer, 2, ["b"])


class Deleting(DriverSink):
    """Deletes a directory when the output of an epoch is committed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(lambda values: shutil.rmtree(directory))


def test_file_sink_fails_job_without_restart_after_directory_deleted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    env = LocalEnvironment(restarts=10)
    numbers = env.from_collection(range(10))
    numbers.sink_to(Deleting(out))
    numbers.sink_to(FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build())
    with pytest.raises(LostOutputError, match=f"FileSink: {out}/.* deleted or moved under the running job"):
        env.execute()
