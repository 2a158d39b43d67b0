from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """A number out of the range of its declared type is rejected when it is encoded."""
    for name, declared, bits in (
        ("BYTE", Types.BYTE(), 8),
        ("SHORT", Types.SHORT(), 16),
        ("INT", Types.INT(), 32),
        ("LONG", Types.LONG(), 64),
    ):
        for number in (2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 1), 2**bits + 7):
            stream = env.from_collection([0]).map(lambda v, number=number: number, output_type=declared)
            try:
                print(name, number, list(stream.key_by(lambda v: 0).map(lambda v: v + 0.0).execute_and_collect()))
            except Exception:
                print(name, number, "is refused")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
