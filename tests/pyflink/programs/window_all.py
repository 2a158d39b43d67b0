from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import AggregateFunction, StreamExecutionEnvironment
from pyflink.datastream.functions import AllWindowFunction, ProcessAllWindowFunction
from pyflink.datastream.window import (
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    TumblingEventTimeWindows,
)


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


class Describe(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield context.window().start, context.window().end, list(elements)


class Apply(AllWindowFunction):
    def apply(self, window, inputs):
        yield window.max_timestamp(), sum(inputs)


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


def main(env):
    stream = env.from_collection([25, 3, 9, 1, 10, 14]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(10))
    session = EventTimeSessionWindows.with_gap(Time.milliseconds(5))
    for name, out in (
        ("process", stream.window_all(tumbling).process(Describe())),
        ("apply", stream.window_all(tumbling).apply(Apply())),
        ("reduce", stream.window_all(tumbling).reduce(lambda a, b: a + b)),
        ("aggregate", stream.window_all(tumbling).aggregate(Count())),
        ("both", stream.window_all(tumbling).aggregate(Count(), Describe())),
        ("session", stream.window_all(session).process(Describe())),
        ("count", stream.window_all(CountTumblingWindowAssigner.of(4)).reduce(lambda a, b: a + b)),
    ):
        print(name, list(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
