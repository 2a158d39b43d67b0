from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


class GivesNone(AsyncFunction):
    async def async_invoke(self, value):
        return None


class GivesNumber(AsyncFunction):
    async def async_invoke(self, value):
        return value


class Raises(AsyncFunction):
    async def async_invoke(self, value):
        raise ValueError("no answer for %d" % value)


class NotAsync(AsyncFunction):
    def async_invoke(self, value):
        return [value]


def main(env):
    for function, says in (
        (GivesNone(), "should return a list"),
        (GivesNumber(), "should return a list"),
        (Raises(), "no answer for 7"),
        (NotAsync(), "should be declared as 'async def'"),
    ):
        try:
            stream = env.from_collection([7], type_info=Types.INT())
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
