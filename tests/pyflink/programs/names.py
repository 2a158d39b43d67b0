from pyflink.common import Row, Time, Types, WatermarkStrategy
from pyflink.datastream import OutputTag, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import CountTrigger, GlobalWindow, GlobalWindows, TumblingEventTimeWindows


class CoMap(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


class CoFlatMap(CoFlatMapFunction):
    def flat_map1(self, value):
        yield value

    def flat_map2(self, value):
        yield value


class CoProcess(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield value


class KeyedCoProcess(KeyedCoProcessFunction):
    process_element1 = CoProcess.process_element1
    process_element2 = CoProcess.process_element2


class Broadcast(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        yield value


class KeyedBroadcast(KeyedBroadcastProcessFunction):
    process_element = Broadcast.process_element
    process_broadcast_element = Broadcast.process_broadcast_element


class Same(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Key(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield repr(ctx.get_current_key())


class Windows(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield str(context.window()), list(elements)


def key(value):
    return value


def main(env):
    """The names of operators, the texts of windows, the types of tags, states and keys, and collections."""
    s = env.from_collection([1])
    keyed = s.key_by(key)
    rules = s.broadcast(MapStateDescriptor("rules", Types.INT(), Types.INT()))
    for stream in (
        *(s, s.map(str), s.flat_map(lambda v: [v]), s.filter(bool), s.process(Same())),
        *(keyed.map(str), keyed.flat_map(lambda v: [v]), keyed.filter(bool), keyed.process(Key())),
        *(keyed.reduce(lambda a, b: a), keyed.sum(0), keyed.min(0), keyed.max_by(0)),
        s.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()),
        env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers"),
        *(s.connect(s).map(CoMap()), s.connect(s).flat_map(CoFlatMap()), s.connect(s).process(CoProcess())),
        *(keyed.connect(keyed).map(CoMap()), keyed.connect(keyed).process(KeyedCoProcess())),
        *(keyed.count_window(2).reduce(lambda a, b: a), s.connect(rules).process(Broadcast())),
        keyed.connect(rules).process(KeyedBroadcast()),
        keyed.window(TumblingEventTimeWindows.of(Time.seconds(1))).process(Windows()),
        *(s.map(str).name("mine"), env.from_collection([1]).name("numbers")),
    ):
        print(stream.get_name())
    print(GlobalWindow(), repr(GlobalWindow()), OutputTag("a").type_info)
    print(ListStateDescriptor("l", Types.INT()).type_info, ValueStateDescriptor("v", Types.INT()).type_info)
    print(MapStateDescriptor("m", Types.INT(), Types.STRING()).type_info)
    print(*env.from_collection("abc").execute_and_collect())
    windows = env.from_collection([1, 2]).key_by(lambda v: 0).window(GlobalWindows.create())
    print(*windows.trigger(CountTrigger.of(0)).process(Windows()).execute_and_collect())
    for key_value, declared in (
        (Row(1, 2), Types.ROW([Types.INT(), Types.INT()])),
        (Row(1, 2), Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])),
        (Row(y=2, x=1), Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])),
        ((1, 2), Types.TUPLE([Types.INT(), Types.INT()])),
        (Row(1, 2), None),
    ):
        by_row = s.key_by(lambda v, key_value=key_value: key_value, declared)
        print(*by_row.process(Key()).execute_and_collect())
    for invalid_call in (
        lambda: s.map(5),
        lambda: s.filter(5),
        lambda: s.flat_map(None),
        lambda: s.key_by(None),
        lambda: keyed.reduce(5),
        lambda: keyed.sum(1.5),
        lambda: s.partition_custom(5, key),
        lambda: env.from_collection(5),
        lambda: OutputTag("a", 5),
    ):
        try:
            invalid_call()
        except TypeError:
            print("TypeError")
    for invalid_call in (lambda: OutputTag(None), lambda: OutputTag(""), lambda: Row(1, a=2)):
        try:
            invalid_call()
        except ValueError:
            print("ValueError")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
