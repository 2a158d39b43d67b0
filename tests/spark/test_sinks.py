"""Sinks that commit with checkpoints, in jobs that fail."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from millstream.checkpoint.store import list_checkpoints
from millstream.common import Configuration, Encoder, Types
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.connectors.files.sink import CompactingCommitter
from millstream.connectors.jdbc.connection import connector
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    BulkWriterFactory,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from millstream.datastream.connectors.sql import SqlSink
from millstream.testing import FailingSink
from tests.spark.test_recovery import KEYS, FailingOnce, checkpointed, counted
from tests.support.helpers import PushedReader, wait_until

pytestmark = pytest.mark.spark


class Watcher:
    """Reads all finished files repeatedly, like an external reader."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.over = threading.Event()
        self.seen: dict[Path, bytes] = {}
        self.changed: list[Path] = []
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self) -> None:
        while not self.over.wait(0.005):
            for path in self.directory.rglob("part-*"):
                data = path.read_bytes()
                if self.seen.setdefault(path, data) != data:
                    self.changed.append(path)

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


def lines(directory: Path) -> list[str]:
    return [line for path in directory.rglob("part-*") for line in path.read_text().splitlines()]


def written(env: Any, sink: Any, count: int, function: FailingOnce) -> None:
    source = env.from_source(DataGeneratorSource(lambda i: i, count, 2000)).uid("numbers")
    facts = source.key_by(lambda v: v % KEYS).process(function).uid("count")
    facts.map(lambda f: f"{f[0]} {f[1]}").sink_to(sink).uid("files")


@pytest.mark.parametrize("failure", ["raise", "kill"])
@pytest.mark.parametrize("policy", ["checkpoint", "size"])
def test_file_sink_holds_every_record_once_after_failure(
    config: Configuration, tmp_path: Path, failure: str, policy: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    rolling = (
        RollingPolicy.on_checkpoint_rolling_policy()
        if policy == "checkpoint"
        else RollingPolicy.default_rolling_policy(part_size=2000)
    )
    sink = (
        FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(rolling)
        .with_output_file_config(OutputFileConfig.builder().with_part_prefix("part").with_part_suffix(".txt").build())
        .build()
    )
    env = checkpointed(config, tmp_path / "cp")
    written(env, sink, 4000, FailingOnce(tmp_path / "failed", 2500, failure))
    watcher = Watcher(out)
    try:
        env.execute()
    finally:
        watcher.stop()
    assert (tmp_path / "failed").exists()
    assert sorted(lines(out)) == sorted(f"{k} {n}" for k, n in counted(4000))
    # Visible files never changed, and no hidden file remains.
    assert watcher.changed == [] and len(watcher.seen) > 1
    assert list(out.rglob(".*")) == []


def compacted(directory: Path) -> list[str]:
    return [line for path in directory.rglob("compacted-*") for line in path.read_text().splitlines()]


def compacting(out: Path, strategy: FileCompactStrategy) -> FileSink:
    builder = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    return builder.enable_compact(strategy, FileCompactor.concat_file_compactor()).build()


@pytest.mark.parametrize("failure", ["raise", "kill", "after_commit"])
def test_compacting_file_sink_holds_every_record_once_after_failure(
    config: Configuration, tmp_path: Path, failure: str
) -> None:
    out = tmp_path / "out"
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).set_size_threshold(8000).build()
    sink: Any = compacting(out, strategy)
    if failure == "after_commit":
        sink = FailingSink(sink, fail_at=4, on="after_commit", directory=str(tmp_path))
    env = checkpointed(config, tmp_path / "cp", 100)
    written(env, sink, 4000, FailingOnce(tmp_path / "failed", 2500, "raise" if failure == "after_commit" else failure))
    env.execute()
    assert (tmp_path / "failed").exists()
    assert sorted(compacted(out)) == sorted(f"{k} {n}" for k, n in counted(4000))
    # Files of several checkpoints were compacted, several times before the end; no other file remains.
    files = list(out.iterdir())
    assert 2 <= len(files) <= 12 and all(path.name.startswith("compacted-part-") for path in files)


