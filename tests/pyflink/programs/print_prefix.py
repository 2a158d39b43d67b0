from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    stream = env.from_collection(["a"], type_info=Types.STRING())
    stream.print("named")
    env.execute()
    stream = env.from_collection(["b"], type_info=Types.STRING())
    stream.key_by(lambda v: v).print()
    env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
