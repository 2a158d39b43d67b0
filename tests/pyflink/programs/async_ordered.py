import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


class Look(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(0.6 if value == 1 else 0.01)
        return [value * 10] * (value % 3)


def main(env):
    """Results are in the order of the input, however long each takes; a result may have any length."""
    stream = env.from_collection([1, 2, 3, 4, 5], type_info=Types.INT())
    out = AsyncDataStream.ordered_wait(stream, Look(), Time.seconds(10), 4, Types.INT())
    print(out.get_type(), list(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
