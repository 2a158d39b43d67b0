from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class Timers(KeyedProcessFunction):
    """In STREAMING a processing-time timer that is not due at the end of the input never fires."""

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 3600000)
        yield "element", value

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.time_domain().name


def main(env):
    for result in env.from_collection([1, 2]).key_by(lambda v: v).process(Timers()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
