from pyflink.common import Types
from pyflink.datastream import (
    KeyedProcessFunction,
    MapFunction,
    Partitioner,
    RuntimeContext,
    StreamExecutionEnvironment,
)


class Where(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return value, self.subtask


class ByLength(Partitioner):
    def partition(self, key, num_partitions):
        return len(key) % num_partitions


class Gather(KeyedProcessFunction):
    """Emits all elements at the end, sorted."""

    def __init__(self):
        self.values = []

    def process_element(self, value, ctx):
        self.values.append(value)
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp, ctx):
        yield sorted(self.values)


def main(env):
    words = ["a", "bb", "ccc", "dddd", "ee", "f"]
    for partitioner, key in (
        (ByLength(), lambda v: v),
        (lambda key, n: n - 1, lambda v: v),
        (lambda key, n: key % n, lambda v: ord(v[0]) - ord("a")),
    ):
        env.set_parallelism(3)
        stream = env.from_collection(words, type_info=Types.STRING())
        out = stream.partition_custom(partitioner, key).map(Where())
        out.key_by(lambda v: 0).process(Gather()).set_parallelism(1).print().set_parallelism(1)
        env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
