from pyflink.common import Types
from pyflink.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment


class Where(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.subtask, value


def main(env):
    """Round robin, starting at an unspecified subtask."""
    stream = env.from_collection(list(range(9)), type_info=Types.INT())
    out = stream.rebalance().map(Where()).set_parallelism(3)
    groups = {}
    for subtask, value in out.execute_and_collect():
        groups.setdefault(subtask, []).append(value)
    print(sorted(groups))
    print(sorted(groups.values()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
