from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Count(ProcessWindowFunction):
    """Counts the firings of the window, and of the key."""

    def __init__(self):
        self.fired = ValueStateDescriptor("fired", Types.INT())
        self.total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.INT())

    def process(self, key, context, elements):
        fired = context.window_state().get_state(self.fired)
        fired.update((fired.value() or 0) + 1)
        total = context.global_state().get_reducing_state(self.total)
        total.add(1)
        yield key, context.window().start, len(list(elements)), fired.value(), total.get()

    def clear(self, context):
        context.window_state().get_state(self.fired).clear()


def main(env):
    data = [("a", 1), ("a", 4), ("a", 7), ("a", 12), ("b", 6)]
    stream = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    out = (
        stream.key_by(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(5)))
        .process(Count())
    )
    results = list(out.execute_and_collect())
    for key in ("a", "b"):
        for result in results:
            if result[0] == key:
                print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
