"""Functions that take 0.2 s per record: timers, other inputs and TTL do not wait for all of their records."""

import time

from pyflink.common import Time, Types
from pyflink.datastream import (
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from pyflink.datastream.window import TumblingProcessingTimeWindows

SECONDS = 0.2


def slowly(value):
    time.sleep(SECONDS)
    return value


class Alarm(KeyedProcessFunction):
    """Is slow behind a shuffle; the second record sets a timer that is due during the third."""

    def process_element(self, value, ctx):
        if value == 1:
            ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 450)
        time.sleep(0.3)
        yield "record %d" % value

    def on_timer(self, timestamp, ctx):
        yield "timer"


class Seen(KeyedProcessFunction):
    """Counts in a state whose TTL is shorter than the time until its key arrives again."""

    def __init__(self, function):
        self.function = function

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("seen", Types.INT())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(300)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield "%s: %d" % (self.function(value), count)


class Both(CoMapFunction):
    def map1(self, value):
        return "first %d" % slowly(value)

    def map2(self, value):
        return "second %d" % value


RULES = MapStateDescriptor("rules", Types.INT(), Types.INT())


class Apply(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        known = len(list(ctx.get_broadcast_state(RULES).items()))
        yield slowly(value), known

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, value)


class Count(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield len(list(elements))


def numbers(env, count):
    return env.from_collection(list(range(count)), type_info=Types.INT())


def main(env):
    for line in numbers(env, 5).key_by(lambda x: 0).process(Alarm()).execute_and_collect():
        print(line)
    names = env.from_collection(["a", "b", "c", "a", "b", "c"], type_info=Types.STRING())
    for line in names.key_by(lambda x: x).process(Seen(slowly)).execute_and_collect():
        print(line)
    slow_names = names.rebalance().map(slowly, Types.STRING())
    for line in slow_names.key_by(lambda x: x).process(Seen(str.upper)).execute_and_collect():
        print(line)
    connected = numbers(env, 4).rebalance().connect(numbers(env, 2).rebalance()).map(Both())
    lines = list(connected.execute_and_collect())
    print([line for line in lines if line.startswith("first")])
    print([line for line in lines if line.startswith("second")])
    print("all of the second is seen before the last of the first:", lines[-1] == "first 3")
    applied = numbers(env, 8).rebalance().connect(numbers(env, 2).broadcast(RULES)).process(Apply())
    pairs = list(applied.execute_and_collect())
    known = [rules for _, rules in pairs]
    # The time at which rules of a separate input arrive varies, but by less than eight records take.
    print([event for event, _ in pairs], "rules are never fewer:", known == sorted(known), "in the end:", known[-1])
    for stream in (numbers(env, 6), numbers(env, 6).rebalance()):
        windows = stream.map(slowly, Types.INT()).key_by(lambda x: 0).window(
            TumblingProcessingTimeWindows.of(Time.milliseconds(300))
        )
        counts = list(windows.process(Count(), Types.INT()).execute_and_collect())
        # The number of records in the last window, which the end of the input does not fire, varies.
        print("windows fire while the input is read:", len(counts) >= 2, "few in each:", max(counts) <= 3)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
