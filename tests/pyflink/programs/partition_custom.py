from pyflink.common import Types
from pyflink.datastream import MapFunction, Partitioner, RuntimeContext, StreamExecutionEnvironment


class Where(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return value, self.subtask


class ByLength(Partitioner):
    def partition(self, key, num_partitions):
        return len(key) % num_partitions


def main(env):
    env.set_parallelism(3)
    words = ["a", "bb", "ccc", "dddd", "ee", "f"]
    stream = env.from_collection(words, type_info=Types.STRING())
    print(sorted(stream.partition_custom(ByLength(), lambda v: v).map(Where()).execute_and_collect()))
    last = stream.partition_custom(lambda key, n: n - 1, lambda v: v[0]).map(Where())
    print(sorted(last.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
