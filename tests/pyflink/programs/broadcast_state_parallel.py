from pyflink.common import Types
from pyflink.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Count(BroadcastProcessFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value, ctx):
        yield "element", value

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, 1)
        yield "rule", value, "subtask", self.subtask


def main(env):
    data = env.from_collection([1, 2, 3, 4], type_info=Types.INT())
    rules = env.from_collection(["a", "b"], type_info=Types.STRING())
    out = data.rebalance().connect(rules.broadcast(RULES)).process(Count()).set_parallelism(3)
    for line in sorted(map(repr, out.execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
