"""Functions that take a fifth of a second for a record: what else has come due does not wait for all of them."""

import time

from pyflink.common import Time, Types
from pyflink.datastream import (
    CoMapFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import StateTtlConfig, ValueStateDescriptor
from pyflink.datastream.window import TumblingProcessingTimeWindows

SECONDS = 0.2


def slowly(value):
    time.sleep(SECONDS)
    return value


class Alarm(KeyedProcessFunction):
    """Is slow behind a shuffle, and sets a timer with the second record that comes due during the third."""

    def process_element(self, value, ctx):
        if value == 1:
            ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 450)
        time.sleep(0.3)
        yield "record %d" % value

    def on_timer(self, timestamp, ctx):
        yield "timer"


class Seen(KeyedProcessFunction):
    """Counts in a state that lives for less time than it takes until its key comes again."""

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("seen", Types.INT())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(300)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        slowly(value)
        yield "%s: %d" % (value, count)


class Both(CoMapFunction):
    def map1(self, value):
        return "first %d" % slowly(value)

    def map2(self, value):
        return "second %d" % value


class Count(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield len(list(elements))


def numbers(env, count):
    return env.from_collection(list(range(count)), type_info=Types.INT())


def main(env):
    for line in numbers(env, 5).key_by(lambda x: 0).process(Alarm()).execute_and_collect():
        print(line)
    names = env.from_collection(["a", "b", "a", "b"], type_info=Types.STRING())
    for line in names.key_by(lambda x: x).process(Seen()).execute_and_collect():
        print(line)
    connected = numbers(env, 4).rebalance().connect(numbers(env, 2).rebalance()).map(Both())
    lines = list(connected.execute_and_collect())
    print([line for line in lines if line.startswith("first")])
    print([line for line in lines if line.startswith("second")])
    print("all of the second is seen before the last of the first:", lines[-1] == "first 3")
    windows = numbers(env, 6).map(slowly, Types.INT()).key_by(lambda x: 0).window(
        TumblingProcessingTimeWindows.of(Time.milliseconds(300))
    )
    counts = list(windows.process(Count(), Types.INT()).execute_and_collect())
    print("windows fire while the input is read:", len(counts) >= 2)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
