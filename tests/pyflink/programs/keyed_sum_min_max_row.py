from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

DATA = [Row("a", 3), Row("b", 9), Row("a", 1), Row("a", 2), Row("b", 10)]


def main(env):
    rows = env.from_collection(DATA, type_info=Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()]))
    for method in ("sum", "min", "max"):
        for field in ("n", 1):
            print(method, field)
            keyed = rows.key_by(lambda v: v.name)
            for result in getattr(keyed, method)(field).execute_and_collect():
                print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
