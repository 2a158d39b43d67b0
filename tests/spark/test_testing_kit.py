"""TestingSource, FailingSink and the pytest plugin on real Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.cep import CEP, Pattern
from millstream.common import Configuration
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.testing import (
    ABORT,
    KILL,
    CollectSink,
    FailingSink,
    LocalEnvironment,
    TestingSource,
    per_element_watermarks,
)
from tests.support.paths import DOCS
from tests.support.plugin_runner import run_pytest

pytestmark = pytest.mark.spark

Env = StreamExecutionEnvironment


@pytest.fixture
def patient(config: Configuration, tmp_path: Path) -> Env:
    """An environment with frequent checkpoints and immediate restarts."""
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.delay", "10 ms")
    config.set_integer("restart-strategy.fixed-delay.attempts", 5)
    config.set_string("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    return Env.get_execution_environment(config).enable_checkpointing(10)


@pytest.fixture
def once(tmp_path: Path) -> Path:
    """The directory that records past failures."""
    directory = tmp_path / "once"
    directory.mkdir()
    return directory


@pytest.mark.parametrize("failure", [ABORT, KILL], ids=repr)
def test_testing_source_is_exactly_once_after_failure(patient: Env, failure: Any, once: Path) -> None:
    elements: list[Any] = [*range(30), failure, *range(30, 60), failure, *range(60, 90)]
    sink = CollectSink()
    counted = patient.from_source(TestingSource(elements, batch_size=4, directory=str(once))).map(
        lambda x: (x % 3, 1, x)
    )
    counted.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1], a[2] + b[2])).sink_to(sink)
    patient.execute()
    assert sorted(p.name for p in once.iterdir()) == ["element-30", "element-61"]
    assert sorted(r[:2] for r in sink.results()) == [(k, n) for k in range(3) for n in range(1, 31)]
    assert {(k, 30, sum(range(k, 90, 3))) for k in range(3)} <= set(sink.results())


def test_pattern_matches_and_timeouts_are_exactly_once_after_kill(patient: Env, once: Path) -> None:
    events: list[Any] = [(n % 5, "abac"[n // 5 % 4], n) for n in range(200)]
    good = _matches(LocalEnvironment(), TestingSource(events))
    for position in (150, 101, 33):
        events.insert(position, KILL)
    assert _matches(patient, TestingSource(events, batch_size=7, directory=str(once))) == good
    assert len(good[0]) > 10 and len(good[1]) > 10
    assert len(list(once.iterdir())) == 3


def _matches(env: Env, source: TestingSource) -> tuple[list[str], list[str]]:
    """Return the matches and timeouts of a pattern."""
    tag, matched, late = OutputTag("late"), CollectSink(), CollectSink()
    first = Pattern.begin("a").where(lambda e: e[1] == "a")
    pattern = first.followed_by_any("b").where(lambda e: e[1] == "b").within(50)
    events = env.from_source(source).set_parallelism(1)
    marked = events.assign_timestamps_and_watermarks(per_element_watermarks(lambda e, _: e[2])).set_parallelism(1)
    keyed = marked.key_by(lambda e: e[0])
    matches = CEP.pattern(keyed, pattern).select(tag, lambda m, t: repr((m, t)), repr)
    matches.sink_to(matched)
    matches.get_side_output(tag).sink_to(late)
    env.execute()
    return sorted(matched.results()), sorted(late.results())


def test_testing_source_fails_job_without_restart(config: Configuration) -> None:
    config.set_string("restart-strategy.type", "disable")
    env = Env.get_execution_environment(config)
    env.from_source(TestingSource([1, ABORT, 2])).set_parallelism(1).sink_to(CollectSink())
    with pytest.raises(Exception, match="ABORT is element 1"):
        env.execute()
    env.from_source(TestingSource([1, KILL, 2])).set_parallelism(1).sink_to(CollectSink())
    with pytest.raises(Exception, match="worker process died"):
        env.execute()


@pytest.mark.parametrize("on", ["write", "prepare", "commit", "after_commit"])
def test_failing_sink_receives_each_record_once(patient: Env, on: Any, once: Path) -> None:
    results = CollectSink()
    source = patient.from_source(TestingSource(range(60), batch_size=5))
    failing = FailingSink(results, fail_at=2, on=on, directory=str(once))
    source.key_by(lambda x: x).map(lambda x: x).sink_to(failing)
    patient.execute()
    assert [p.name for p in once.iterdir()] == ["failure"]
    assert sorted(results.results()) == list(range(60))


def test_fixtures_share_one_spark_and_can_be_overridden(tmp_path: Path) -> None:
    out = run_pytest(
        tmp_path,
        [
            """
import pytest

contexts = set()

@pytest.fixture
def millstream_config(millstream_config):
    millstream_config.set_string("parallelism.default", "3")
    return millstream_config

@pytest.mark.parametrize("i", range(2))
def test_spark(millstream_env, i):
    from pyspark import SparkContext
    assert millstream_env.get_parallelism() == 3
    stream = millstream_env.from_collection([1, 2, 3]).map(lambda x: x * 2)
    assert sorted(stream.execute_and_collect()) == [2, 4, 6]
    contexts.add(SparkContext._active_spark_context.applicationId)
    assert len(contexts) == 1
"""
        ],
        "-s",
    )
    assert "2 passed" in out
    assert "running on Spark" not in out


GUIDE = DOCS / "guides" / "testing.md"


def test_testing_guide_examples_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    assert all("def test_" in block for block in blocks)
    assert "15 passed" in run_pytest(tmp_path, blocks)
