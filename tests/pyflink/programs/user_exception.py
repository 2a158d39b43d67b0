from pyflink.datastream import StreamExecutionEnvironment


class MyError(Exception):
    pass


def fail(value):
    if value == 2:
        raise MyError("the value was %d" % value)
    return value


def main(env):
    env.from_collection([1, 2, 3]).map(fail).filter(lambda v: v > 3).print()
    try:
        env.execute()
    except Exception as error:
        print("the value was 2" in str(error), "MyError" in str(error))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
