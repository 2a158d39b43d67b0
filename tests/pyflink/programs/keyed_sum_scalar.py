from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    numbers = env.from_collection([1, 2, 3, 4, 5], type_info=Types.INT())
    for method in ("sum", "min", "max", "min_by", "max_by"):
        keyed = numbers.key_by(lambda v: v % 2)
        print(method, list(getattr(keyed, method)().execute_and_collect()))
    lists = env.from_collection([["a", 1], ["b", 5], ["a", 2]])
    print("list", list(lists.key_by(lambda v: v[0]).sum(1).execute_and_collect()))
    try:
        numbers.key_by(lambda v: v % 2).sum(1.5)
    except Exception as error:
        print(type(error).__name__, "must be of int or str type" in str(error))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
