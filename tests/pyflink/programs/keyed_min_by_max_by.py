from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

DATA = [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "z"), ("a", 5, "u"), ("a", 5, "v")]


def main(env):
    tuples = env.from_collection(DATA)
    for method in ("min_by", "max_by"):
        print(method)
        for result in getattr(tuples.key_by(lambda v: v[0]), method)(1).execute_and_collect():
            print(result)
    rows = env.from_collection(
        [Row(*v) for v in DATA],
        type_info=Types.ROW_NAMED(["k", "n", "s"], [Types.STRING(), Types.INT(), Types.STRING()]),
    )
    for method in ("min_by", "max_by"):
        print(method, "row")
        for result in getattr(rows.key_by(lambda v: v.k), method)("n").execute_and_collect():
            print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
