from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """A FLOAT is rounded to single precision, a DOUBLE is not."""
    values = [0.1, 1.5, 1 / 3, 16777217.0, -0.0, 1e-45]
    for name, declared in (("FLOAT", Types.FLOAT()), ("DOUBLE", Types.DOUBLE())):
        out = (
            env.from_collection(values, type_info=Types.DOUBLE())
            .map(lambda v: v, output_type=declared)
            .key_by(lambda v: 0)
            .map(lambda v: repr(v), output_type=Types.STRING())
        )
        print(name, list(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
