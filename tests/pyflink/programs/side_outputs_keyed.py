from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, OutputTag, StreamExecutionEnvironment

SEEN = OutputTag("seen", Types.TUPLE([Types.STRING(), Types.LONG()]))
FIRED = OutputTag("fired", Types.LONG())


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Split(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1] + 10)
        yield SEEN, value

    def on_timer(self, timestamp, ctx):
        yield FIRED, timestamp
        yield ctx.get_current_key(), "timer"


def main(env):
    stream = env.from_collection([("a", 3), ("b", 1), ("a", 2)]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    out = stream.key_by(lambda v: v[0]).process(Split())
    together = out.map(lambda v: ("main", v)).union(
        out.get_side_output(SEEN).map(lambda v: ("seen", v)),
        out.get_side_output(FIRED).map(lambda v: ("fired", v)),
    )
    for line in sorted(map(repr, together.execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
