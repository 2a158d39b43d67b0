from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    stream = env.from_collection([5, 6, 7], type_info=Types.INT())
    with stream.execute_and_collect() as results:
        print([v for v in results])
    print(list(stream.execute_and_collect("a name")))
    limited = stream.execute_and_collect(limit=2)
    print(type(limited).__name__, limited)
    print(stream.execute_and_collect("a name", 5))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
