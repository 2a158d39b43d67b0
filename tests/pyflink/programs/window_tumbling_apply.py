from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment, WindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Sum(WindowFunction):
    def apply(self, key, window, inputs):
        values = [v[1] for v in inputs]
        yield key, sum(values)
        if len(values) > 1:
            yield key, -len(values)


def main(env):
    data = [("a", 25), ("a", 3), ("a", 9), ("a", 1), ("a", 10)]
    stream = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    out = (
        stream.key_by(lambda v: v[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .apply(Sum(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
    )
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
