"""The Table API's access to a DataStream program: adds operators and runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.common.aliases import Value
from millstream.common.configuration import Configuration
from millstream.common.job_client import JobClient
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.collection import DriverSink
from millstream.datastream.collect import CloseableIterator, LocalJobClient, Mailbox
from millstream.datastream.data_stream import DataStream
from millstream.datastream.launch_context import with_overrides
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment, builder_of
from millstream.graph.plan import execution_plan
from millstream.graph.transformations import Program, Transformation, UpstreamEdge

if TYPE_CHECKING:
    from millstream.operators.base import Operator


class Bridge:
    """A program that a TableEnvironment adds to."""

    def __init__(self, environment: StreamExecutionEnvironment) -> None:
        self.environment = environment
        self._builder = builder_of(environment)

    @property
    def program(self) -> Program:
        """The operators that the program has so far."""
        return self._builder.program

    def settings(self) -> Configuration:
        """Return the settings, with those of the command line."""
        return with_overrides(self.environment.get_configuration())

    @contextmanager
    def added(self) -> Iterator[list[Transformation]]:
        """Yield a list that receives the operators added meanwhile, which are then removed from the program."""
        added: list[Transformation] = []
        before = len(self.program.transformations)
        try:
            yield added
        finally:
            added += self.program.transformations[before:]
            del self.program.transformations[before:]

    def collect(
        self, name: str, end: Transformation, sink: Callable[[DriverSink], Operator]
    ) -> tuple[CloseableIterator[Value], LocalJobClient]:
        """Run a job that returns its records; return them and a handle on the job."""
        mailbox = Mailbox()
        collecting = sink(DriverSink(mailbox.put))
        last = self.program.add("Collect Sink", collecting, [UpstreamEdge(end)], parallelism=1)
        job = self._builder.start(name, [last])
        return CloseableIterator(mailbox, job), LocalJobClient(job)

    def start(self, name: str, ends: Sequence[Transformation]) -> JobClient:
        """Start a job of these sinks, separately from those pending for `execute()`."""
        builder = self._builder
        pending, builder.sinks = builder.sinks, list(ends)
        try:
            return self.environment.execute_async(name)
        finally:
            builder.sinks = pending

    def execution_plan(self, ends: Sequence[Transformation]) -> str:
        """Return a job of some ends as JSON."""
        return execution_plan(self._builder.stream_graph(None, list(ends)))

    def attach(self, ends: Sequence[Transformation]) -> None:
        """Add sinks to the program's next `execute()`."""
        for end in ends:
            self._builder.add_sink(end)

    def stream(self, end: UpstreamEdge, type_info: TypeInformation | None) -> DataStream[Value]:
        """Return a stream of a transformation's records."""
        end.source.type_info = type_info
        return DataStream(self.environment, self._builder, [end])

    @property
    def is_batch(self) -> bool:
        """Whether the program is run in batch mode."""
        return str(self.settings().get_string("execution.runtime-mode", "STREAMING")).upper() == "BATCH"
