from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield context.window().start, context.window().end, [v[1] for v in elements]


def main(env):
    data = [("a", -7), ("a", 0), ("a", 2), ("a", 3), ("a", 12), ("a", 13)]
    ms = Time.milliseconds
    for assigner in (
        TumblingEventTimeWindows.of(ms(10), ms(3)),
        TumblingEventTimeWindows.of(ms(10), ms(-3)),
        SlidingEventTimeWindows.of(ms(10), ms(5), ms(2)),
    ):
        print(assigner)
        stream = env.from_collection(data).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        out = stream.key_by(lambda v: v[0]).window(assigner).process(Describe())
        for result in out.execute_and_collect():
            print(result)
    for build in (
        lambda: TumblingEventTimeWindows.of(ms(10), ms(10)),
        lambda: SlidingEventTimeWindows.of(ms(10), ms(5), ms(5)),
    ):
        try:
            build()
            print("accepted")
        except Exception as error:
            print(error)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
