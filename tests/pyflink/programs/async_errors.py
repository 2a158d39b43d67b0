import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


async def later(value):
    """Keeps the job running until the error arrives."""
    await asyncio.sleep(1)
    return [value]


class GivesNone(AsyncFunction):
    async def async_invoke(self, value):
        return None if value == 7 else await later(value)


class GivesNumber(AsyncFunction):
    async def async_invoke(self, value):
        return value if value == 7 else await later(value)


class Raises(AsyncFunction):
    async def async_invoke(self, value):
        if value == 7:
            raise ValueError("no answer for %d" % value)
        return await later(value)


class NotAsync(AsyncFunction):
    def async_invoke(self, value):
        return [value]


def main(env):
    for function, says in (
        (GivesNone(), "The result of AsyncFunction cannot be none"),
        (GivesNumber(), "The result of AsyncFunction should be of list type"),
        (Raises(), "no answer for 7"),
        (NotAsync(), "should be declared as 'async def'"),
    ):
        try:
            stream = env.from_collection([7, 8], type_info=Types.INT())
            out = AsyncDataStream.ordered_wait(
                stream, function, Time.seconds(5), output_type=Types.INT()
            )
            print(list(out.execute_and_collect()))
        except Exception as error:
            print(type(function).__name__, says in str(error))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
