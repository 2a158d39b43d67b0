from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor


class Steps(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.state = runtime_context.get_map_state(MapStateDescriptor("m", Types.STRING(), Types.INT()))

    def process_element(self, value, ctx):
        key, command = value
        m = self.state
        yield "empty", m.is_empty(), list(m.items()), list(m.keys()), list(m.values()), list(m)
        yield "missing", m.get("x"), m.contains("x"), "x" in m
        m.put("x", 1)
        m["y"] = 2
        yield "put", m.get("x"), m["y"], "y" in m, m.is_empty(), sorted(m.items())
        m["x"] = 3
        yield "again", sorted(m.keys()), sorted(m.values()), sorted(m)
        m.remove("x")
        m.remove("never")
        yield "removed", sorted(m.items()), m.get("x")
        del m["y"]
        yield "deleted", m.is_empty()
        m.put("z", 9)
        m.clear()
        yield "cleared", m.is_empty(), m.get("z")


def main(env):
    for result in env.from_collection([("a", 0)]).key_by(lambda v: v[0]).process(Steps()).execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
