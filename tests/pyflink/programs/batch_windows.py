from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    ProcessWindowFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, [v[1] for v in elements], context.current_watermark()


def main(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    ms = Time.milliseconds
    data = [("a", 25), ("b", 4), ("a", 9), ("a", 12), ("b", 3), ("a", 1), ("b", 19)]
    for assigner in (
        TumblingEventTimeWindows.of(ms(10)),
        SlidingEventTimeWindows.of(ms(10), ms(5)),
        EventTimeSessionWindows.with_gap(ms(4)),
    ):
        stream = env.from_collection(data).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        out = stream.key_by(lambda v: v[0]).window(assigner).process(Describe())
        print(type(assigner).__name__)
        for result in sorted(out.execute_and_collect()):
            print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
