import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


class Look(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(1 if value == 1 else 0.3 * value)
        return [value]


def main(env):
    """Results are in the order of completion: 1 takes longest."""
    stream = env.from_collection([1, 2], type_info=Types.INT())
    out = AsyncDataStream.unordered_wait(stream, Look(), Time.seconds(10), output_type=Types.INT())
    print(list(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
