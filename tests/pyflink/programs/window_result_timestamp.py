from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.window import TumblingEventTimeWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Stamp(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def main(env):
    """A window's result has the window's last timestamp, so windows can be chained."""
    data = [("a", 1), ("a", 9), ("a", 10), ("a", 19), ("a", 20)]
    stream = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    small = (
        stream.key_by(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    large = (
        small.key_by(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    for result in large.key_by(lambda v: v[0]).process(Stamp()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
