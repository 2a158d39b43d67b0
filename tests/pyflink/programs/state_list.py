from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor


class Steps(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.state = runtime_context.get_list_state(ListStateDescriptor("l", Types.INT()))

    def process_element(self, value, ctx):
        key, command = value
        before = list(self.state)
        if command == "clear":
            self.state.clear()
        elif command == "add_all":
            self.state.add_all([7, 8])
        elif command == "update":
            self.state.update([9])
        elif command == "update_empty":
            self.state.update([])
        else:
            self.state.add(command)
        yield key, command, before, list(self.state.get())


def main(env):
    commands = [1, 2, "add_all", "update", 3, "update_empty", 4, "clear", 5]
    data = [("a", c) for c in commands] + [("b", 6)]
    for result in env.from_collection(data).key_by(lambda v: v[0]).process(Steps()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
