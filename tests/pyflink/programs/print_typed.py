from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """print() formats values by their declared types."""
    for declared, values in (
        (Types.INT(), [1, -2]),
        (Types.DOUBLE(), [1.0, 0.1, 1e20]),
        (Types.FLOAT(), [0.1]),
        (Types.BOOLEAN(), [True, False]),
        (Types.STRING(), ["a", "it's"]),
        (Types.TUPLE([Types.STRING(), Types.INT()]), [("a", 0)]),
        (Types.TUPLE([Types.BOOLEAN(), Types.DOUBLE()]), [(True, 1.0)]),
        (Types.ROW([Types.STRING(), Types.INT()]), [Row("a", 0), Row("b", None)]),
        (Types.ROW_NAMED(["x", "y"], [Types.BOOLEAN(), Types.DOUBLE()]), [Row(True, 2.5)]),
        (Types.ROW([Types.INT(), Types.ROW([Types.STRING()])]), [Row(1, Row("in"))]),
        (Types.ROW([Types.LIST(Types.INT()), Types.TUPLE([Types.INT(), Types.STRING()])]), [Row([1, 2], (3, "x"))]),
        (Types.MAP(Types.STRING(), Types.INT()), [{"k": 1}]),
        (Types.LIST(Types.STRING()), [["p", "q"]]),
        (Types.TUPLE([Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.BOOLEAN())]), [([1, 2], {"k": True})]),
    ):
        stream = env.from_collection([0]).flat_map(lambda v, values=values: values, output_type=declared)
        stream.print()
        env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
