from pyflink.datastream import CoProcessFunction, OutputTag, StreamExecutionEnvironment

SIDE = OutputTag("side")


class Both(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield "first", value
        yield SIDE, ("first", value)

    def process_element2(self, value, ctx):
        yield "second", value, ctx.timestamp()


def main(env):
    a = env.from_collection([1, 2])
    b = env.from_collection(["x"])
    out = a.connect(b).process(Both())
    both = out.map(lambda v: ("main", v)).union(
        out.get_side_output(SIDE).map(lambda v: ("side", v))
    )
    for line in sorted(map(repr, both.execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
