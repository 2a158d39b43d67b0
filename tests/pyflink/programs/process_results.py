from pyflink.datastream import ProcessFunction, StreamExecutionEnvironment


class Forms(ProcessFunction):
    def process_element(self, value, ctx):
        if value == 0:
            return None
        if value == 1:
            return []
        if value == 2:
            return [(2, "list")]
        if value == 3:
            return (3, "tuple")
        return (("generated", i) for i in range(2))


def main(env):
    for result in env.from_collection([0, 1, 2, 3, 4]).process(Forms()).execute_and_collect():
        print(repr(result))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
