from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def add(a, b):
    return a[0], a[1] + b[1]


def main(env):
    """All NaNs are one key."""
    numbers = [(float("nan"), 1), (float("nan"), 2), (1.5, 3), (float("nan"), 4)]
    pairs = env.from_collection(numbers, Types.TUPLE([Types.DOUBLE(), Types.INT()]))
    for result in pairs.key_by(lambda v: v[0], Types.DOUBLE()).reduce(add).execute_and_collect():
        print(result)
    for result in pairs.key_by(lambda v: (v[0], "a")).reduce(add).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
