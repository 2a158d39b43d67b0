from pyflink.datastream import ProcessFunction, StreamExecutionEnvironment


class Timers(ProcessFunction):
    def process_element(self, value, ctx):
        yield "watermark", ctx.timer_service().current_watermark()
        yield "processing time", ctx.timer_service().current_processing_time() > 0
        try:
            ctx.timer_service().register_event_time_timer(10)
            yield "accepted"
        except Exception as error:
            yield "refused", "only supported on a keyed stream" in str(error).lower()


def main(env):
    for result in env.from_collection([1]).process(Timers()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
