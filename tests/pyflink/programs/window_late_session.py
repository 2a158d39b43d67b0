import time

from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import EventTimeSessionWindows


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield window.start, window.end, sorted(v[1] for v in elements)


def slowly(value):
    """The ticks leave time for the periodic watermark between the elements that matter."""
    if value[0] == "tick":
        time.sleep(0.1)
    return value


def main(env):
    """A late element within the allowed lateness extends its session, and the whole session fires again."""
    env.get_config().set_auto_watermark_interval(20)
    data = []
    for at in (10, 30, 12, 5, 60, 11):
        data += [("a", at)] + [("tick", 0)] * 4
    stream = (
        env.from_collection(data)
        .rebalance()
        .map(slowly)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        .filter(lambda v: v[0] != "tick")
    )
    out = (
        stream.key_by(lambda v: v[0])
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(6)))
        .allowed_lateness(20)
        .process(Describe())
    )
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
