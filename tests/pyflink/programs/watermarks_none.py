import time

from pyflink.common import WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] if record_timestamp < 0 else record_timestamp + 1000


class Watch(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(1)
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, ctx.timer_service().current_watermark()


def slowly(value):
    time.sleep(0.1)
    return value


def main(env):
    """Without watermarks: timestamps are set, but event time does not advance until the end.

    A second assigner receives the timestamp that the first one set.
    """
    env.get_config().set_auto_watermark_interval(20)
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(At())
    stream = (
        env.from_collection([("a", 10), ("a", 20)])
        .rebalance()
        .map(slowly)
        .assign_timestamps_and_watermarks(strategy)
        .assign_timestamps_and_watermarks(strategy)
    )
    for result in stream.key_by(lambda v: v[0]).process(Watch()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
