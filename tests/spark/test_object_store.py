"""Checkpoints and savepoints on an S3 object store, with failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from millstream.checkpoint.storage import open_storage, storage_options
from millstream.checkpoint.store import open_checkpoint
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.formats.file_access import FileAccess
from millstream.table import StreamTableEnvironment
from millstream.testing import CollectSink
from tests.spark.test_recovery import FailingOnce, checkpointed, counted, counting
from tests.support.helpers import wait_until
from tests.support.object_store import BUCKET, object_store

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with object_store() as settings:
        yield settings


@pytest.fixture
def on_s3(config: Configuration, s3: dict[str, str]) -> Configuration:
    for key, value in s3.items():
        config.set_string(key, value)
    return config


def test_job_restarts_from_object_store(on_s3: Configuration, tmp_path: Path) -> None:
    directory = f"s3://{BUCKET}/restart"
    env, sink = checkpointed(on_s3, tmp_path), CollectSink()
    env.get_configuration().set_string("execution.checkpointing.dir", directory)
    counting(env, sink, 4000, FailingOnce(tmp_path / "failed", 2500, "kill"), rate=1500)
    env.execute()
    assert (tmp_path / "failed").exists()
    assert sorted(sink.results()) == counted(4000)
    assert open_storage(directory, storage_options(on_s3)).list("") == []


def test_job_restores_savepoint_from_object_store(on_s3: Configuration, tmp_path: Path) -> None:
    env, first = checkpointed(on_s3, tmp_path / "cp"), CollectSink()
    counting(env, first, 1 << 40, rate=1000)
    job = env.execute_async()
    wait_until(lambda: bool(first.results()))
    location = job.stop_with_savepoint(False, f"s3://{BUCKET}/savepoints").result()
    job.get_job_execution_result().result()
    assert open_checkpoint(location, storage_options(on_s3)).manifest.kind == "savepoint"
    again = CollectSink()
    resumed = checkpointed(on_s3, tmp_path / "cp").set_parallelism(3)
    resumed.get_configuration().set_string("execution.state-recovery.path", location)
    total = len(first.results()) + 500
    counting(resumed, again, total)
    resumed.execute()
    assert sorted(first.results() + again.results()) == counted(total)


def test_local_recovery_reads_copy_on_host_first(s3: dict[str, str], tmp_path: Path) -> None:
    options = storage_options(Configuration.from_dict(s3))
    url = f"s3://{BUCKET}/local-recovery"
    local, elsewhere = (open_storage(url, options, str(tmp_path / host)) for host in ("here", "elsewhere"))
    local.write("state", [b"ab", b"c"])
    assert bytes(elsewhere.read("state")) == b"abc"
    open_storage(url, options).delete("state")
    # The object is deleted in the store but present on the host: the read needs no request.
    assert bytes(local.read("state")) == bytes(elsewhere.read("state")) == b"abc"
    local.drop_local_copies(["state"])
    with pytest.raises(Exception, match="local-recovery/state is missing"):
        local.read("state")


def test_read_json_infers_columns_of_object_store(on_s3: Configuration, s3: dict[str, str]) -> None:
    files = FileAccess(storage_options(on_s3))
    fs, _ = fsspec.core.url_to_fs(f"s3://{BUCKET}", **storage_options(on_s3)["s3"])
    for day in ("2024-01-01", "2024-01-02"):
        fs.pipe(f"{BUCKET}/lake/day={day}/a.json", f'{{"n": {day[-1]}, "at": {{"x": 1.5}}}}\n'.encode())
    assert len(list(files.find(f"s3://{BUCKET}/lake/*/a.json"))) == 2
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(on_s3))
    for path in (f"s3://{BUCKET}/lake", f"s3a://{BUCKET}/lake/day=*"):
        table = t_env.read_json(path)
        rows = sorted((row[0], row[1][0], str(row[2])) for row in table.execute().collect())
        assert rows == [(1, 1.5, "2024-01-01"), (2, 1.5, "2024-01-02")], path
