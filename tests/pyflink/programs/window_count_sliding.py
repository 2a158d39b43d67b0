from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().id, list(elements)


def main(env):
    for size, slide in ((3, 1), (4, 2), (2, 3)):
        print(size, slide)
        out = (
            env.from_collection(list(range(1, 8)))
            .key_by(lambda v: 0)
            .count_window(size, slide)
            .process(Describe())
        )
        for result in out.execute_and_collect():
            print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
