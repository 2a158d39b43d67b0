import datetime
import decimal

from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """What comes back for each declared type."""
    for declared, value in (
        (Types.BOOLEAN(), True),
        (Types.STRING(), "é"),
        (Types.LONG(), 2**62),
        (Types.DOUBLE(), 0.1),
        (Types.BIG_INT(), 12345678901),
        (Types.BIG_DEC(), decimal.Decimal("1.5")),
        (Types.SQL_DATE(), datetime.date(2021, 3, 4)),
        (Types.SQL_TIME(), datetime.time(5, 6, 7)),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2021, 3, 4, 5, 6, 7, 8000)),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": 2}),
        (Types.LIST(Types.INT()), [1, 2, 3]),
        (Types.OBJECT_ARRAY(Types.STRING()), ["x", "y"]),
        (Types.BASIC_ARRAY(Types.INT()), [1, 2]),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, 2]),
        (Types.ROW([Types.INT(), Types.ROW([Types.STRING()])]), Row(1, Row("in"))),
        (Types.TUPLE([Types.INT(), Types.LIST(Types.STRING())]), (1, ["p", "q"])),
        (Types.PICKLED_BYTE_ARRAY(), {"set": (1, None)}),
    ):
        out = env.from_collection([0]).map(lambda v, value=value: value, output_type=declared)
        inner = out.map(lambda v: (type(v).__name__, repr(v)))
        print(out.get_type(), [repr(v) for v in out.execute_and_collect()], list(inner.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
