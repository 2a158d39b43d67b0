from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    keyed = env.from_collection([1]).key_by(lambda v: v)
    for name, call in (
        ("shuffle", lambda: keyed.shuffle()),
        ("rebalance", lambda: keyed.rebalance()),
        ("rescale", lambda: keyed.rescale()),
        ("forward", lambda: keyed.forward()),
        ("broadcast", lambda: keyed.broadcast()),
        ("partition_custom", lambda: keyed.partition_custom(lambda k, n: 0, lambda v: v)),
        ("uid", lambda: keyed.uid("x")),
        ("name", lambda: keyed.name("x")),
        ("set_parallelism", lambda: keyed.set_parallelism(1)),
        ("set_max_parallelism", lambda: keyed.set_max_parallelism(1)),
        ("start_new_chain", lambda: keyed.start_new_chain()),
        ("disable_chaining", lambda: keyed.disable_chaining()),
        ("slot_sharing_group", lambda: keyed.slot_sharing_group("x")),
        ("map with no function", lambda: keyed.map(3)),
        ("key_by", lambda: keyed.key_by(lambda v: v)),
    ):
        try:
            call()
            print(name, "accepted")
        except Exception as error:
            print(name, type(error).__name__, error)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
