from pyflink.common import WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element[2]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, context.window().end, sorted(v[1] for v in elements)


def main(env):
    data = [("a", 0, 20), ("a", 5, 2), ("a", 25, 5), ("a", 19, 1), ("a", 40, 1), ("a", 28, 12)]
    stream = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    out = (
        stream.key_by(lambda v: v[0])
        .window(EventTimeSessionWindows.with_dynamic_gap(Gap()))
        .process(Describe())
    )
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
