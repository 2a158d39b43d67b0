from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

XY = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])


def main(env):
    """Named rows are encoded by field name."""
    for value, declared in (
        (Row(y=2, x=1), XY),
        (Row(1, 2), XY),
        (Row(f1=2, f0=1), Types.ROW([Types.INT(), Types.INT()])),
        (Row(b=Row(y=2, x=1), a=3), Types.ROW_NAMED(["a", "b"], [Types.INT(), XY])),
        ([Row(y=2, x=1)], Types.LIST(XY)),
        ({"k": Row(y=2, x=1)}, Types.MAP(Types.STRING(), XY)),
        ((5, Row(y=2, x=1)), Types.TUPLE([Types.INT(), XY])),
    ):
        stream = env.from_collection([0]).map(lambda _, value=value: value, output_type=declared)
        print(*stream.key_by(lambda v: 0).map(lambda v: v, output_type=declared).execute_and_collect())
    print(*env.from_collection([Row(y=2, x=1)], type_info=XY).map(str).execute_and_collect())


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
