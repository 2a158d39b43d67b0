from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import EventTimeSessionWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, list(elements)


class Collect(AggregateFunction):
    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return accumulator + [value[1]]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


# Each element extends at most one session: none merges two.
DATA = [("a", 10), ("b", 10), ("a", 15), ("a", 12), ("a", 41), ("a", 8), ("b", 100), ("a", 21)]


def main(env):
    def windowed():
        stream = env.from_collection(DATA).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        return stream.key_by(lambda v: v[0]).window(
            EventTimeSessionWindows.with_gap(Time.milliseconds(7))
        )

    for out in (
        windowed().process(Describe()),
        windowed().aggregate(Collect(), window_function=Describe()),
        windowed().reduce(lambda a, b: (a[0], a[1] + b[1]), window_function=Describe()),
        windowed().reduce(lambda a, b: (a[0], a[1] + b[1])),
    ):
        for line in sorted(map(repr, out.execute_and_collect())):
            print(line)
        print("-")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
