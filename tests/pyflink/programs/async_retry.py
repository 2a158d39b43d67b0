from pyflink.common import Time, Types
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
)
from pyflink.datastream.async_retry_predicates import (
    empty_result_predicate,
    has_exception_predicate,
)


class Empty(AsyncFunction):
    """Empty results until the third attempt."""

    def __init__(self):
        self.attempts = {}

    async def async_invoke(self, value):
        n = self.attempts[value] = self.attempts.get(value, 0) + 1
        return [(value, n)] if n == 3 else []


class Failing(AsyncFunction):
    def __init__(self):
        self.attempts = {}

    async def async_invoke(self, value):
        n = self.attempts[value] = self.attempts.get(value, 0) + 1
        if n < 3:
            raise ValueError("attempt %d" % n)
        return [(value, n)]


def main(env):
    for attempts in (1, 2, 3, 5):
        for name, function, strategy in (
            (
                "empty",
                Empty(),
                AsyncRetryStrategy.fixed_delay(
                    max_attempts=attempts,
                    backoff_time_millis=10,
                    result_predicate=empty_result_predicate,
                    exception_predicate=None,
                ),
            ),
            (
                "failing",
                Failing(),
                AsyncRetryStrategy.exponential_backoff(
                    max_attempts=attempts,
                    initial_delay=10,
                    max_retry_delay=50,
                    multiplier=2,
                    result_predicate=None,
                    exception_predicate=has_exception_predicate,
                ),
            ),
        ):
            stream = env.from_collection([1, 2], type_info=Types.INT())
            out = AsyncDataStream.ordered_wait_with_retry(
                stream, function, Time.seconds(10), strategy
            )
            try:
                print(name, attempts, list(out.execute_and_collect()))
            except Exception as error:
                last = [n for n in (1, 2, 3) if "attempt %d" % n in str(error)]
                print(name, attempts, "fails at attempt", last)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
