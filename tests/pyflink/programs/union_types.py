from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    a = env.from_collection([1, 2, 3], type_info=Types.INT())
    b = env.from_collection(["x"], type_info=Types.STRING())
    try:
        a.union(b)
        print("accepted")
    except Exception as error:
        print("refused", "Cannot union streams of different types" in str(error))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
