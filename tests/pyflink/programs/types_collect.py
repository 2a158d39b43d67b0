import datetime
import decimal

from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """The collected value of each declared type, and the value that the next function receives."""
    for declared, value in (
        (Types.BOOLEAN(), True),
        (Types.STRING(), "é"),
        (Types.LONG(), 2**62),
        (Types.DOUBLE(), 0.1),
        (Types.BIG_DEC(), decimal.Decimal("1.5")),
        (Types.SQL_DATE(), datetime.date(2021, 3, 4)),
        (Types.SQL_TIME(), datetime.time(5, 6, 7)),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": 2}),
        (Types.LIST(Types.INT()), [1, 2, 3]),
        (Types.OBJECT_ARRAY(Types.STRING()), ["x", "y"]),
        (Types.BASIC_ARRAY(Types.INT()), [1, 2]),
        (Types.ROW([Types.INT(), Types.ROW([Types.STRING()])]), Row(1, Row("in"))),
        (Types.TUPLE([Types.INT(), Types.LIST(Types.STRING())]), (1, ["p", "q"])),
        (Types.PICKLED_BYTE_ARRAY(), {"set": (1, None)}),
    ):
        stream = env.from_collection([0]).map(lambda v: value, output_type=declared)
        print(stream.get_type(), "collected", list(stream.execute_and_collect()))
        stream = env.from_collection([0]).map(lambda v: value, output_type=declared)
        described = stream.key_by(lambda v: 0).map(lambda v: type(v).__name__ + " " + repr(v))
        print(stream.get_type(), "given", list(described.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
