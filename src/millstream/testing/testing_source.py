"""TestingSource: the elements of a list, with the places where the job shall fail among them."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterable, Iterator
from typing import Any, Final

from millstream.common.errors import MillstreamError
from millstream.common.pickles import dump
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.number_seq import IntervalEnumerator, IntervalReader
from millstream.testing.once import Once

__all__ = ["ABORT", "KILL", "TestingSource"]


class _Failure:
    """A place in a TestingSource's elements where the job fails, once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        # The object itself, in any process.
        return self._name

    def __repr__(self) -> str:
        return self._name


# Among a TestingSource's elements: here reading raises an error, once.
ABORT: Final = _Failure("ABORT")
# Among a TestingSource's elements: here the worker process is killed (-9), once.
KILL: Final = _Failure("KILL")


class TestingSource(Source):
    """The elements of a list; where `ABORT` or `KILL` stands among them the job fails, once, and then goes on.

    It has offsets, so with checkpoints nothing is lost or doubled. With more than one subtask each reads a part of the
    list.

    Args:
        elements: the elements, and among them ABORT (reading raises) and KILL (the worker process dies).
        batch_size: how many elements a subtask reads in one epoch at most.
        directory: where it is remembered which failures have been; all workers must see it.

    Example:
        >>> from millstream.testing import CollectSink, LocalJob
        >>> env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        >>> _ = env.from_source(TestingSource([1, 2, ABORT, 3])).sink_to(sink)
        >>> LocalJob(env).run(restarts=1)
        >>> sink.results()
        [1, 2, 3]
    """

    name = "Testing Source"
    # Or pytest would take it for tests.
    __test__ = False

    def __init__(self, elements: Iterable[Any], batch_size: int = 1, directory: str | None = None) -> None:
        if batch_size < 1:
            raise ValueError(f"TestingSource: batch_size must be at least 1, it is {batch_size}.")
        self._elements = [dump(e) for e in elements]
        self._batch_size = batch_size
        self._once = Once(directory)

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Enumerator(len(self._elements), parallelism, restored, self._batch_size)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._elements, self._once)


class _Enumerator(IntervalEnumerator):
    def __init__(self, size: int, parallelism: int, restored: Any, batch_size: int) -> None:
        super().__init__(0, size, parallelism, restored)
        self._batch_size = batch_size

    def poll(self, budget: int, now: float) -> SplitAssignment:
        return super().poll(min(budget, self._batch_size), now)


class _Reader(IntervalReader):
    def __init__(self, elements: list[bytes], once: Once) -> None:
        self._elements = elements
        self._once = once

    def read(self, share: Any) -> Iterator[list[Any]]:
        _, start, end, _ = share
        for at in range(start, end):
            element = pickle.loads(self._elements[at])
            if not isinstance(element, _Failure):
                yield [element]
            elif self._once.is_first(f"element-{at}"):
                self._fail(element, at)

    def _fail(self, failure: _Failure, at: int) -> None:
        if failure is not KILL:
            raise RuntimeError(f"TestingSource: ABORT stands at element {at}.")
        if os.getpid() == self._once.pid:
            raise MillstreamError("TestingSource: KILL would end this very process: run the job on Spark.")
        os.kill(os.getpid(), signal.SIGKILL)
