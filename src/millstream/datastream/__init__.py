"""The user's API: environment, streams, functions, state, connectors."""

from millstream.datastream.collect import CloseableIterator
from millstream.datastream.data_stream import ConnectedStreams, DataStream, DataStreamSink, KeyedStream
from millstream.datastream.execution_mode import RuntimeExecutionMode
from millstream.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
)
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
