from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from pyflink.datastream.window import TumblingEventTimeWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, list(elements)


class DescribeApplied(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, window.start, list(inputs))]


DATA = [("a", 1), ("b", 4), ("a", 9), ("a", 10), ("b", 3), ("a", 25), ("a", 2), ("b", 19)]


def main(env):
    def windowed():
        stream = env.from_collection(DATA).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        return stream.key_by(lambda v: v[0]).window(
            TumblingEventTimeWindows.of(Time.milliseconds(10))
        )

    for out in (
        windowed().aggregate(Mean()),
        windowed().aggregate(
            Mean(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
            output_type=Types.DOUBLE(),
        ),
        windowed().aggregate(Mean(), window_function=Describe()),
        windowed().aggregate(Mean(), DescribeApplied()),
    ):
        print(out.get_type())
        for line in sorted(map(repr, out.execute_and_collect())):
            print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
