import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


class Look(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(5 if value == 2 else 0.01)
        return [value]

    def timeout(self, value):
        return [-value]


class NoAnswer(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(5)
        return [value]


def main(env):
    stream = env.from_collection([1, 2, 3], type_info=Types.INT())
    out = AsyncDataStream.ordered_wait(stream, Look(), Time.seconds(1), output_type=Types.INT())
    print(list(out.execute_and_collect()))
    stream = env.from_collection([1], type_info=Types.INT())
    out = AsyncDataStream.ordered_wait(stream, NoAnswer(), Time.seconds(1), output_type=Types.INT())
    try:
        print(list(out.execute_and_collect()))
    except Exception as error:
        print("TimeoutError" in str(error), "Async function call has timed out" in str(error))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
