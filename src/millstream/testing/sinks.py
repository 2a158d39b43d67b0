"""Sinks for tests: CollectSink exposes its records, FailingSink fails at a chosen step."""

from __future__ import annotations

from threading import Lock
from typing import Literal

from millstream.common.aliases import Value
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.collection import DriverSink
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import Committable
from millstream.testing.sources import Once

__all__ = ["CollectSink", "FailingSink"]


class CollectSink(DriverSink):
    """Collects records on the driver; for add_sink and sink_to.

    Any thread may read it, while the job runs and afterwards.

    Example:
        >>> sink = CollectSink()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_collection([1, 2]).sink_to(sink)
        >>> _ = env.execute()
        >>> sink.results()
        [1, 2]
    """

    def __init__(self) -> None:
        self._results: list[Value] = []
        self._lock = Lock()
        super().__init__(self._add)

    def _add(self, values: list[Value]) -> None:
        with self._lock:
            self._results.extend(values)

    def results(self) -> list[Value]:
        """Return the records in the order they arrived.

        See CollectSink for an example.
        """
        with self._lock:
            return list(self._results)

    def clear(self) -> None:
        """Discard the records, for example between two runs.

        Example:
            >>> sink = CollectSink()
            >>> _ = env.from_collection([1, 2]).sink_to(sink)
            >>> _ = env.execute()
            >>> sink.clear()
            >>> sink.results()
            []
        """
        with self._lock:
            self._results.clear()


Step = Literal["write", "prepare", "commit", "after_commit"]
STEPS: tuple[Step, ...] = ("write", "prepare", "commit", "after_commit")


class FailingSink(Sink):
    """Wraps a sink and fails once.

    Steps, each counted from 1 (writes and prepares per subtask process, commits on the driver):

    * "write": before the writer processes a record.
    * "prepare": the writer stages an epoch's output.
    * "commit": before the committer commits.
    * "after_commit": after the commit, before it is acknowledged: the committer commits again.

    Args:
        sink: the wrapped sink.
        fail_at: at which call of that step it fails.
        on: the step.
        directory: records the failure, so that it happens once; all workers must share it.

    Example:
        >>> from millstream.testing import CollectSink, LocalJob
        >>> env, results = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        >>> _ = env.from_collection([1, 2, 3]).sink_to(FailingSink(results, fail_at=2))
        >>> LocalJob(env).run(restarts=1)
        >>> results.results()
        [1, 2, 3]
    """

    def __init__(self, sink: Sink, fail_at: int = 1, on: Step = "write", directory: str | None = None) -> None:
        if on not in STEPS:
            raise ValueError(f"FailingSink: on={on!r} must be one of {', '.join(STEPS)}.")
        self.name = f"Failing {sink.name}"
        self._sink = sink
        self._failure = _Countdown(on, fail_at, Once(directory))

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._sink.create_writer(context), self._failure)

    def create_committer(self, context: CommitContext) -> Committer | None:
        inner = self._sink.create_committer(context)
        return None if inner is None else _Committer(inner, self._failure)


class _Countdown:
    """Raises at the nth call of a step, once."""

    def __init__(self, on: Step, fail_at: int, once: Once) -> None:
        self._failing_step = on
        self._fail_at = fail_at
        self._only_once = once
        self._calls = 0

    def step(self, step: Step) -> None:
        if step != self._failing_step:
            return
        self._calls += 1
        if self._calls >= self._fail_at and self._only_once.is_first("failure"):
            raise RuntimeError(f"FailingSink: fails at call {self._calls} of {step}.")


class _Writer(SinkWriter):
    def __init__(self, inner: SinkWriter, failure: _Countdown) -> None:
        self._inner = inner
        self._failure = failure
        self.keeps_values = inner.keeps_values

    def begin(self, transaction: str) -> None:
        self._inner.begin(transaction)

    def write(self, value: Value) -> None:
        self._failure.step("write")
        self._inner.write(value)

    def prepare_commit(self, flush: bool) -> Committable | None:
        self._failure.step("prepare")
        return self._inner.prepare_commit(flush)

    def runtime_snapshot(self) -> object:
        return self._inner.runtime_snapshot()

    def restore(self, snapshot: object) -> None:
        self._inner.restore(snapshot)

    def close(self) -> None:
        self._inner.close()


class _Committer(Committer):
    def __init__(self, inner: Committer, failure: _Countdown) -> None:
        self._inner = inner
        self._failure = failure
        self.transactional = inner.transactional

    def begin(self) -> None:
        self._inner.begin()

    def commit(self, committables: list[tuple[int, Committable]]) -> None:
        self._failure.step("commit")
        self._inner.commit(committables)
        self._failure.step("after_commit")

    def recover(self, committables: list[tuple[int, Committable]], former_job_id: str) -> None:
        self._inner.recover(committables, former_job_id)

    def waiting(self) -> list[tuple[int, Committable]]:
        return self._inner.waiting()

    @property
    def wants_checkpoints(self) -> bool:
        return self._inner.wants_checkpoints

    def finish(self) -> None:
        self._inner.finish()

    def close(self) -> None:
        self._inner.close()
