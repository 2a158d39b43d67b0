from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.window import GlobalWindows


def main(env):
    """The default trigger of global windows never fires, not even at the end of the input."""
    stream = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
    out = (
        stream.key_by(lambda v: v[0])
        .window(GlobalWindows.create())
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    print(list(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
