import time

from pyflink.common import Duration, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Watch(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def slowly(value):
    """The ticks leave time for the periodic watermark between the elements that matter."""
    if value[0] == "tick":
        time.sleep(0.1)
    return value


def main(env):
    env.get_config().set_auto_watermark_interval(20)
    data = []
    for element in [("a", 10), ("a", 20), ("a", 12), ("a", 40), ("a", 3)]:
        data += [element] + [("tick", 0)] * 4
    stream = (
        env.from_collection(data)
        .rebalance()
        .map(slowly)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_bounded_out_of_orderness(
                Duration.of_millis(7)
            ).with_timestamp_assigner(At())
        )
        .filter(lambda v: v[0] != "tick")
    )
    for result in stream.key_by(lambda v: v[0]).process(Watch()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
