from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ReducingStateDescriptor
from pyflink.datastream.window import GlobalWindows, Trigger, TriggerResult


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class OnCommand(Trigger):
    """Executes the command in each element; a timer fires the rest at the end."""

    def __init__(self):
        self.count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    def on_element(self, element, timestamp, window, ctx):
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        ctx.register_event_time_timer(1000)
        command = element[2]
        if command == "fire":
            return TriggerResult.FIRE
        if command == "fire_purge":
            return TriggerResult.FIRE_AND_PURGE
        if command == "purge":
            return TriggerResult.PURGE
        if count.get() == 7:
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.FIRE_AND_PURGE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.count).clear()


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield [v[1] for v in elements]


def main(env):
    commands = ["keep", "fire", "fire_purge", "keep", "purge", "keep", "seventh", "keep", "keep"]
    data = [("a", i, command) for i, command in enumerate(commands, 1)]
    stream = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    )
    out = (
        stream.key_by(lambda v: v[0])
        .window(GlobalWindows.create())
        .trigger(OnCommand())
        .process(Describe())
    )
    for result in out.execute_and_collect():
        print(result)
    print([(r.name, r.is_fire(), r.is_purge()) for r in TriggerResult])


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
