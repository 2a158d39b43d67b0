from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    untyped = env.from_collection([("a", 1), ("b", 2)])
    for result in untyped.key_by(lambda v: v[0]).execute_and_collect():
        print(type(result).__name__, result, result[1])
    typed = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    for result in typed.key_by(lambda v: v[0], Types.STRING()).execute_and_collect():
        print(type(result).__name__, result, result[1])


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
