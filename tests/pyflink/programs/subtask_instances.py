from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class Count(KeyedProcessFunction):
    """An attribute belongs to the subtask, not to the key."""

    def __init__(self):
        self.seen = 0

    def process_element(self, value, ctx):
        self.seen += 1
        yield ctx.get_current_key(), self.seen


def main(env):
    data = ["a", "b", "a", "c"]
    out = env.from_collection(data, Types.STRING()).key_by(lambda v: v).process(Count())
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
