"""FileSource: real files, read in random epochs by any number of subtasks, stopped and restored."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.checkpoint.snapshot import Snapshot
from millstream.common import Duration, Types, WatermarkStrategy
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.files.source import FileEnumerator
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import (
    FileEnumeratorProvider,
    FileSource,
    FileSplitAssignerProvider,
    StreamFormat,
    StreamingFileSink,
)
from millstream.datastream.functions import ProcessFunction
from millstream.formats import file_format as file_formats
from millstream.formats import file_format as lines
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FileFormat, FileSplitRange
from millstream.testing import CollectSink
from millstream.testing.clock import ManualClock
from millstream.testing.local_job import LocalJob

Env = StreamExecutionEnvironment
TEXT = StreamFormat.text_line_format()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split small files like large ones."""
    monkeypatch.setattr(file_formats, "MIN_SPLIT_BYTES", 50)
    monkeypatch.setattr(file_formats, "MAX_SPLIT_BYTES", 200)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 37)


def job(
    source: FileSource,
    parallelism: int,
    sink: CollectSink,
    sizes: Callable[[], int] | None = None,
    snapshot: Snapshot | None = None,
    storage: Any = None,
    clock: ManualClock | None = None,
) -> LocalJob:
    env = Env.get_execution_environment().set_parallelism(parallelism)
    env.from_source(source).uid("files").sink_to(sink).uid("sink")
    return LocalJob(env, clock, sizes, snapshot, storage)


def read(source: FileSource, parallelism: int = 1, sizes: Callable[[], int] | None = None) -> list[Any]:
    sink = CollectSink()
    job(source, parallelism, sink, sizes).run()
    return list(sink.results())


def files(*paths: Path, file_format: StreamFormat = TEXT) -> FileSource:
    return FileSource.for_record_stream_format(file_format, *map(str, paths)).build()


def some_files(directory: Path, rng: random.Random) -> list[str]:
    """Write files with unusual line lengths; return all their lines."""
    expected = []
    for i in range(rng.randint(1, 6)):
        words = ["", "x", "é" * rng.randint(1, 30), "\U0001f600" * 9, "long " * rng.randint(1, 200), f"{i}", "a b"]
        content = [rng.choice(words) for _ in range(rng.randint(0, 40))]
        end = rng.choice(["\n", "\r\n"])
        text = end.join(content) + (end if rng.random() < 0.5 and content else "")
        path = directory / rng.choice(["", "sub/", "sub/deeper/"]) / f"file-{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        expected += text.split(end)[: -1 if text.endswith(end) or not text else None]
    return expected


@pytest.mark.parametrize("seed", range(30))
def test_file_source_reads_every_line_once_across_restarts(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    expected = some_files(tmp_path, rng)
    source, read_lines = files(tmp_path), []
    snapshot, storage = None, None
    while True:
        sink = CollectSink()
        local = job(source, rng.randint(1, 4), sink, lambda: rng.choice([1, 2, 10, 1000]), snapshot, storage)
        for _ in range(rng.randint(1, 8)):
            if not local.is_finished:
                local.run_epoch()
        read_lines += sink.results()
        if local.is_finished:
            break
        snapshot, storage = local.snapshot(), local.storage
    assert Counter(read_lines) == Counter(expected)


@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\r", b"")), max_size=20),
    st.lists(st.integers(0, 250), max_size=8),
    st.sampled_from([1, 2, 3, 7, 64, 1 << 18]),
)
@settings(max_examples=300, deadline=None)
def test_file_source_splits_reassemble_the_file(parts: list[bytes], split_offsets: list[int], block: int) -> None:
    import io

    data = b"\n".join(parts)
    edges = sorted({0, len(data), *(c for c in split_offsets if c < len(data))})
    before, lines.BLOCK_BYTES = lines.BLOCK_BYTES, block
    try:
        blocks = [
            chunk
            for start, end in pairwise(edges)
            for chunk in lines.line_blocks(io.BytesIO(data + b"grown"), start, end, len(data))
        ]
    finally:
        lines.BLOCK_BYTES = before
    assert b"".join(b for _, b in blocks) == data
    # Every block has its offset, which is the start of a line.
    for offset, piece in blocks:
        assert data[offset : offset + len(piece)] == piece
        assert offset == 0 or data[offset - 1 : offset] == b"\n"


def test_file_source_single_subtask_keeps_file_order(tmp_path: Path) -> None:
    expected = [f"line {i}" for i in range(300)]
    (tmp_path / "a").write_text("\n".join(expected))
    assert read(files(tmp_path), 1, lambda: 3) == expected


