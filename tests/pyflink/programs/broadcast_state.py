from pyflink.common import Types
from pyflink.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Apply(BroadcastProcessFunction):
    """Buffers values until their rule arrives, so that the order of the inputs does not matter."""

    def open(self, runtime_context):
        self.waiting = []

    def process_element(self, value, ctx):
        rules = ctx.get_broadcast_state(RULES)
        if value in rules:
            yield "applied", value, rules[value]
        else:
            self.waiting.append(value)

    def process_broadcast_element(self, value, ctx):
        rules = ctx.get_broadcast_state(RULES)
        yield "before", value, rules.get(value[0]), rules.contains(value[0])
        rules.put(value[0], value[1])
        yield "rules", sorted(rules.items())
        for waiting in self.waiting:
            if waiting == value[0]:
                yield "applied", waiting, rules.get(waiting)
        self.waiting = [w for w in self.waiting if w != value[0]]


def main(env):
    data = env.from_collection(["a", "b", "a"], type_info=Types.STRING())
    rules = env.from_collection(
        [("a", 1), ("b", 2)], type_info=Types.TUPLE([Types.STRING(), Types.INT()])
    )
    out = data.connect(rules.broadcast(RULES)).process(Apply())
    for line in sorted(map(repr, out.execute_and_collect())):
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
