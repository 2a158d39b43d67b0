from pyflink.common import WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Timers(KeyedProcessFunction):
    """Timers of several keys fire in time order, once per key and time."""

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        service.register_event_time_timer(value[1] + 100)
        service.register_event_time_timer(value[1] + 100)
        service.register_event_time_timer(value[1] - 50)
        yield "element", value, ctx.timestamp(), service.current_watermark()

    def on_timer(self, timestamp, ctx):
        yield (
            "timer",
            ctx.get_current_key(),
            timestamp,
            ctx.timestamp(),
            ctx.timer_service().current_watermark(),
            ctx.time_domain().name,
        )


def main(env):
    data = [("a", 10), ("b", 5), ("a", 7), ("b", 30), ("a", 10)]
    stream = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    for result in stream.key_by(lambda v: v[0]).process(Timers()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
