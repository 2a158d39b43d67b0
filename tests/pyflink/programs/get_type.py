from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    untyped = env.from_collection([("a", 1)])
    typed = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    rows = env.from_collection([Row("a", 1)], Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()]))
    for name, stream in (
        ("untyped", untyped),
        ("typed", typed),
        ("rows", rows),
        ("map", typed.map(lambda v: v)),
        ("map typed", untyped.map(lambda v: v[1], output_type=Types.INT())),
        ("filter", typed.filter(lambda v: True)),
        ("key_by untyped", untyped.key_by(lambda v: v[0])),
        ("key_by typed", typed.key_by(lambda v: v[0], key_type=Types.STRING())),
        ("key_by typed, no key type", typed.key_by(lambda v: v[0])),
        ("reduce", typed.key_by(lambda v: v[0]).reduce(lambda a, b: a)),
        ("sum", rows.key_by(lambda v: v[0]).sum("n")),
        ("union", typed.union(typed)),
        ("rebalance", typed.rebalance()),
        ("watermarks", typed.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks())),
        ("count window reduce", typed.key_by(lambda v: v[0]).count_window(1).reduce(lambda a, b: a)),
        ("project", typed.project(1)),
    ):
        print(name, stream.get_type())


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
