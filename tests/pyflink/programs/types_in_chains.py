from collections import namedtuple

from pyflink.common import Types
from pyflink.datastream import ProcessFunction, StreamExecutionEnvironment

Pair = namedtuple("Pair", "first second")


class Text(ProcessFunction):
    def process_element(self, value, ctx):
        yield str(value)


def main(env):
    """Chained functions pass values unchanged, regardless of the declared type."""
    pairs = Types.TUPLE([Types.INT(), Types.INT()])
    for value, declared in (
        (1.5, Types.INT()),
        ((1, 2, 3), pairs),
        ((1, 2), Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])),
        ({1: "a", "b": 2}, Types.MAP(Types.STRING(), Types.INT())),
    ):
        stream = env.from_collection([0]).map(lambda _, value=value: value, output_type=declared)
        print(*stream.filter(lambda v: True).map(str).execute_and_collect())
        print(*stream.process(Text()).execute_and_collect())
    named = env.from_collection([0]).map(lambda _: Pair(1, 2), output_type=pairs)
    print(*named.map(lambda pair: pair.second).execute_and_collect())
    several = env.from_collection([0]).flat_map(lambda _: [1.5, "a"], output_type=Types.INT())
    print(*several.map(str).execute_and_collect())


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
