from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedBroadcastProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Apply(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG()))

    def process_element(self, value, ctx):
        self.values.add(value[1])
        ctx.timer_service().register_event_time_timer(100)
        yield "seen", ctx.get_current_key(), ctx.timestamp()

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        yield "rule", value

    def on_timer(self, timestamp, ctx):
        rules = ctx.get_broadcast_state(RULES)
        yield (
            "timer",
            timestamp,
            ctx.get_current_key(),
            rules.get(ctx.get_current_key()),
            list(self.values),
        )


def main(env):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    data = env.from_collection([("a", 1), ("b", 2), ("a", 3), ("c", 4)])
    rules = env.from_collection([("a", 10), ("b", 20)])
    out = (
        data.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda v: v[0])
        .connect(rules.assign_timestamps_and_watermarks(strategy).broadcast(RULES))
        .process(Apply())
    )
    for line in sorted(map(repr, out.execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
