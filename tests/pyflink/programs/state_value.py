from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor


class Steps(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.state = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))
        self.pickled = runtime_context.get_state(ValueStateDescriptor("any", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value, ctx):
        key, command = value
        before = self.state.value(), self.pickled.value()
        if command == "clear":
            self.state.clear()
            self.pickled.clear()
        elif command == "none":
            self.pickled.update(None)
        else:
            self.state.update(command)
            self.pickled.update({"n": command})
        yield key, command, before, (self.state.value(), self.pickled.value())


def main(env):
    data = [("a", 1), ("b", 2), ("a", 3), ("a", "clear"), ("a", 0), ("b", "none"), ("b", "clear")]
    for result in env.from_collection(data).key_by(lambda v: v[0]).process(Steps()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
