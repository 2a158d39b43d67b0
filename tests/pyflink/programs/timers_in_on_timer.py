from pyflink.common import WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Timers(KeyedProcessFunction):
    """A timer set by a timer fires too, even if its time has passed."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(100)
        ctx.timer_service().register_event_time_timer(250)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp
        if timestamp == 100:
            ctx.timer_service().register_event_time_timer(200)
            ctx.timer_service().register_event_time_timer(50)
        elif timestamp == 200:
            ctx.timer_service().register_event_time_timer(300)


def main(env):
    stream = env.from_collection([("a", 1)]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    for result in stream.key_by(lambda v: v[0]).process(Timers()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
