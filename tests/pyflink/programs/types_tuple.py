from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    declared = Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()])
    stream = env.from_collection([("a", 1, 0.5)], type_info=declared)
    print(stream.get_type())
    out = stream.map(lambda v: (type(v).__name__, v))
    print(list(out.execute_and_collect()))
    print(list(stream.project(2, 0).execute_and_collect()))
    try:
        env.from_collection([Row("a", 1)], type_info=Types.ROW([Types.STRING(), Types.INT()])).project(0)
    except Exception as error:
        print(error)
    nested = Types.TUPLE([Types.STRING(), Types.TUPLE([Types.INT(), Types.INT()])])
    stream = env.from_collection([("a", 1)], type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
    print(list(stream.map(lambda v: (v[0], (v[1], v[1] + 1)), nested).execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
