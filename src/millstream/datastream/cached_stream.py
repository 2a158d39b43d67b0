"""cache(): a bounded intermediate result that the next execute() reads instead of computing it again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from millstream.common.aliases import Value
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.watermark_strategy import MIN_WATERMARK, WatermarkStrategy
from millstream.connectors.collection import CollectionSource, DriverSink
from millstream.graph.transformations import Program, Transformation, UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.process import ProcessContext, ProcessOperator
from millstream.operators.sink import SinkOperator
from millstream.operators.source import SourceOperator
from millstream.operators.stateless import MapOperator
from millstream.operators.watermarks import WatermarkOperator


class _WithTime:
    """Pairs a record with its timestamp."""

    def process_element(self, value: Value, ctx: ProcessContext) -> Iterator[tuple[Value, int]]:
        yield value, ctx.timestamp()


@dataclass
class Cache:
    """The cached records of a stream."""

    job: Future[JobExecutionResult] | None = None
    elements: list[tuple[Value, int]] = field(default_factory=list)
    # The operator and inputs that computed the stream before it was read from the cache.
    _computed: tuple[Operator, list[UpstreamEdge]] | None = None

    @property
    def is_filled(self) -> bool:
        return self.job is not None and self.job.done() and self.job.exception() is None

    @property
    def needs_job(self) -> bool:
        """Whether no job has filled it and none is about to."""
        return self.job is None or (self.job.done() and self.job.exception() is not None)

    def tap(self, program: Program, transformation: Transformation) -> Transformation:
        """Add a sink to the stream that fills the cache, and return it."""
        self.elements = []
        keep = ProcessOperator(UserFunction(_WithTime(), "process_element"))
        pairs = program.add("Cache", keep, [UpstreamEdge(transformation)], parallelism=transformation.parallelism)
        sink = program.add("Cache", SinkOperator(DriverSink(self.elements.extend)), [UpstreamEdge(pairs)])
        sink.parallelism = transformation.parallelism
        return sink

    def replace(self, program: Program, transformation: Transformation) -> None:
        """Read the stream from the cache; downstream operators stay unchanged."""
        source = program.add("Source: Cache", SourceOperator(CollectionSource(self.elements)), parallelism=1)
        before = UpstreamEdge(source)
        if any(timestamp != MIN_WATERMARK for _, timestamp in self.elements):
            strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda pair, _: pair[1])
            before = UpstreamEdge(
                program.add("Cached Timestamps", WatermarkOperator(strategy), [before], parallelism=1)
            )
        self._computed = (transformation.operator, transformation.inputs)
        transformation.operator = MapOperator(UserFunction(lambda pair: pair[0], None))
        transformation.inputs = [before]

    def invalidate(self, transformation: Transformation) -> None:
        """Discard the records, so that the next job computes and caches them again."""
        if self._computed is not None:
            transformation.operator, transformation.inputs = self._computed
        transformation.cache = Cache()
