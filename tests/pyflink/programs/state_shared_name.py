from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor


class Twice(KeyedProcessFunction):
    """Two handles with the same name are the same state in one operator, but not in two operators."""

    def open(self, runtime_context: RuntimeContext):
        self.one = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))
        self.two = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

    def process_element(self, value, ctx):
        before = self.two.value()
        self.one.update(value[1])
        yield value[0], value[1], before, self.two.value()


def main(env):
    data = [("a", 1), ("a", 2), ("b", 3)]
    first = env.from_collection(data).key_by(lambda v: v[0]).process(Twice())
    second = first.map(lambda v: (v[0], v[1] * 10)).key_by(lambda v: v[0]).process(Twice())
    print(list(second.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
