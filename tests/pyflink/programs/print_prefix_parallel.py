from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """At a parallelism above 1 a line begins with the number of its subtask, counted from 1."""
    env.set_parallelism(2)
    stream = env.from_collection(["a"], type_info=Types.STRING())
    stream.partition_custom(lambda key, n: 1, lambda v: v).print("named")
    env.execute()
    stream = env.from_collection(["b"], type_info=Types.STRING())
    stream.partition_custom(lambda key, n: 0, lambda v: v).print()
    env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
