from pyflink.common import Types
from pyflink.datastream import CoMapFunction, StreamExecutionEnvironment


class Both(CoMapFunction):
    def map1(self, value):
        return "first", value + 1

    def map2(self, value):
        return "second", value.upper()


class Sparse(CoMapFunction):
    """A map that returns None emits nothing; other false values are emitted."""

    def map1(self, value):
        return 0 if value == 1 else value

    def map2(self, value):
        pass


def main(env):
    a = env.from_collection([1, 2], type_info=Types.INT())
    b = env.from_collection(["x", "y"], type_info=Types.STRING())
    for line in sorted(map(repr, a.connect(b).map(Both()).execute_and_collect())):
        print(line)
    for line in sorted(map(repr, a.connect(b).map(Sparse()).execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
