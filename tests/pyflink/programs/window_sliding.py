from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import SlidingEventTimeWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, [v[1] for v in elements]


def main(env):
    data = [("a", 1), ("b", 4), ("a", 9), ("a", 12), ("b", 30)]
    ms = Time.milliseconds
    for size, slide in ((10, 5), (10, 4), (5, 10)):
        stream = env.from_collection(data).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        out = (
            stream.key_by(lambda v: v[0])
            .window(SlidingEventTimeWindows.of(ms(size), ms(slide)))
            .process(Describe())
        )
        print(size, slide)
        for result in sorted(out.execute_and_collect()):
            print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
