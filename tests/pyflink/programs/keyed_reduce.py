from pyflink.datastream import ReduceFunction, StreamExecutionEnvironment


class Join(ReduceFunction):
    def reduce(self, value1, value2):
        return value1[0], value1[1] + value2[1]


def main(env):
    data = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4"), ("b", "5")]
    for result in env.from_collection(data).key_by(lambda v: v[0]).reduce(Join()).execute_and_collect():
        print(result)
    numbers = env.from_collection([1, 2, 3, 4, 5, 6])
    for result in numbers.key_by(lambda v: v % 2).reduce(lambda a, b: a * b).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
