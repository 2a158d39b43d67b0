from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Timers(KeyedProcessFunction):
    """Timers that are set, deleted or set again while others fire take effect at once; no two keys share a time."""

    def __init__(self, delays, change):
        self.delays = delays
        self.change = change

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value, ctx):
        for delay in self.delays:
            ctx.timer_service().register_event_time_timer(value[1] + delay)

    def on_timer(self, timestamp, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield "%s%d" % (ctx.get_current_key(), timestamp)
        self.change(ctx.timer_service(), timestamp, count)


def set_earlier(service, timestamp, count):
    if 50 < timestamp:
        service.register_event_time_timer(timestamp - 50)


def set_the_same(service, timestamp, count):
    if count < 4:
        service.register_event_time_timer(timestamp)


def delete_the_next(service, timestamp, count):
    service.delete_event_time_timer(timestamp + 10)


def delete_and_set(service, timestamp, count):
    service.delete_event_time_timer(timestamp + 10)
    if count % 2:
        service.register_event_time_timer(timestamp + 10)
        service.register_event_time_timer(timestamp + 10)


def set_the_end_of_time(service, timestamp, count):
    if count < 3:
        service.register_event_time_timer(9223372036854775807)


def mix(service, timestamp, count):
    choice = (timestamp * 7 + count * 3) % 11
    if count > 25:
        return
    if choice < 3:
        service.delete_event_time_timer(timestamp + 30)
    elif choice < 5:
        service.register_event_time_timer(timestamp + 10 * choice)
    elif choice < 7:
        service.register_event_time_timer(timestamp - 10 * choice)
    elif choice < 8:
        service.delete_event_time_timer(timestamp)
        service.register_event_time_timer(timestamp)


def main(env):
    for delays, change in (
        ((100,), set_earlier),
        ((0,), set_the_same),
        ((0, 10, 20, 30), delete_the_next),
        ((0, 10, 20, 30), delete_and_set),
        ((-5000, 0), set_the_end_of_time),
        (range(0, 300, 30), mix),
        (range(0, 300, 20), mix),
    ):
        keys = "a" if change is set_the_end_of_time else "abcad"
        stream = env.from_collection([(key, i) for i, key in enumerate(keys)]).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        results = stream.key_by(lambda v: v[0]).process(Timers(delays, change)).execute_and_collect()
        print(change.__name__, *results)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
