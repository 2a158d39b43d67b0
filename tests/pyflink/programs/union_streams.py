from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    a = env.from_collection([1, 2, 3], type_info=Types.INT())
    b = env.from_collection([10, 20], type_info=Types.INT())
    c = env.from_collection([2], type_info=Types.INT())
    print("three", sorted(a.union(b, c).map(lambda v: v + 1).execute_and_collect()))
    print("itself", sorted(a.union(a).map(lambda v: v).execute_and_collect()))
    keyed = b.key_by(lambda v: v % 3)
    print("keyed", sorted(a.union(keyed).map(lambda v: v).execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
