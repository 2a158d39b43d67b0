import datetime
from decimal import Decimal

from pyflink.common import Row, Types
from pyflink.common.types import RowKind
from pyflink.datastream import StreamExecutionEnvironment

WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "Aa", "BB", "zebra", "apple", "k1", "k2", "k10"]


def main(env):
    """print() formats rows as Python does, and other types as Java does."""
    text, number = Types.STRING(), Types.INT()
    everything = Types.ROW(
        [text, number, Types.BOOLEAN(), Types.DOUBLE(), Types.BIG_DEC(), Types.SQL_DATE(), Types.SQL_TIMESTAMP()]
        + [Types.LIST(number), Types.MAP(text, number), Types.TUPLE([number, text])]
    )
    values = ["a", None, True, 1.5, Decimal("1.50"), datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)]
    for value, declared in (
        (Row(*values, [1, 2], {"k": 1, "b": 2}, (1, "x")), everything),
        (Row(a="x", b=3), Types.ROW_NAMED(["a", "b"], [text, number])),
        (Row.of_kind(RowKind.DELETE, "x", 1), Types.ROW([text, number])),
        (Row(1, Row(2, "a")), Types.ROW([number, Types.ROW([number, text])])),
        ((1, Row(2, "a")), Types.TUPLE([number, Types.ROW([number, text])])),
        (datetime.datetime(2024, 1, 1), Types.SQL_TIMESTAMP()),
        (datetime.datetime(2024, 1, 1, 1, 2, 3, 450000), Types.SQL_TIMESTAMP()),
        ({"k": 1, "b": 2, "zz": 3}, Types.MAP(text, number)),
        ({word: i for i, word in enumerate(WORDS)}, Types.MAP(text, number)),
        ({i: "v" for i in (5, 1, 100, 17, 33, 2, -1, 16, 70000, 1 << 20)}, Types.MAP(number, text)),
        ({i: "v" for i in (5, 1 << 40, -1, 16, 70000)}, Types.MAP(Types.LONG(), text)),
        ({i: True for i in (5.5, 1.0, -1.25, 0.1)}, Types.MAP(Types.DOUBLE(), Types.BOOLEAN())),
    ):
        env.from_collection([0]).map(lambda _, value=value: value, output_type=declared).print()
        env.execute()
    counts = env.from_collection([("a", 1), ("a", 2)], Types.ROW([text, number])).key_by(lambda row: row[0]).sum(1)
    counts.print()
    env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
