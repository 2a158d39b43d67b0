from pyflink.common import Types
from pyflink.datastream import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)


class Scale(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.factor = 10

    def map(self, value):
        return value * self.factor


class Even(FilterFunction):
    def filter(self, value):
        return value % 20 == 0


class Repeat(FlatMapFunction):
    def flat_map(self, value):
        for i in range(value // 20):
            yield value, i


def main(env):
    numbers = env.from_collection([1, 2, 3, 4, 5, 6])
    for result in numbers.map(Scale()).filter(Even()).flat_map(Repeat()).execute_and_collect():
        print(result)

    typed = env.from_collection([1, 2, 3], type_info=Types.INT())
    strings = typed.map(lambda v: "n" * v, output_type=Types.STRING())
    for result in strings.filter(lambda s: len(s) != 2).execute_and_collect():
        print(repr(result))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