@pytest.mark.parametrize("budget", [1, 100, 1 << 30])
def test_file_source_reads_a_huge_line_once(tmp_path: Path, budget: int) -> None:
    huge = "x" * 100_000
    (tmp_path / "a").write_text(f"first\n{huge}\nlast")
    assert Counter(read(files(tmp_path), 3, lambda: budget)) == Counter(["first", huge, "last"])


def test_file_source_splits_large_files_between_subtasks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {i:4}\n" for i in range(400)))
    enumerator = files(tmp_path).create_enumerator(4)
    assignment = enumerator.poll(1, 0.0)
    assert sorted(assignment.split_ranges) == [0, 1, 2, 3] and assignment.limited
    # Splits are assigned from the start of the file, so that event time advances evenly.
    assert max(s.end for split_ranges in assignment.split_ranges.values() for s in split_ranges) < 1000
    whole = (
        FileSource.for_record_stream_format(TEXT, str(tmp_path))
        .set_file_enumerator(FileEnumeratorProvider.default_non_splittable_file_enumerator())
        .set_split_assigner(FileSplitAssignerProvider.locality_aware_split_assigner())
        .build()
    )
    assert list(whole.create_enumerator(4).poll(1 << 30, 0.0).split_ranges) == [0]


def test_file_source_epoch_reads_about_its_budget(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{i:063}\n" for i in range(1000)))
    enumerator = files(tmp_path).create_enumerator(1)
    assignment = enumerator.poll(100, 0.0)
    assert sum(s.end - s.start for s in assignment.split_ranges[0]) == 6400 and assignment.limited
    rest = enumerator.poll(1 << 30, 0.0)
    assert not rest.limited and enumerator.is_finished()


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".deflate", zlib.compress)],
)
def test_file_source_does_not_split_compressed_files(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    expected = [f"line {i} é" for i in range(500)]
    (tmp_path / f"a.txt{ending}").write_bytes(pack("\n".join(expected).encode()))
    (tmp_path / "plain").write_text("plain")
    assert Counter(read(files(tmp_path), 3, lambda: 5)) == Counter([*expected, "plain"])


def test_file_source_reads_zstd(tmp_path: Path) -> None:
    import pyarrow as pa

    data = b"a\nb\n" * 1000
    with pa.CompressedOutputStream(str(tmp_path / "a.zst"), "zstd") as out:
        out.write(data)
    assert read(files(tmp_path)) == ["a", "b"] * 1000


def test_file_source_names_a_damaged_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"line\n" * 10_000)[:-20])
    with pytest.raises(MillstreamError, match="a.gz is damaged or incomplete"):
        read(files(tmp_path))


