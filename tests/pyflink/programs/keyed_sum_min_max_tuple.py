from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

DATA = [("a", 3, 1.5), ("b", 9, 0.5), ("a", 1, 2.5), ("a", 2, 0.25), ("b", 10, 0.5)]


def main(env):
    typed = env.from_collection(DATA, type_info=Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()]))
    for name in ("sum", "min", "max"):
        for position in (1, 2):
            keyed = typed.key_by(lambda v: v[0], key_type=Types.STRING())
            print(name, position)
            for result in getattr(keyed, name)(position).execute_and_collect():
                print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
