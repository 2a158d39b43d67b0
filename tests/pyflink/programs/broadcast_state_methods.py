from pyflink.common import Types
from pyflink.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor

STATE = MapStateDescriptor("m", Types.STRING(), Types.INT())
OTHER = MapStateDescriptor("other", Types.INT(), Types.STRING())


class Steps(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        pass

    def process_broadcast_element(self, value, ctx):
        m = ctx.get_broadcast_state(STATE)
        yield "empty", list(m.items()), m.get("x"), "x" in m
        m.put("x", 1)
        m["y"] = 2
        m.put("z", 3)
        yield "put", sorted(m.items()), sorted(m.keys()), sorted(m.values()), sorted(m), m["z"]
        m.remove("x")
        del m["y"]
        yield "removed", list(m.items())
        other = ctx.get_broadcast_state(OTHER)
        other.put(1, "one")
        yield "other", list(other.items()), list(m.items())
        m.clear()
        yield "cleared", list(m.items()), list(other.items())


def main(env):
    data = env.from_collection(["a"], type_info=Types.STRING())
    rules = env.from_collection(["go"], type_info=Types.STRING())
    out = data.connect(rules.broadcast(STATE, OTHER)).process(Steps())
    for line in out.execute_and_collect():
        print(line)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