def test_file_source_charsets(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("für\nöre\r\nend".encode("latin-1"))
    latin = StreamFormat.text_line_format("ISO-8859-1")
    assert read(files(tmp_path, file_format=latin), 2, lambda: 1) == ["für", "öre", "end"]
    # As in Flink, invalid UTF-8 is replaced.
    assert read(files(tmp_path)) == ["f\ufffdr", "\ufffdre", "end"]
    (tmp_path / "a").write_bytes("à\r\n\u0a0a\nend".encode("utf-16"))
    assert read(files(tmp_path, file_format=StreamFormat.text_line_format("UTF-16")), 2) == ["à", "\u0a0a", "end"]
    with pytest.raises(InvalidProgramError, match="no charset"):
        StreamFormat.text_line_format("klingon")


def test_file_source_skips_hidden_and_empty_files(tmp_path: Path) -> None:
    for name in (".hidden", "_SUCCESS", "a", ".dir/b", "_dir/b"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (tmp_path / "empty").touch()
    assert read(files(tmp_path)) == ["a"]
    assert read(files(tmp_path / "empty")) == []
    # A hidden file named explicitly is read.
    assert read(files(tmp_path / "_SUCCESS")) == ["_SUCCESS"]


def test_file_source_path_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").write_text("x")
    monkeypatch.chdir(tmp_path)
    for path in ("a b", f"file://{tmp_path}/a%20b", str(tmp_path)):
        assert read(FileSource.for_record_stream_format(TEXT, path).build()) == ["x"]
    with pytest.raises(InvalidProgramError, match=f"no file or directory {tmp_path}/missing"):
        read(files(tmp_path / "missing"))
    with pytest.raises(InvalidProgramError, match="at least one path"):
        FileSource.for_record_stream_format(TEXT)
    with pytest.raises(InvalidProgramError, match="takes a StreamFormat"):
        FileSource.for_record_stream_format(str(tmp_path), str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="takes a BulkFormat"):
        FileSource.for_bulk_file_format(TEXT, str(tmp_path))  # type: ignore[arg-type]


def test_file_source_reads_fsspec_paths() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({"/in/a": b"1\n2\n3\n" * 50, "/in/sub/b": b"4", "/in/_no": b"5", "/in/c.gz": gzip.compress(b"6")})
    try:
        source = FileSource.for_record_stream_format(TEXT, "memory://in").build()
        assert Counter(read(source, 2, lambda: 1)) == Counter(["1", "2", "3"] * 50 + ["4", "6"])
        with pytest.raises(InvalidProgramError, match="no file or directory memory://nowhere"):
            read(FileSource.for_record_stream_format(TEXT, "memory://nowhere").build())
        with pytest.raises(InvalidProgramError, match="needs a package"):
            read(FileSource.for_record_stream_format(TEXT, "klingon://in").build())
    finally:
        memory.rm("/in", recursive=True)


# --- monitored directories


def watched(directory: Path) -> FileSource:
    builder = FileSource.for_record_stream_format(TEXT, str(directory))
    return builder.monitor_continuously(Duration.of_seconds(1)).build()


def put(directory: Path, name: str, text: str, modified: int = 0) -> None:
    """Move a file into the directory."""
    path = directory / f".{name}"
    path.write_text(text)
    if modified:
        os.utime(path, (modified, modified))
    path.rename(directory / name)


def test_file_source_monitor_reads_new_files_once(tmp_path: Path) -> None:
    clock, sink = ManualClock(), CollectSink()
    source = watched(tmp_path)
    assert not source.is_bounded
    put(tmp_path, "a", "1\n2")
    local = job(source, 2, sink, clock=clock)
    local.run_epoch()
    put(tmp_path, "c", "3", modified=100)
    put(tmp_path, "b", "4", modified=200)
    local.run_epoch()
    assert sink.results() == ["1", "2"]
    clock.millis = 1000
    local.run_epoch()
    # Ordered by modification time, not by name.
    assert sorted(sink.results()) == ["1", "2", "3", "4"]
    (tmp_path / "a").write_text("changed")
    clock.millis = 2000
    local.run_epoch()
    assert len(sink.results()) == 4 and not local.is_finished

    later = CollectSink()
    put(tmp_path, "d", "5")
    again = job(source, 3, later, snapshot=local.snapshot(), storage=local.storage, clock=clock)
    again.run_epoch()
    assert later.results() == ["5"]


@pytest.mark.parametrize("seed", range(20))
def test_file_source_monitor_reads_every_line_once_across_restarts(tmp_path: Path, seed: int) -> None:
    rng, clock = random.Random(seed), ManualClock()
    source, read_lines, expected = watched(tmp_path), [], []
    snapshot, storage = None, None
    for run in range(4):
        sink = CollectSink()
        local = job(source, rng.randint(1, 4), sink, lambda: rng.choice([1, 3, 100]), snapshot, storage, clock)
        for step in range(rng.randint(1, 6)):
            content = [f"{run}-{step}-{i}" for i in range(rng.randint(0, 30))]
            put(tmp_path, f"{rng.random()}", "\n".join(content))
            expected += content
            clock.millis += rng.choice([0, 500, 1000])
            local.run_epoch()
        if run == 3:
            clock.millis += 1000
            for _ in range(1000):
                local.run_epoch()
        read_lines += sink.results()
        snapshot, storage = local.snapshot(), local.storage
    assert Counter(read_lines) == Counter(expected)


def test_file_source_monitor_memory_is_bounded_by_the_directory(tmp_path: Path) -> None:
    enumerator = watched(tmp_path).create_enumerator(1)
    for i in range(200):
        put(tmp_path, f"file-{i}", "x")
        assert len(enumerator.poll(100, i * 10.0).split_ranges) == 1
        (tmp_path / f"file-{i}").unlink()
    assert isinstance(enumerator, FileEnumerator)
    assert len(enumerator.snapshot().known) <= 2 * 8
    for i in range(1000):
        put(tmp_path, f"other-{i}", "x")
    enumerator.poll(1 << 30, 1e6)
    # Eight bytes per file.
    assert len(enumerator.snapshot().known) == 8000
    assert enumerator.poll(1 << 30, 2e6).split_ranges == {}


def test_file_source_monitor_next_poll(tmp_path: Path) -> None:
    enumerator = watched(tmp_path).create_enumerator(1)
    assert enumerator.poll(10, 5.0).split_ranges == {} and not enumerator.is_finished()
    assert enumerator.next_poll(5.1) == 6.0
    put(tmp_path, "a", "x\n" * 1000)
    assert enumerator.poll(10, 5.9).split_ranges == {}
    assert enumerator.poll(1, 6.0).limited and enumerator.next_poll(6.1) == 6.1


def test_file_source_monitor_retries_when_listing_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    put(directory, "a", "x")
    enumerator = watched(directory).create_enumerator(1)
    assert enumerator.poll(10, 0.0).split_ranges
    directory.rename(tmp_path / "away")
    assert not enumerator.poll(10, 1.0).split_ranges and "listing files failed" in caplog.text
    (tmp_path / "away").rename(directory)
    put(directory, "b", "y")
    assert len(enumerator.poll(10, 2.0).split_ranges[0]) == 1


# --- files that change in unsupported ways


def test_file_source_reads_a_growing_file_to_its_listed_size(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\ntw")
    enumerator = files(tmp_path).create_enumerator(1)
    path.write_text("one\ntwo\nthree\n")
    split_ranges = enumerator.poll(1 << 30, 0.0).split_ranges[0]
    assert [r for s in split_ranges for b in TEXT.read(FileAccess({}), s) for r in b] == ["one", "tw"]


def test_file_source_rejects_a_file_that_shrinks_or_vanishes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\ntwo\n")
    split_range = FileSplitRange(0, str(path), 0, 8, 8, True)
    path.write_text("one\n")
    with pytest.raises(MillstreamError, match="it has 4 bytes, but had 8 when it was listed"):
        list(TEXT.read(FileAccess({}), split_range))
    path.unlink()
    with pytest.raises(MillstreamError, match="was deleted before it was read"):
        list(TEXT.read(FileAccess({}), split_range))


# --- watermarks


class Marks(ProcessFunction):
    """Emits the watermark with each record."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timer_service().current_watermark()


def test_file_source_has_watermarks_per_split(tmp_path: Path) -> None:
    for name, times in (("a", range(50)), ("b", range(10, 60)), ("c", range(100, 150))):
        (tmp_path / name).write_text("".join(f"{t}\n" for t in times))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: int(v))
    env, sink = Env.get_execution_environment().set_parallelism(1), CollectSink()
    env.from_source(files(tmp_path), strategy).process(Marks()).sink_to(sink)
    LocalJob(env, epoch_sizes=lambda: 1).run()
    marks = [mark for _, mark in sink.results()]
    assert marks == sorted(marks)
    # Earlier files do not hold back the watermark of the last one, whose records are not late.
    assert marks[-1] > 100 and all(mark < int(value) for value, mark in sink.results() if int(value) > 60)


def test_file_source_rescaling_keeps_watermarks(tmp_path: Path) -> None:
    for i in range(6):
        (tmp_path / f"{i}").write_text("".join(f"{t}\n" for t in range(i * 10, i * 10 + 40)))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: int(v))
    snapshot, storage = None, None
    records: list[Any] = []
    for parallelism in (2, 3, 1, 4, 2, 1):
        env, sink = Env.get_execution_environment().set_parallelism(parallelism), CollectSink()
        stream = env.from_source(files(tmp_path), strategy, type_info=None).uid("files")
        stream.process(Marks()).uid("marks").sink_to(sink).uid("sink")
        local = LocalJob(env, None, lambda: 1, snapshot, storage)
        for _ in range(3 if parallelism != 1 or not records else 1000):
            if not local.is_finished:
                local.run_epoch()
        records += sink.results()
        snapshot, storage = local.snapshot(), local.storage
        if local.is_finished:
            break
    assert Counter(int(v) for v, _ in records) == Counter(t for i in range(6) for t in range(i * 10, i * 10 + 40))


# --- deprecated names


def test_read_text_file_reads_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\n")
    env, sink = Env.get_execution_environment().set_parallelism(1), CollectSink()
    with pytest.warns(DeprecationWarning, match="use from_source"):
        stream = env.read_text_file(str(tmp_path))
    assert stream.get_type() == Types.STRING()
    stream.sink_to(sink)
    LocalJob(env).run()
    assert sink.results() == ["x", "y"]


def test_streaming_file_sink_is_a_deprecated_file_sink(tmp_path: Path) -> None:
    from millstream.common import Encoder

    with pytest.warns(DeprecationWarning, match="use FileSink"):
        StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()


def test_file_source_accepts_a_custom_format(tmp_path: Path) -> None:
    class Bytes(StreamFormat):
        def read_part(self, part: Any) -> Any:
            yield list(part.file.read())

    assert issubclass(Bytes, FileFormat)
    (tmp_path / "a").write_bytes(b"\x01\x02")
    assert read(files(tmp_path, file_format=Bytes()), 2) == [1, 2]
