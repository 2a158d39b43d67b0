import time

from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class Timers(KeyedProcessFunction):
    """A processing-time timer that is due at the end of the input fires."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(value)
        time.sleep(0.1)
        yield "element", value

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.time_domain().name, timestamp


def main(env):
    for result in env.from_collection([5]).key_by(lambda v: v).process(Timers()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
