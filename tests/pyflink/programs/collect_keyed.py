from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """A keyed stream is collected as rows of key and value."""
    typed = env.from_collection(
        [("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.INT()])
    ).key_by(lambda v: v[0], Types.STRING())
    for result in typed.execute_and_collect():
        print(type(result).__name__, result, result[0], result[1])


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
