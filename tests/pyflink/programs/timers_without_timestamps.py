from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class Timers(KeyedProcessFunction):
    """Without timestamps and watermarks the final watermark still fires timers."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10)
        ctx.timer_service().register_event_time_timer(9223372036854775807)
        yield "element", value, ctx.timestamp(), ctx.timer_service().current_watermark()

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, ctx.timestamp(), ctx.timer_service().current_watermark()


def main(env):
    for result in env.from_collection([1]).key_by(lambda v: v).process(Timers()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
