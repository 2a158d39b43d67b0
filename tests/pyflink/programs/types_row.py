from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """A stream of rows emits rows, whether it receives rows or tuples."""
    named = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    plain = Types.ROW([Types.STRING(), Types.INT()])
    for label, data, declared in (
        ("named, rows", [Row("a", 1), Row("b", None)], named),
        ("named, tuples", [("a", 1), ("b", 2)], named),
        ("plain, rows", [Row("a", 1)], plain),
        ("plain, tuples", [("a", 1)], plain),
    ):
        stream = env.from_collection(data, type_info=declared)
        print(label, stream.get_type())
        described = stream.map(lambda v: (type(v).__name__, v[0], v[1], str(v)))
        for result in described.execute_and_collect():
            print(result)
    stream = env.from_collection([Row("a", 1)], type_info=named)
    print(list(stream.map(lambda v: (v.name, v["n"], v.as_dict())).execute_and_collect()))
    renamed = stream.map(
        lambda v: Row(v.n, v.name), Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.STRING()])
    )
    for result in renamed.execute_and_collect():
        print(result, result.x, result["y"])


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
