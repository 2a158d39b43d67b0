"""Sources and sinks that fail on purpose, and programs that run in this process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from millstream import testing
from millstream.common.errors import JobCancelledError, JobExecutionError, MillstreamError
from millstream.datastream import StreamExecutionEnvironment
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.testing import (
    ABORT,
    KILL,
    CollectSink,
    FailingSink,
    LocalEnvironment,
    LocalJob,
    ManualClock,
    TestingSource,
    run_locally,
)
from millstream.testing.sources import Once


def env(parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment().set_parallelism(parallelism)


# --- TestingSource


@pytest.mark.parametrize("batch_size", [1, 2, 10])
def test_testing_source_abort_fails_the_job_once(batch_size: int) -> None:
    program, sink = env(), CollectSink()
    source = TestingSource([1, 2, ABORT, 3, ABORT, 4], batch_size)
    program.from_source(source).map(lambda x: x * 10).sink_to(sink)
    job = LocalJob(program)
    with pytest.raises(SubtaskFailed, match="ABORT is element 2"):
        job.run()
    program.from_source(source).map(lambda x: x * 10).sink_to(sink)
    sink.clear()
    # The first abort has happened, the second has not.
    LocalJob(program).run(restarts=1)
    assert sink.results() == [10, 20, 30, 40]


def test_testing_source_emits_each_element_once_to_several_subtasks() -> None:
    program, sink = env(3), CollectSink()
    elements: list[Any] = [*range(20), ABORT, *range(20, 40), ABORT]
    counted = program.from_source(TestingSource(elements, 4)).map(lambda x: (x % 5, 1))
    counted.key_by(lambda p: p[0]).sum(1).sink_to(sink)
    LocalJob(program).run(restarts=2)
    assert sorted(sink.results()) == [(k, n) for k in range(5) for n in range(1, 9)]


def test_testing_source_abort_exceeds_the_restarts() -> None:
    program = env()
    program.from_source(TestingSource([ABORT, ABORT, ABORT])).sink_to(CollectSink())
    with pytest.raises(SubtaskFailed, match="element 2"):
        LocalJob(program).run(restarts=2)


def test_testing_source_kill_does_not_end_the_test_process() -> None:
    program = env()
    program.from_source(TestingSource([1, KILL])).sink_to(CollectSink())
    with pytest.raises(SubtaskFailed, match="KILL would kill the process of the test"):
        run_locally(program)


def test_testing_source_copies_elements_but_not_sentinels() -> None:
    element = [1]
    program, sink = env(), CollectSink()
    program.from_source(TestingSource([element])).sink_to(sink)
    element.append(2)
    run_locally(program)
    assert sink.results() == [[1]]
    assert pickle.loads(pickle.dumps([ABORT, KILL])) == [ABORT, KILL]
    assert [repr(ABORT), repr(KILL)] == ["ABORT", "KILL"]
    with pytest.raises(ValueError, match="batch_size"):
        TestingSource([], 0)


def test_once_is_shared_by_copies_and_cleans_up() -> None:
    once = Once()
    copy = pickle.loads(pickle.dumps(once))
    assert (copy.is_first("x"), once.is_first("x"), once.is_first("y")) == (True, False, True)
    del copy
    directory = once.directory
    assert not once.is_first("x")
    del once
    assert not Path(directory).exists()


# --- FailingSink


@pytest.mark.parametrize("on", ["write", "prepare"])
def test_failing_sink_writer_fails_once(on: Any) -> None:
    program, results = env(), CollectSink()
    program.from_source(TestingSource(range(6), 2)).sink_to(FailingSink(results, fail_at=3, on=on))
    LocalJob(program).run(restarts=1)
    assert results.results() == list(range(6))


@pytest.mark.parametrize(("on", "left"), [("commit", []), ("after_commit", [1])])
def test_failing_sink_committer_fails_once(on: Any, left: list[int]) -> None:
    program, results = env(), CollectSink()
    program.from_collection([1]).sink_to(FailingSink(results, on=on))
    with pytest.raises(JobExecutionError, match="Sink 'Failing Collect Sink' .* could not commit.*call 1 of"):
        run_locally(program)
    assert results.results() == left


def test_failing_sink_rejects_an_unknown_step() -> None:
    with pytest.raises(ValueError, match="write, prepare, commit, after_commit"):
        FailingSink(CollectSink(), on="comit")  # type: ignore[arg-type]


# --- CollectSink


def test_collect_sink_works_for_add_sink_sink_to_and_two_jobs() -> None:
    program, sink = env(), CollectSink()
    program.from_collection([1, 2]).add_sink(sink)
    run_locally(program)
    sink.results().append("not mine")
    program.from_collection([3]).sink_to(sink)
    run_locally(program)
    assert sink.results() == [1, 2, 3]
    sink.clear()
    assert sink.results() == []


# --- LocalEnvironment


def test_local_environment_runs_a_program() -> None:
    local = LocalEnvironment()
    sink = CollectSink()
    local.from_collection(range(10)).key_by(lambda x: x % 2).sum().sink_to(sink)
    result = local.execute("sums")
    assert (result.job_name, result.records_in) == ("sums", 10)
    assert sink.results()[-2:] == [20, 25]
    # More epochs than a reader has buffered.
    numbers = local.from_source(TestingSource(range(50))).execute_and_collect()
    assert list(numbers) == list(range(50))
    assert local.from_collection(range(5)).execute_and_collect(limit=2) == [0, 1]


def test_local_environment_reports_failures() -> None:
    local = LocalEnvironment()
    with pytest.raises(JobExecutionError, match=r"(?s)ZeroDivisionError.*in operator 'Map'.*record: 0") as raised:
        list(local.from_collection([1, 0]).map(lambda x: 1 // x).execute_and_collect())
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    patient = LocalEnvironment(restarts=1)
    assert list(patient.from_source(TestingSource([1, ABORT, 2])).execute_and_collect()) == [1, 2]


def test_local_environment_cancels_a_program() -> None:
    from millstream.testing.sources import ScriptedInput

    local = LocalEnvironment(clock=ManualClock())
    local.from_source(ScriptedInput()).sink_to(CollectSink())
    client = local.execute_async()
    with pytest.raises(Exception, match="The job takes no checkpoints"):
        client.trigger_checkpoint().result()
    client.cancel().result()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()
    with pytest.raises(MillstreamError, match="is not running: it is CANCELED"):
        client.trigger_savepoint("/nowhere").result()


# --- exports


def test_testing_exports_have_examples() -> None:
    for name in testing.__all__:
        thing = getattr(testing, name)
        assert not callable(thing) or ">>> " in (thing.__doc__ or ""), name
    assert sorted(testing._HOME_OF) == sorted(testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Harnes'"):
        testing.Harnes  # noqa: B018