def test_compacting_file_sink_keeps_pending_files_at_least_once_after_failure(
    config: Configuration, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1000).build()
    env = checkpointed(config, tmp_path / "cp", 100)
    env.enable_checkpointing(100, CheckpointingMode.AT_LEAST_ONCE)
    written(env, compacting(out, strategy), 4000, FailingOnce(tmp_path / "failed", 2500))
    env.execute()
    assert (tmp_path / "failed").exists()
    assert {*compacted(out)} == {f"{k} {n}" for k, n in counted(4000)}
    assert list(out.rglob(".*")) == []


def test_compacting_file_sink_commits_pending_files_without_input(config: Configuration, tmp_path: Path) -> None:
    out, reader = tmp_path / "out", PushedReader()
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(4).build()
    env = checkpointed(config, tmp_path / "cp", 50)
    env.from_source(reader).uid("numbers").map(lambda v: v[0]).sink_to(compacting(out, strategy)).uid("files")
    job = env.execute_async()
    try:
        reader.push(100)
        wait_until(lambda: len(compacted(out)) == 100, description="all records")
        reader.push(1)
        wait_until(lambda: len(list(out.rglob(".*"))) > 0, description="a part that waits")
    finally:
        job.cancel().result()
    # A cancelled job leaves no committed file pending.
    assert sorted(map(int, compacted(out))) in (list(range(100)), list(range(101)))
    assert list(out.rglob(".*")) == []


def test_compacting_file_sink_commits_pending_files_after_driver_death(config: Configuration, tmp_path: Path) -> None:
    out = tmp_path / "out"
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1000).build()
    env = checkpointed(config, tmp_path / "cp", 50)
    env.get_configuration().set_string(
        "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"
    )
    written(env, compacting(out, strategy), 4000, FailingOnce())
    job = env.execute_async()
    home = tmp_path / "cp" / job.get_job_id()
    wait_until(
        lambda: len(list_checkpoints(str(home))) > 0 and len(list(out.rglob(".*"))) > 6, description="parts that wait"
    )
    with patch.object(CompactingCommitter, "finish", _die), patch.object(CompactingCommitter, "recover", _die):
        job.cancel().exception()
    assert compacted(out) == [] and len(list(out.rglob(".*"))) > 6
    config.set_string("execution.state-recovery.path", list_checkpoints(str(home))[0][0])
    env = checkpointed(config, tmp_path / "cp2", 50)
    written(env, compacting(out, strategy), 4000, FailingOnce())
    env.execute()
    assert sorted(compacted(out)) == sorted(f"{k} {n}" for k, n in counted(4000))
    assert list(out.rglob(".*")) == []


def _die(*_: Any) -> None:
    raise RuntimeError("the driver is dead")


class Words(BulkWriterFactory):
    """A bulk format whose footer is the number of elements."""

    def open(self, file: Any) -> Any:
        return _Words(file)


class _Words:
    def __init__(self, file: Any) -> None:
        self.file, self.count = file, 0

    def add_element(self, value: str) -> None:
        self.file.write(f"{value}\n".encode())
        self.count += 1

    def finish(self) -> None:
        self.file.write(f"= {self.count}\n".encode())


