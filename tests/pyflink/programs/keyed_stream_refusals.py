from pyflink.datastream import StreamExecutionEnvironment

SETTINGS = {
    "uid": ("x",),
    "name": ("x",),
    "get_name": (),
    "set_uid_hash": ("a" * 32,),
    "set_parallelism": (1,),
    "set_max_parallelism": (1,),
    "force_non_parallel": (),
    "set_buffer_timeout": (1,),
    "start_new_chain": (),
    "disable_chaining": (),
    "slot_sharing_group": ("x",),
}
PARTITIONING = {
    "shuffle": (),
    "rebalance": (),
    "rescale": (),
    "forward": (),
    "broadcast": (),
    "partition_custom": (lambda k, n: 0, lambda v: v),
    "cache": (),
    "key_by": (lambda v: v,),
}


def main(env):
    stream = env.from_collection([1])
    keyed, cached = stream.key_by(lambda v: v), stream.map(lambda v: v).cache()
    for kind, methods in ((keyed, {**PARTITIONING, **SETTINGS}), (cached, SETTINGS)):
        for name, arguments in methods.items():
            try:
                getattr(kind, name)(*arguments)
                print(name, "accepted")
            except Exception as error:
                print(name, error)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
