from pyflink.common import Types
from pyflink.datastream import CoMapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ReducingStateDescriptor


class Total(CoMapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_reducing_state(
            ReducingStateDescriptor("count", lambda a, b: a + b, Types.INT())
        )

    def map1(self, value):
        self.count.add(1)
        return value[0], self.count.get()

    def map2(self, value):
        self.count.add(1)
        return value[0], self.count.get()


def main(env):
    a = env.from_collection([("a", 1), ("b", 1), ("a", 1)])
    b = env.from_collection([("a", 1), ("c", 1)])
    out = a.key_by(lambda v: v[0]).connect(b.key_by(lambda v: v[0])).map(Total())
    print(sorted(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