def test_bulk_file_sink_writes_complete_files(config: Configuration, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = (
        FileSink.for_bulk_format(str(out), Words())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    env = checkpointed(config, tmp_path / "cp")
    written(env, sink, 3000, FailingOnce(tmp_path / "failed", 2000, "kill"))
    env.execute()
    results = []
    for path in out.rglob("part-*"):
        *content, footer = path.read_text().splitlines()
        assert footer == f"= {len(content)}"
        results += content
    assert sorted(results) == sorted(f"{k} {n}" for k, n in counted(3000))


def test_file_sink_commits_at_end_without_checkpoints(env: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()
    env.from_collection(list(range(100))).sink_to(sink)
    env.execute()
    assert sorted(map(int, lines(out))) == list(range(100))
    # Buckets by date and hour, as in Flink.
    assert all(len(p.parent.name) == len("2026-01-01--00") for p in out.rglob("part-*"))


@pytest.mark.parametrize("failure", ["raise", "kill"])
def test_postgresql_sink_holds_every_row_once_after_failure(
    config: Configuration, tmp_path: Path, postgres: Any, failure: str
) -> None:
    psycopg = pytest.importorskip("psycopg")
    database = postgres.new_database()
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE facts (key INTEGER, number INTEGER)")
    env = checkpointed(config, tmp_path / "cp")
    source = env.from_source(DataGeneratorSource(lambda i: i, 4000, 2000)).uid("numbers")
    facts = source.key_by(lambda v: v % KEYS).process(FailingOnce(tmp_path / "failed", 2500, failure)).uid("count")

    def connect() -> Any:
        import psycopg

        return psycopg.connect(database)

    facts.sink_to(SqlSink(connect, "facts", ["key", "number"])).uid("facts")
    env.execute()
    assert (tmp_path / "failed").exists()
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT key, number FROM facts").fetchall()
        staged = connection.execute("SELECT count(*) FROM facts__staged").fetchone()
    assert Counter(rows) == Counter(counted(4000))
    assert staged == (0,)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_jdbc_sink_holds_every_row_at_least_once_after_failure(
    config: Configuration, tmp_path: Path, request: pytest.FixtureRequest, database: str
) -> None:
    url = f"jdbc:sqlite:{tmp_path}/test.db"
    if database == "postgresql":
        words = dict(w.split("=") for w in request.getfixturevalue("postgres").new_database().split())
        url = f"jdbc:postgresql:///{words['dbname']}?host={words['host']}&port={words['port']}&user={words['user']}"
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()
    connect = connector(options)
    with closing(connect()) as connection:
        connection.execute("CREATE TABLE facts (key INTEGER, number INTEGER, times INTEGER, UNIQUE (key, number))")
        connection.commit()
    env = checkpointed(config, tmp_path / "cp")
    source = env.from_source(DataGeneratorSource(lambda i: i, 4000, 2000)).uid("numbers")
    facts = source.key_by(lambda v: v % KEYS).process(FailingOnce(tmp_path / "failed", 2500, "kill")).uid("count")
    sql = "INSERT INTO facts VALUES (?, ?, 1) ON CONFLICT (key, number) DO UPDATE SET times = facts.times + 1"
    execution = JdbcExecutionOptions.builder().with_batch_size(100).build()
    facts.add_sink(JdbcSink.sink(sql, Types.ROW([Types.INT(), Types.INT()]), options, execution)).uid("facts")
    env.execute()
    assert (tmp_path / "failed").exists()
    with closing(connect()) as connection:
        rows = connection.execute("SELECT key, number FROM facts").fetchall()
    # No row is lost; rows repeated after the failure change nothing.
    assert sorted(rows) == counted(4000)


def test_file_sink_deletes_staged_files_on_cancel(config: Configuration, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()
    env = checkpointed(config, tmp_path / "cp", 3_600_000)
    env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=1000)).sink_to(sink)
    job = env.execute_async()
    deadline = threading.Event()
    while not any(True for _ in out.rglob(".part-*")):
        deadline.wait(0.05)
    job.cancel().result()
    assert [p for p in out.rglob("*") if p.is_file()] == []


def test_at_least_once_file_sink_commits_without_waiting(config: Configuration, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = (
        FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=500))
        .build()
    )
    env = checkpointed(config, tmp_path / "cp", 3_600_000)
    env.enable_checkpointing(3_600_000, CheckpointingMode.AT_LEAST_ONCE)
    env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=1000)).sink_to(sink)
    job = env.execute_async()
    blocked = threading.Event()
    while not any(True for _ in out.rglob("part-*")):
        blocked.wait(0.05)
    job.cancel().result()
    assert os.listdir(tmp_path / "cp") == []
