"""The pytest plugin: environments as fixtures. It imports millstream only when a fixture is used.

def test_counts(millstream_env):
    stream = millstream_env.from_collection([1, 2, 3]).map(lambda x: x * 2)
    assert sorted(stream.execute_and_collect()) == [2, 4, 6]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millstream.common.configuration import Configuration
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.testing import LocalEnvironment, ManualClock


@pytest.fixture(scope="session")
def _millstream_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The directory of the run's one Spark, which the first job starts."""
    yield str(tmp_path_factory.mktemp("millstream-spark"))
    from millstream.spark.session import stop_context

    stop_context()


@pytest.fixture
def millstream_config(_millstream_spark: str) -> Configuration:
    """The settings of `millstream_env`: Spark with two threads, two subtasks, no greeting. Override it to change them.

    Settings that begin with `spark.` must be the same in all tests of a run, because one Spark serves them all.
    """
    from millstream.common.configuration import Configuration

    return Configuration.from_dict(
        {
            "spark.master": "local[2]",
            "spark.local.dir": _millstream_spark,
            "millstream.quiet": "true",
            "parallelism.default": "2",
        }
    )


@pytest.fixture
def millstream_env(millstream_config: Configuration, _millstream_spark: str) -> StreamExecutionEnvironment:
    """A fresh environment on the run's one Spark."""
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

    return StreamExecutionEnvironment.get_execution_environment(millstream_config)


@pytest.fixture
def millstream_clock() -> ManualClock:
    """The wall clock of `millstream_local`; only the test advances it."""
    from millstream.testing import ManualClock

    return ManualClock()


@pytest.fixture
def millstream_local(millstream_clock: ManualClock) -> LocalEnvironment:
    """A new environment whose jobs run in this process, without Spark, with one subtask."""
    from millstream.testing import LocalEnvironment

    return LocalEnvironment(clock=millstream_clock)
