from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment


class Where(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value, ctx):
        yield value[0], value[1], self.subtask


def main(env):
    """All elements of a key go to one subtask, in order; twenty keys are spread over several subtasks."""
    env.set_parallelism(2)
    data = [("key%d" % (i % 20), i) for i in range(60)]
    stream = env.from_collection(data, Types.TUPLE([Types.STRING(), Types.INT()]))
    results = list(stream.key_by(lambda v: v[0], Types.STRING()).process(Where()).execute_and_collect())
    where = {}
    for key, _, subtask in results:
        where.setdefault(key, set()).add(subtask)
    print(len(results), len(where), all(len(subtasks) == 1 for subtasks in where.values()))
    print(sorted(set.union(*where.values())))
    print([n for key, n, _ in results if key == "key3"])


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
