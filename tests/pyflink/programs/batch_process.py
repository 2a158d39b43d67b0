from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Steps(KeyedProcessFunction):
    """In BATCH keys are processed in sequence: elements sorted by time, timers at the end of the key."""

    def open(self, runtime_context: RuntimeContext):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        ctx.timer_service().register_event_time_timer(value[1] + 3)
        yield value[0], "element", value[1], n, ctx.timer_service().current_watermark()

    def on_timer(self, timestamp, ctx):
        yield (
            ctx.get_current_key(),
            "timer",
            timestamp,
            self.n.value(),
            ctx.timer_service().current_watermark(),
        )


def main(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    data = [("a", 9), ("b", 2), ("a", 1), ("a", 5), ("b", 1)]
    stream = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    results = list(stream.key_by(lambda v: v[0]).process(Steps()).execute_and_collect())
    keys = [r[0] for r in results]
    print("one key after another", keys in (sorted(keys), sorted(keys, reverse=True)))
    for key in ("a", "b"):
        for result in results:
            if result[0] == key:
                print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
