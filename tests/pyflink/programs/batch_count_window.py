from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment


def main(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    data = [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5), ("a", 6), ("a", 7)]
    stream = env.from_collection(data)
    out = stream.key_by(lambda v: v[0]).count_window(2).reduce(lambda a, b: (a[0], a[1] + b[1]))
    print(sorted(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
