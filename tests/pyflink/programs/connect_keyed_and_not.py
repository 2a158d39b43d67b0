from pyflink.common import Types
from pyflink.datastream import CoMapFunction, CoProcessFunction, StreamExecutionEnvironment


class Shown(CoMapFunction):
    def map1(self, value):
        return "1 " + repr(value)

    def map2(self, value):
        return "2 " + repr(value)


class Processed(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield "1 " + repr(value)

    def process_element2(self, value, ctx):
        yield "2 " + repr(value)


def main(env):
    pairs = env.from_collection([("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))
    keyed, other = pairs.key_by(lambda v: v[0], Types.STRING()), env.from_collection([7])
    for connected in (keyed.connect(other), other.connect(keyed)):
        print(sorted(connected.map(Shown()).execute_and_collect()))
        print(sorted(connected.process(Processed()).execute_and_collect()))
    both = keyed.connect(other).key_by(lambda v: v[1], lambda v: v, Types.INT())
    print(sorted(both.map(Shown()).execute_and_collect()))
    print(list(keyed.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
