from pyflink.datastream import (
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)


class Timers(KeyedProcessFunction):
    """In BATCH a processing-time timer fires at the end of its key, even if it is not due."""

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 3600000)
        yield "element", value

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key(), ctx.time_domain().name


def main(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    out = env.from_collection([1, 2]).key_by(lambda v: v).process(Timers())
    for line in sorted(map(repr, out.execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
