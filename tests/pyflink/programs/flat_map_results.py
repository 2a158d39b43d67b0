from pyflink.datastream import StreamExecutionEnvironment


def pieces(value):
    if value == 0:
        return []
    if value == 1:
        return ["one"]
    if value == 2:
        return ("two", "zwei")
    if value == 3:
        return "abc"
    if value == 4:
        return {"k": 1, "m": 2}
    return range(value)


def main(env):
    for result in env.from_collection([0, 1, 2, 3, 4, 5]).flat_map(pieces).execute_and_collect():
        print(repr(result))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
