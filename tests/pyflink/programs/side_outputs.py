from pyflink.common import Types
from pyflink.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

LARGE = OutputTag("large", Types.STRING())
ODD = OutputTag("odd")


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        yield value
        if value > 3:
            yield LARGE, "large %d" % value
        if value % 2:
            yield ODD, ("odd", value)


def main(env):
    out = env.from_collection([1, 2, 3, 4, 5]).process(Split())
    large = out.get_side_output(LARGE)
    odd = out.get_side_output(ODD)
    print(large.get_type(), odd.get_type())
    together = out.map(lambda v: ("main", v)).union(
        large.map(lambda v: ("large", v)), odd.map(lambda v: ("odd", v))
    )
    for line in sorted(map(repr, together.execute_and_collect())):
        print(line)
    for bad in ("", None):
        try:
            OutputTag(bad)
        except ValueError as error:
            print(error)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
