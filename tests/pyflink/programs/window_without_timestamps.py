from pyflink.common import Time
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.window import TumblingEventTimeWindows


def main(env):
    out = (
        env.from_collection([("a", 1)])
        .key_by(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .reduce(lambda a, b: a)
    )
    try:
        print(list(out.execute_and_collect()))
    except Exception as error:
        print("did you forget to call 'data_stream.assign_timestamps_and_watermarks" in str(error))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
