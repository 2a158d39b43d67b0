from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import EventTimeSessionWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Count(ProcessWindowFunction):
    def process(self, key, context, elements):
        state = context.global_state().get_state(ValueStateDescriptor("n", Types.INT()))
        state.update((state.value() or 0) + 1)
        yield "global", state.value()
        try:
            state = context.window_state().get_state(ValueStateDescriptor("m", Types.INT()))
            yield "window", state.value()
        except Exception as error:
            yield "refused", "Per-window state is not allowed when using merging windows" in str(error)


def main(env):
    stream = env.from_collection([("a", 1), ("a", 20)]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    out = (
        stream.key_by(lambda v: v[0])
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)))
        .process(Count())
    )
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
