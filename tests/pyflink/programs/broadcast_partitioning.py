from pyflink.common import Types
from pyflink.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment


class Where(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.subtask, value


def main(env):
    """Every subtask receives every element, in order."""
    stream = env.from_collection([1, 2, 3], type_info=Types.INT())
    out = stream.broadcast().map(Where()).set_parallelism(3)
    groups = {}
    for subtask, value in out.execute_and_collect():
        groups.setdefault(subtask, []).append(value)
    print(sorted(groups.items()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
