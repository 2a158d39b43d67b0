from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().id, [v[1] for v in elements]


def main(env):
    """Only full windows fire; the rest at the end is dropped."""
    data = [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5), ("a", 6), ("a", 7)]
    stream = env.from_collection(data)
    for result in stream.key_by(lambda v: v[0]).count_window(2).process(Describe()).execute_and_collect():
        print(result)
    out = stream.key_by(lambda v: v[0]).count_window(2).reduce(lambda a, b: (a[0], a[1] + b[1]))
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
