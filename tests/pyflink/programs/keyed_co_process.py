from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Gather(KeyedCoProcessFunction):
    """One list state, filled from both inputs and read by a timer."""

    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.STRING()))

    def process_element1(self, value, ctx):
        self.seen.add("first:%s" % value[1])
        ctx.timer_service().register_event_time_timer(100)

    def process_element2(self, value, ctx):
        self.seen.add("second:%s" % value[1])
        ctx.timer_service().register_event_time_timer(100)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, sorted(self.seen)


def main(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    a = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
    b = env.from_collection([("a", 4), ("c", 5)])
    connected = a.assign_timestamps_and_watermarks(strategy).connect(b.assign_timestamps_and_watermarks(strategy))
    out = connected.key_by(lambda v: v[0], lambda v: v[0]).process(Gather())
    for line in sorted(map(repr, out.execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
