"""Outputs of a stream: partitioning, sinks, and collection in the program."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Union, overload

from millstream.common.aliases import KEY, Key, T_co
from millstream.common.errors import InvalidProgramError
from millstream.connectors.base import Sink, SupportsPreprocessing
from millstream.connectors.collection import DriverSink
from millstream.connectors.print_sink import PrintSink
from millstream.datastream.collect import CloseableIterator, Mailbox
from millstream.datastream.connected_streams import BroadcastStream
from millstream.datastream.functions import (
    KeySelector,
    SinkFunction,
    as_user_function,
    key_of,
)
from millstream.datastream.functions import Partitioner as PartitionerFunction
from millstream.datastream.stream_base import OperatorSettings, StreamBase, declared_type, transformation_of
from millstream.graph.transformations import Transformation
from millstream.operators.base import Operator
from millstream.operators.runtime.partitioners import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from millstream.operators.sink import InvokeOperator, SinkOperator
from millstream.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from millstream.connectors.spark_dataframes import EpochFunction
    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment


class DataStreamSink(OperatorSettings):
    """The end of a stream."""

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation) -> None:
        self._environment = environment
        self._transformation = transformation


class StreamOutputs(StreamBase[T_co]):
    """The part of DataStream that partitions it and sends it to sinks."""

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T_co]:
        raise NotImplementedError

    def rebalance(self) -> DataStream[T_co]:
        """Send records to all subtasks in turn."""
        return self._partitioned(RebalancePartitioner())

    def rescale(self) -> DataStream[T_co]:
        """Send records in turn to a share of the next operator's subtasks."""
        return self._partitioned(RescalePartitioner())

    def shuffle(self) -> DataStream[T_co]:
        """Send each record to a subtask drawn at random."""
        return self._partitioned(ShufflePartitioner())

    def forward(self) -> DataStream[T_co]:
        """Send records to the subtask of the same number."""
        return self._partitioned(ForwardPartitioner())

    def global_(self) -> DataStream[T_co]:
        """Send all records to the first subtask."""
        return self._partitioned(GlobalPartitioner())

    @overload
    def broadcast(self, broadcast_state_descriptor: None = None) -> DataStream[T_co]: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream[T_co]: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> Union[DataStream[T_co], BroadcastStream[T_co]]:
        """Send every record to every subtask; with descriptors, for broadcast state."""
        stream = self._partitioned(BroadcastPartitioner())
        if broadcast_state_descriptor is None:
            return stream
        return BroadcastStream(stream, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    @overload
    def partition_custom(
        self,
        partitioner: Callable[[KEY, int], int] | PartitionerFunction[KEY],
        key_selector: Callable[[T_co], KEY] | KeySelector[T_co, KEY],
    ) -> DataStream[T_co]: ...

    @overload
    def partition_custom(
        self, partitioner: Callable[[Key, int], int] | PartitionerFunction[Key], key_selector: int | str
    ) -> DataStream[T_co]: ...

    def partition_custom(self, partitioner: object, key_selector: object) -> DataStream[T_co]:
        """Send each record to the subtask that `partitioner(key, number_of_subtasks)` names."""
        function = as_user_function(partitioner, "partition", "partition_custom")
        return self._partitioned(CustomPartitioner(function, key_of(key_selector)))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every record; with more than one subtask each line begins with the subtask's number."""
        return self.sink_to(PrintSink(sink_identifier, self._type())).name("Print to Std. Out")

    def sink_to(self, sink: Sink[T_co]) -> DataStreamSink:
        """Send the stream to a sink."""
        if not isinstance(sink, Sink):
            raise InvalidProgramError(
                f"sink_to() takes a Sink, not {type(sink).__name__}; a SinkFunction goes to add_sink()."
            )
        transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
        stream = self if transformer is None else transformer.apply(self)
        return stream._end(sink.name, SinkOperator(sink.typed(declared_type(stream))))

    def to_spark(self, function: EpochFunction) -> DataStreamSink:
        """Pass the rows of every epoch as a Spark DataFrame to `function(frame, epoch)`, on the driver.

        With checkpoints, an epoch is passed on when its checkpoint is complete. After a failure the same epoch may be
        passed again, with the same number and rows: a function that is idempotent per number gives exactly-once
        results. Numbers increase. Not in PyFlink.

        Columns are the fields of the stream's rows, so their type must be declared.
        """
        from millstream.connectors.spark_dataframes import SparkFunctionSink

        return self.sink_to(SparkFunctionSink(function, self._environment.get_configuration()))

    def add_sink(
        self,
        sink_func: Callable[[T_co], object] | Callable[[T_co, Any], object] | SinkFunction[T_co] | Sink[T_co],
    ) -> DataStreamSink:
        """Call a SinkFunction, or a plain callable, for every record."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        return self._end("Sink", InvokeOperator(as_user_function(sink_func, "invoke", "add_sink")))

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T_co]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[T_co]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[T_co]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> Union[CloseableIterator[T_co], list[T_co]]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> Union[CloseableIterator[T_co], list[T_co]]:
        """Run the program and iterate over this stream's records; with a limit, return a list of the first ones.

        Example:
            >>> env = StreamExecutionEnvironment.get_execution_environment()
            >>> env.from_collection([1, 2, 3]).execute_and_collect(limit=2)
            [1, 2]
        """
        if limit is not None and limit < 1:
            raise InvalidProgramError(f"execute_and_collect(limit={limit}): the limit must be at least 1.")
        mailbox = Mailbox()
        sink = self.sink_to(DriverSink(mailbox.put))
        # The input's parallelism: a single subtask's records keep their order.
        widths = {1 if e.source.non_parallel else e.source.parallelism for e in self._ends}
        collecting = transformation_of(sink)
        collecting.parallelism = widths.pop() if len(widths) == 1 else None
        try:
            job = self._builder.start(job_execution_name, [collecting])
            results: CloseableIterator[T_co] = CloseableIterator(mailbox, job)
        finally:
            self._builder.discard(collecting)
        if limit is None:
            return results
        with results:
            return list(islice(results, limit))

    def _end(self, name: str, operator: Operator) -> DataStreamSink:
        transformation = self._builder.program.add(name, operator, self._ends)
        self._builder.add_sink(transformation)
        return DataStreamSink(self._environment, transformation)
