from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment


def main(env):
    """In BATCH a running reduction emits only its last value, once per key."""
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    data = [("a", 3), ("b", 2), ("a", 1), ("a", 5), ("b", 4), ("c", 9)]
    stream = env.from_collection(data, type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
    for name, out in (
        ("reduce", stream.key_by(lambda v: v[0]).reduce(lambda a, b: (a[0], a[1] * b[1]))),
        ("sum", stream.key_by(lambda v: v[0]).sum(1)),
        ("min", stream.key_by(lambda v: v[0]).min(1)),
        ("max_by", stream.key_by(lambda v: v[0]).max_by(1)),
    ):
        print(name, sorted(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
