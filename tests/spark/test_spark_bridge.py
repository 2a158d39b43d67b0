"""The bridge to Spark: DataFrames as streams, and the epochs of streams as DataFrames."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Row, Types
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.testing import CollectSink
from tests.conftest import Env
from tests.support.helpers import wait_until

pytestmark = pytest.mark.spark

NUMBERS = Types.ROW_NAMED(["n", "name"], [Types.LONG(), Types.STRING()])


def test_from_dataframe_emits_rows(env: Env, tmp_path: Path) -> None:
    spark = env.get_spark_session()
    frame = spark.range(0, 1000, 1, 3).selectExpr("id", "array(id, id + 1) as pair", "cast(id as string) as text")
    rows = list(env.from_spark(frame).execute_and_collect())
    assert sorted(row["id"] for row in rows) == list(range(1000))
    assert all(row["pair"] == [row["id"], row["id"] + 1] and row["text"] == str(row["id"]) for row in rows)
    # Another job in the same directory does not read the files of this one.
    for count in (3, 2):
        again = env.from_spark(spark.range(count), str(tmp_path / "staged"))
        assert sorted(row["id"] for row in again.execute_and_collect()) == list(range(count))
    with pytest.raises(InvalidProgramError, match="column 'v' has the type interval"):
        env.from_spark(spark.sql("select make_interval(1) as v"))


class Fails:
    """Fails once, in the process that runs it."""

    def __init__(self, flag: Path, number: int) -> None:
        self._flag, self._number = flag, number

    def __call__(self, row: Row) -> int:
        if row["n"] == self._number and not self._flag.exists():
            self._flag.touch()
            raise ValueError("once")
        return int(row["n"])


def _restarts(env: Env) -> None:
    config = env.get_configuration()
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "3")
    config.set_string("restart-strategy.fixed-delay.delay", "10 ms")


def test_streaming_dataframe_is_read_once_after_failure(env: Env, tmp_path: Path) -> None:
    arrived, staged = tmp_path / "come", tmp_path / "staged"
    arrived.mkdir()

    def bring(start: int) -> None:
        text = "".join(json.dumps({"n": n}) + "\n" for n in range(start, start + 100))
        (arrived / f".{start}").write_text(text)
        (arrived / f".{start}").rename(arrived / f"{start}.json")

    bring(0)
    spark = env.get_spark_session()
    sink = CollectSink()
    _restarts(env)
    env.enable_checkpointing(100)
    stream = env.from_spark(spark.readStream.schema("n long").json(str(arrived)), str(staged))
    stream.map(Fails(tmp_path / "flag", 150)).sink_to(sink)
    job = env.execute_async()
    try:
        wait_until(lambda: len(sink.results()) == 100)
        bring(100)
        wait_until(lambda: len(sink.results()) >= 200)
        # Files are deleted after their commit.
        wait_until(lambda: not [p for p in (staged / "batches").iterdir() if not p.name.startswith("_")])
    finally:
        job.cancel().result()
    assert (tmp_path / "flag").exists() and sorted(sink.results()) == list(range(200))


def test_to_spark_passes_each_epoch_once(env: Env, tmp_path: Path) -> None:
    seen: dict[int, list[int]] = {}
    tries: Counter[int] = Counter()

    def take(frame: Any, epoch: int) -> None:
        tries[epoch] += 1
        rows = sorted(row.n for row in frame.where("name = 'x'").collect())
        assert seen.setdefault(epoch, rows) == rows
        if len(tries) == 2 and tries[epoch] == 1:
            raise ValueError("once")

    _restarts(env)
    env.get_configuration().set_string("millstream.epoch.max-records", "100")
    env.enable_checkpointing(50)
    stream = env.from_collection(range(1000)).map(lambda n: Row(n=n, name="x"), NUMBERS)
    stream.to_spark(take)
    env.execute()
    assert max(tries.values()) == 2 and len(tries) > 2
    assert sorted(n for rows in seen.values() for n in rows) == list(range(1000))


def test_to_spark_error_names_function_and_unknown_columns(env: Env) -> None:
    with pytest.raises(InvalidProgramError, match=r"to_spark\(\): the DataFrame needs the types"):
        env.from_collection([(1, 2)]).to_spark(lambda frame, epoch: None)

    def fails(frame: Any, epoch: int) -> None:
        raise ValueError(f"cannot take {frame.columns}")

    env.from_collection([1], Types.INT()).to_spark(fails)
    with pytest.raises(JobExecutionError, match=r"Spark Function.* could not commit: .*cannot take \['value'\]"):
        env.execute()
