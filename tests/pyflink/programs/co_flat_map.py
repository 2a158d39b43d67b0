from pyflink.common import Types
from pyflink.datastream import CoFlatMapFunction, StreamExecutionEnvironment


class Both(CoFlatMapFunction):
    def flat_map1(self, value):
        for i in range(value):
            yield i

    def flat_map2(self, value):
        return [len(word) * 100 for word in value.split()]


def main(env):
    a = env.from_collection([1, 2], type_info=Types.INT())
    b = env.from_collection(["x yy", "zzz"], type_info=Types.STRING())
    out = a.connect(b).flat_map(Both(), output_type=Types.INT())
    for value in sorted(out.execute_and_collect()):
        print(value)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
