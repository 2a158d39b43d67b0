from pyflink.common import Row
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """print() formats values without a declared type with str()."""
    values = [1, 0.5, "text", None, True, ("a", 0), ["a", 0], {"k": None}, Row("a", 2), Row(f=1)]
    env.from_collection([0]).flat_map(lambda v: values).print()
    env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
