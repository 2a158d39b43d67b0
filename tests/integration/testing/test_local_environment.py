"""A local program has the lifecycle of a job on Spark: checkpoints, savepoints, restarts, rescaling."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.store import list_checkpoints
from millstream.cli.progress_line import describe, read
from millstream.common import Duration, Types, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.errors import JobExecutionError
from millstream.common.execution_state import ExecutionState
from millstream.common.job_status import JobStatus
from millstream.common.serialization import Encoder
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.files.sink import FileSink
from millstream.datastream import DataStream, MapFunction, OutputTag, ProcessFunction
from millstream.datastream.collect import LocalJobClient
from millstream.datastream.connectors.base import StreamTransformer, SupportsPreprocessing
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.jobmaster.machine.requests import RequestFailedError
from millstream.testing import ABORT, CollectSink, LocalEnvironment, TestingSource


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def sums(local: LocalEnvironment, count: int, rate: float) -> CollectSink:
    """The running sums of even and of odd numbers."""
    sink = CollectSink()
    numbers = local.from_source(DataGeneratorSource(lambda i: i, count, rate)).uid("numbers")
    keyed = numbers.map(lambda x: (x % 2, x)).key_by(lambda t: t[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums").sink_to(sink).uid("sink")
    return sink


def last(sink: CollectSink) -> dict[int, int]:
    return {key: max(total for k, total in sink.results() if k == key) for key in (0, 1)}


def expected(count: int) -> dict[int, int]:
    return {key: sum(x for x in range(count) if x % 2 == key) for key in (0, 1)}


def configured(**settings: str) -> Configuration:
    return Configuration.from_dict({f"execution.{k}".replace("_", "-"): v for k, v in settings.items()})


def test_local_environment_restores_savepoint(tmp_path: Path) -> None:
    local = LocalEnvironment()
    first = sums(local, 1_000_000, 2_000)
    client = local.execute_async()
    wait_until(lambda: len(first.results()) > 20)
    savepoint = client.stop_with_savepoint(savepoint_directory=str(tmp_path)).result()
    read = client.get_job_execution_result().result().records_in
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert last(first) == expected(read)

    local = LocalEnvironment(Configuration.from_dict({"execution.state-recovery.path": savepoint}))
    second = sums(local, read + 10, 1e6)
    assert local.execute().records_in == 10
    assert last(second) == expected(read + 10)


def test_failed_savepoint_leaves_job_running(tmp_path: Path) -> None:
    local = LocalEnvironment()
    sums(local, 100_000, rate=1000)
    client = local.execute_async()
    (tmp_path / "file").touch()
    # A file in place of the directory, and invalid file names.
    for target in (str(tmp_path / "file"), "a\0b", "/nowhere/\ud800"):
        with pytest.raises(RequestFailedError, match="No savepoint can be written to .*; the job continues"):
            client.trigger_savepoint(target).result()
    assert os.path.isdir(client.trigger_savepoint(str(tmp_path / "new")).result())
    assert client.get_job_status().result() is JobStatus.RUNNING
    # The attempt leaves no files.
    assert [p.name[:10] for p in (tmp_path / "new").iterdir()] == ["savepoint-"]
    client.cancel().result()


def test_local_environment_rescales_running_job() -> None:
    local = LocalEnvironment()
    sink = sums(local, 400, 2_000)
    client = local.execute_async()
    assert isinstance(client, LocalJobClient)
    wait_until(lambda: len(sink.results()) > 20)
    client.rescale(3).result()
    view = client.job.view
    assert [v.parallelism for v in view.plan.vertices][-1] == 3 and view.attempt == 1
    assert client.get_job_execution_result().result().records_in == 400
    assert last(sink) == expected(400)


def test_local_environment_retains_checkpoints_like_spark(tmp_path: Path) -> None:
    config = Configuration.from_dict(
        {
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "execution.checkpointing.num-retained": "2",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        }
    )
    local = LocalEnvironment(config)
    lines = local.from_source(DataGeneratorSource(str, 1_000_000, 2_000)).uid("lines")
    lines.sink_to(FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()).uid("out")
    client = local.execute_async()
    checkpoint = client.trigger_checkpoint().result()
    wait_until(lambda: client.get_checkpoint_statistics()["counts"]["completed"] > 5)
    assert int(checkpoint.rpartition("-")[2]) >= 1
    home = tmp_path / "checkpoints" / str(client.get_job_id())
    client.cancel().result()
    assert len(list_checkpoints(str(home))) == 2
    # The output named by the last checkpoint has been committed, and no other.
    local = LocalEnvironment(
        Configuration.from_dict({"execution.state-recovery.path": list_checkpoints(str(home))[0][0]})
    )
    counted = [int(x) for f in (tmp_path / "out").rglob("[!.]*") if f.is_file() for x in f.read_text().split()]
    lines = local.from_source(DataGeneratorSource(str, len(counted) + 5, 1e6)).uid("lines")
    lines.sink_to(FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()).uid("out")
    local.execute()
    counted = [int(x) for f in (tmp_path / "out").rglob("[!.]*") if f.is_file() for x in f.read_text().split()]
    assert sorted(counted) == list(range(len(counted)))


def test_job_restarts_by_restart_strategy() -> None:
    settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
    once = Configuration.from_dict(
        {**settings, "restart-strategy.fixed-delay.attempts": "1", "execution.checkpointing.interval": "10 ms"}
    )
    local = LocalEnvironment(once)
    sink = CollectSink()
    local.from_source(TestingSource([1, 2, ABORT, 3], batch_size=1)).sink_to(sink)
    client = local.execute_async()
    client.get_job_execution_result().result()
    view = client.job.view  # type: ignore[attr-defined]
    assert set(sink.results()) == {1, 2, 3} and view.restarts == 1
    assert [f.restarts_at is None for f in view.failures] == [False]
    assert view.times[JobStatus.RESTARTING] <= view.times[JobStatus.FINISHED]
    assert {t.state for t in view.tasks.values()} == {ExecutionState.FINISHED}

    local = LocalEnvironment(once)
    local.from_source(TestingSource([1, ABORT, 2, ABORT, 3], batch_size=1)).sink_to(CollectSink())
    client = local.execute_async()
    with pytest.raises(JobExecutionError, match="ABORT"):
        client.get_job_execution_result().result()
    view = client.job.view  # type: ignore[attr-defined]
    assert view.status is JobStatus.FAILED and len(view.failures) == 2
    assert {t.state for t in view.tasks.values()} <= {ExecutionState.FAILED, ExecutionState.CANCELED}


def test_job_survives_wall_clock_set_back() -> None:
    """Reading, checkpoints and the end of a job use a monotonic clock."""
    behind = [0]

    def wall() -> int:
        return int(time.time() * 1000) - behind[0]

    local = LocalEnvironment(Configuration.from_dict({"execution.checkpointing.interval": "10 ms"}), clock=wall)
    sink = sums(local, 6_000, 4_000)
    client = local.execute_async()
    wait_until(lambda: len(sink.results()) > 20)
    behind[0] = 3_600_000
    before = client.get_checkpoint_statistics()["counts"]["completed"]
    wait_until(lambda: client.get_checkpoint_statistics()["counts"]["completed"] > before + 3)
    assert client.get_job_execution_result().result(20).records_in == 6_000
    assert last(sink) == expected(6_000)


def test_at_most_once_file_sink_continues_after_failure(tmp_path: Path) -> None:
    """No file may stay open across epochs: a restart deletes files without a checkpoint, and no checkpoint names it."""
    settings = {
        "execution.checkpointing.interval": "10 ms",
        "execution.checkpointing.mode": "AT_MOST_ONCE",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    local = LocalEnvironment(Configuration.from_dict(settings))
    source: TestingSource[int] = TestingSource([1, 2, ABORT, 3, 4], batch_size=1)  # type: ignore[type-arg]
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    local.from_source(source).sink_to(sink)
    local.execute()
    results = sorted(int(x) for f in tmp_path.rglob("[!.]*") if f.is_file() for x in f.read_text().split())
    assert results == [1, 2, 3, 4]


def test_job_result_cannot_be_taken_by_another_job() -> None:
    local = LocalEnvironment()
    sums(local, 100, 1_000)
    client = local.execute_async()
    assert isinstance(client, LocalJobClient)
    assert not client.job.result.cancel()
    assert client.get_job_execution_result().result().records_in == 100


def test_finished_source_is_not_aligned_after_restart() -> None:
    """A finished source reports no watermark to its group; otherwise the other source would never advance."""
    local = LocalEnvironment(restarts=1)
    aligned = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Identity())
    aligned = aligned.with_watermark_alignment("group", Duration.of_millis(10), Duration.of_millis(1))
    few = local.from_source(TestingSource([1]), aligned, "few")
    many = [*range(1_000, 1_010), ABORT, *range(1_010, 1_020)]
    sink = CollectSink()
    few.union(local.from_source(TestingSource(many, batch_size=1), aligned, "many")).sink_to(sink)
    client = local.execute_async()
    client.get_job_execution_result().result(30)
    assert {1, *range(1_000, 1_020)} == set(sink.results())


class _Identity(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


@pytest.mark.parametrize("parallelism", [1, 4])
def test_collect_preserves_order_of_subtask(parallelism: int) -> None:
    env = LocalEnvironment()
    env.set_parallelism(parallelism)
    numbers = env.from_collection(range(100))
    assert numbers.execute_and_collect(limit=3) == [0, 1, 2]
    assert list(numbers.execute_and_collect()) == list(range(100))
    assert list(numbers.rebalance().execute_and_collect()) == list(range(100))
    alone = numbers.map(lambda x: x).set_parallelism(1).filter(lambda x: x > 0).set_parallelism(1)
    assert list(alone.execute_and_collect()) == list(range(1, 100))
    both = numbers.union(env.from_collection(range(100, 200)))
    assert list(both.execute_and_collect()) == list(range(200))


def always_fails(value: int) -> int:
    raise RuntimeError(f"no luck with {value}, {time.monotonic()}")


def test_job_reports_repeated_failure_once(caplog: pytest.LogCaptureFixture) -> None:
    env = LocalEnvironment(restarts=13)
    env.from_collection([1]).map(always_fails).sink_to(CollectSink())
    client = env.execute_async()
    assert isinstance(client, LocalJobClient)
    with pytest.raises(JobExecutionError, match="no luck"):
        client.get_job_execution_result().result()
    logged = [r.getMessage() for r in caplog.records]
    messages = [line for line in logged if "restarts do not seem to help" in line]
    assert len(messages) == 1
    assert "has failed 3 times in a row with the same error" in messages[0]
    # The error itself is shown once, and then counted.
    assert sum("has failed and restarts in" in line for line in logged) == 1
    assert sum("has failed again with the same error, " in line for line in logged) == 12
    assert "RuntimeError: no luck with 1" in messages[0]
    view = client.job.view
    assert (view.repeated_failures, view.is_stuck) == (14, True)
    line = read(client.job, 1.0)
    assert describe(line, line) == "failed | failed 14 times in a row with the same error"


def test_job_with_progress_between_failures_reports_each() -> None:
    env = LocalEnvironment(restarts=13)
    source = TestingSource([i for n in range(12) for i in (n, ABORT)])
    env.from_source(source).sink_to(CollectSink())
    client = env.execute_async()
    client.get_job_execution_result().result()
    assert (client.job.view.restarts, client.job.view.repeated_failures) == (12, 0)  # type: ignore[attr-defined]


class MostSubtasks(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.max_subtasks = runtime_context.get_max_number_of_parallel_subtasks()

    def map(self, value: Any) -> int:
        return int(self.max_subtasks)


def test_non_parallel_operator_has_one_subtask() -> None:
    env = LocalEnvironment()
    numbers = env.from_collection([1])
    assert list(numbers.map(MostSubtasks()).execute_and_collect()) == [1]
    assert list(numbers.key_by(lambda v: v).map(MostSubtasks()).execute_and_collect()) == [128]
    alone = numbers.rebalance().map(MostSubtasks()).force_non_parallel()
    assert list(alone.execute_and_collect()) == [1]


def test_untyped_side_output_unions_with_untyped_stream() -> None:
    env, tag = LocalEnvironment(), OutputTag("odd")

    class Part(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            yield (tag, value) if value % 2 else value

    even = env.from_collection(range(4)).process(Part())
    assert sorted(even.union(even.get_side_output(tag)).execute_and_collect()) == [0, 1, 2, 3]
    assert even.get_side_output(tag).get_type() == Types.PICKLED_BYTE_ARRAY()


class Doubling(StreamTransformer):
    def apply(self, ds: DataStream) -> DataStream:
        return ds.map(lambda x: 2 * x)


class DoublingSink(CollectSink, SupportsPreprocessing):
    def __init__(self, transformer: StreamTransformer | None) -> None:
        super().__init__()
        self._transformer = transformer

    def get_transformer(self) -> StreamTransformer | None:
        return self._transformer


def test_sink_adds_operators_before_it() -> None:
    for transformer, expected in ((Doubling(), [2, 4]), (None, [1, 2])):
        env, sink = LocalEnvironment(), DoublingSink(transformer)
        env.from_collection([1, 2]).sink_to(sink)
        env.execute()
        assert sink.results() == expected


def _answer(_: int) -> int:
    import brought_answer  # type: ignore[import-not-found]

    return int(brought_answer.ANSWER)


def test_add_python_file_loads_last_module_of_same_name(tmp_path: Path) -> None:
    env = LocalEnvironment()
    results = []
    for answer in (1, 2, 3):
        directory = tmp_path / str(answer)
        directory.mkdir()
        (directory / "brought_answer.py").write_text(f"ANSWER = {answer}")
        env.add_python_file(str(directory / "brought_answer.py"))
        if answer > 1:
            results += list(env.from_collection([0]).map(_answer).execute_and_collect())
    # Like PyFlink, which starts new workers for each job.
    assert results == [2, 3]
