from pyflink.common import Types
from pyflink.datastream import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor


class Numbered(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

    def map(self, value):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        return value, n


class FirstOnly(FilterFunction):
    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.INT(), Types.BOOLEAN()))

    def filter(self, value):
        if value[1] in self.seen:
            return False
        self.seen.put(value[1], True)
        return True


class Changes(FlatMapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.INT()))

    def flat_map(self, value):
        last = self.last.value()
        if last != value[1]:
            self.last.update(value[1])
            yield value[0], last, value[1]


DATA = [("a", 1), ("b", 1), ("a", 1), ("a", 2), ("b", 1), ("a", 1)]


def main(env):
    stream = env.from_collection(DATA)
    print("map", list(stream.key_by(lambda v: v[0]).map(Numbered()).execute_and_collect()))
    print("filter", list(stream.key_by(lambda v: v[0]).filter(FirstOnly()).execute_and_collect()))
    print("flat_map", list(stream.key_by(lambda v: v[0]).flat_map(Changes()).execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
