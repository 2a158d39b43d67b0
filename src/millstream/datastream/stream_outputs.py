"""Outputs of a stream: partitioning, sinks, and collection in the program."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Union, overload

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
)
from millstream.datastream.functions import Partitioner as PartitionerFunction
from millstream.datastream.live_view import MAX_ROWS, LastValues, LiveView, check_notebook
from millstream.datastream.stream_base import OperatorSettings, StreamBase, declared_type, transformation_of
from millstream.datastream.stream_functions import as_user_function, key_of
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
    from millstream.jobmaster.job import JobMaster


class DataStreamSink(OperatorSettings):
    """The end of a stream: a sink, whose name, uid and parallelism can be set like those of an operator.

    Example:
        >>> sink = env.from_collection([1, 2]).print().name("numbers").set_parallelism(1)
        >>> sink.get_name()
        'numbers'
    """

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation) -> None:
        self._environment = environment
        self._transformation = transformation


class StreamOutputs(StreamBase[T_co]):
    """The part of DataStream that partitions it and sends it to sinks."""

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T_co]:
        raise NotImplementedError

    def rebalance(self) -> DataStream[T_co]:
        """Send records to the next operator's subtasks in turn, against data skew.

        Example:
            >>> numbers = env.set_parallelism(2).from_collection([1, 2, 3, 4]).rebalance().map(lambda x: x * 10)
            >>> sorted(numbers.execute_and_collect())
            [10, 20, 30, 40]
        """
        return self._partitioned(RebalancePartitioner())

    def rescale(self) -> DataStream[T_co]:
        """Send records in turn to a fixed part of the next operator's subtasks: fewer channels than `rebalance()`.

        Example:
            >>> numbers = env.set_parallelism(2).from_collection([1, 2, 3, 4]).rescale().map(lambda x: x * 10)
            >>> sorted(numbers.execute_and_collect())
            [10, 20, 30, 40]
        """
        return self._partitioned(RescalePartitioner())

    def shuffle(self) -> DataStream[T_co]:
        """Send each record to a random subtask; unlike in Flink, the generator has a fixed seed, so that runs repeat.

        Example:
            >>> numbers = env.set_parallelism(2).from_collection([1, 2, 3, 4]).shuffle().map(lambda x: x * 10)
            >>> sorted(numbers.execute_and_collect())
            [10, 20, 30, 40]
        """
        return self._partitioned(ShufflePartitioner())

    def forward(self) -> DataStream[T_co]:
        """Send records to the next operator's subtask of the same number; both need the same parallelism.

        Example:
            >>> list(env.from_collection([1, 2, 3]).forward().map(lambda x: x * 10).execute_and_collect())
            [10, 20, 30]
        """
        return self._partitioned(ForwardPartitioner())

    def global_(self) -> DataStream[T_co]:
        """Send all records to the first subtask of the next operator.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class Subtask(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.index = runtime_context.get_index_of_this_subtask()
            ...     def map(self, value):
            ...         return value, self.index
            >>> list(env.set_parallelism(4).from_collection([1, 2, 3]).global_().map(Subtask()).execute_and_collect())
            [(1, 0), (2, 0), (3, 0)]
        """
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
        """Send every record to every subtask; with descriptors, return a BroadcastStream, for broadcast state.

        Example:
            >>> rates = env.set_parallelism(2).from_collection([("eur", 2), ("usd", 3)])
            >>> sorted(rates.broadcast().map(lambda rate: rate[0]).execute_and_collect())
            ['eur', 'eur', 'usd', 'usd']
        """
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
        """Send each record to the subtask that `partitioner(key, number_of_subtasks)` returns.

        Args:
            partitioner: a function, or a Partitioner.
            key_selector: a function of the record, a KeySelector, or the index or name of a field.

        Example:
            >>> numbers = env.set_parallelism(2).from_collection([7, 8, 9])
            >>> by_parity = numbers.partition_custom(lambda key, subtasks: key % subtasks, lambda value: value)
            >>> sorted(by_parity.map(lambda value: value * 10).execute_and_collect())
            [70, 80, 90]
        """
        function = as_user_function(partitioner, "partition", "partition_custom")
        return self._partitioned(CustomPartitioner(function, key_of(key_selector)))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every record; with several subtasks each line begins with the subtask's number.

        The driver prints after each epoch; in Flink each TaskManager prints to its own file.

        Example:
            >>> _ = env.from_collection([1, 2]).print()
            >>> _ = env.execute()
            1
            2
        """
        return self.sink_to(PrintSink(sink_identifier, self._type())).name("Print to Std. Out")

    def sink_to(self, sink: Sink[T_co]) -> DataStreamSink:
        """Send the stream to a sink, for example a FileSink; `execute()` runs it.

        Example:
            >>> from millstream.testing import CollectSink
            >>> sink = CollectSink()
            >>> _ = env.from_collection([1, 2, 3]).sink_to(sink)
            >>> _ = env.execute()
            >>> sink.results()
            [1, 2, 3]
        """
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

        Example:
            >>> from millstream.common import Types
            >>> person = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
            >>> people = env.from_collection([("ann", 30), ("bob", 25)], person)
            >>> _ = people.to_spark(lambda frame, epoch: frame.show())
            >>> _ = env.execute()
            +----+---+
            |name|age|
            +----+---+
            | ann| 30|
            | bob| 25|
            +----+---+
            <BLANKLINE>
        """
        from millstream.connectors.spark_dataframes import SparkFunctionSink

        return self.sink_to(SparkFunctionSink(function, self._environment.get_configuration()))

    def add_sink(
        self,
        sink_func: Callable[[T_co], object] | Callable[[T_co, None], object] | SinkFunction[T_co] | Sink[T_co],
    ) -> DataStreamSink:
        """Call a SinkFunction, or a plain callable, for every record, in the subtask that has it.

        After a failure, records since the last checkpoint are passed again; a sink for `sink_to()` can avoid that.

        Example:
            >>> _ = env.from_collection([1, 2, 3]).add_sink(lambda value: print("got", value))
            >>> _ = env.execute()
            got 1
            got 2
            got 3
        """
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

        The job is cancelled when the iterator is closed, interrupted or garbage-collected; in Flink only by `close()`.

        Example:
            >>> env.from_collection([1, 2, 3]).execute_and_collect(limit=2)
            [1, 2]
            >>> with env.from_collection([1, 2, 3]).execute_and_collect() as numbers:
            ...     print(next(numbers))
            1
        """
        if limit is not None and limit < 1:
            raise InvalidProgramError(f"execute_and_collect(limit={limit}): the limit must be at least 1.")
        results, _ = self._collected(job_execution_name)
        if limit is None:
            return results
        with results:
            return list(islice(results, limit))

    def show_live(self, max_rows: int = MAX_ROWS) -> LiveView[T_co]:
        """Run the program and show the last records of this stream in a notebook, while they arrive. Not in PyFlink.

        The job runs in the background; the returned view has `stop()` and `wait()`, and a Stop button if ipywidgets is
        installed.

        Args:
            max_rows: the number of records to show.
        """
        check_notebook("show_live")
        results, job = self._collected(None)
        return LiveView(results, LastValues(max_rows), job)

    def _collected(self, job_name: str | None) -> tuple[CloseableIterator[T_co], JobMaster]:
        """Start a job that returns the records of this stream."""
        mailbox = Mailbox()
        sink = self.sink_to(DriverSink(mailbox.put))
        # The input's parallelism: a single subtask's records keep their order.
        widths = {1 if e.source.non_parallel else e.source.parallelism for e in self._ends}
        collecting = transformation_of(sink)
        collecting.parallelism = widths.pop() if len(widths) == 1 else None
        try:
            job = self._builder.start(job_name, [collecting])
            return CloseableIterator(mailbox, job), job
        finally:
            self._builder.discard(collecting)

    def _end(self, name: str, operator: Operator) -> DataStreamSink:
        transformation = self._builder.program.add(name, operator, self._ends)
        self._builder.add_sink(transformation)
        return DataStreamSink(self._environment, transformation)
