from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """From one operator to the next an integer takes the width of its declared type."""
    for name, declared in (
        ("BYTE", Types.BYTE()),
        ("SHORT", Types.SHORT()),
        ("INT", Types.INT()),
        ("LONG", Types.LONG()),
    ):
        values = [1, -1, 127, 128, 32767, 32768, 2147483647, 2147483648, -2147483649]
        out = (
            env.from_collection(values, type_info=Types.LONG())
            .map(lambda v: v, output_type=declared)
            .key_by(lambda v: 0)
            .map(lambda v: v, output_type=Types.LONG())
        )
        print(name, list(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
