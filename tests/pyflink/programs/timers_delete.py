from pyflink.common import WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Timers(KeyedProcessFunction):
    def process_element(self, value, ctx):
        service = ctx.timer_service()
        service.register_event_time_timer(100)
        service.register_event_time_timer(200)
        service.register_event_time_timer(200)
        if value[0] == "a":
            service.delete_event_time_timer(200)
            service.delete_event_time_timer(999)
        service.register_event_time_timer(300)

    def on_timer(self, timestamp, ctx):
        if timestamp == 100:
            ctx.timer_service().delete_event_time_timer(300)
        yield ctx.get_current_key(), timestamp


def main(env):
    stream = env.from_collection([("a", 1), ("b", 2)]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    for result in sorted(stream.key_by(lambda v: v[0]).process(Timers()).execute_and_collect()):
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
