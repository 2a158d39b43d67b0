from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor


class Number(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value, ctx.get_current_key(), n


def main(env):
    """Keys may be lists, rows, tuples or None."""
    for data, key in (
        ([1, 2, 3], lambda v: [v % 2, "x"]),
        ([1, 2, 3], lambda v: Row(v % 2, "x")),
        ([1, 2, 3], lambda v: (v % 2, None)),
        ([1, 2, 3], lambda v: None),
        ([1, 2, 3], lambda v: {"k": v % 2}),
    ):
        for result in env.from_collection(data).key_by(key).process(Number()).execute_and_collect():
            print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
