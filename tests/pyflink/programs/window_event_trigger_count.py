from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import CountTrigger, EventTimeTrigger, TumblingEventTimeWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield context.window().start, [v[1] for v in elements]


def main(env):
    """A count trigger on time windows counts per window and does not emit the rest."""
    data = [("a", 1), ("a", 12), ("a", 4), ("a", 9), ("a", 13), ("a", 2)]
    for trigger in (CountTrigger.of(2), EventTimeTrigger.create()):
        stream = env.from_collection(data).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        out = (
            stream.key_by(lambda v: v[0])
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .trigger(trigger)
            .process(Describe())
        )
        print(type(trigger).__name__)
        for result in out.execute_and_collect():
            print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
