"""Asynchronous lookup: query a slow, unreliable service for every record, with concurrent requests.

Shows:    AsyncDataStream with a retry strategy and a timeout. Ten requests of 0.2 s take 0.2 s together, not 2 s.
Change:   lookup() to a client of your service, created in open(); CAPACITY to the requests that the service can
          handle at once; ordered_ to unordered_, which is faster, if the order of results does not matter.
Run:      python examples/async_lookup.py

Expected output:

    user 0 is from Ghent
    user 1 is from Porto
    user 2 is from Graz
    user 3 is from Turku
    user 4 is from Ghent (attempt 3)
    user 5 is from Porto
    user 6 is from Graz
    user 7 did not answer in time
    user 8 is from Ghent
    user 9 is from Porto
"""

from __future__ import annotations

import asyncio

from millstream.common import Time
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    RuntimeContext,
    StreamExecutionEnvironment,
)

CITIES = ["Ghent", "Porto", "Graz", "Turku"]
CAPACITY = 100


class Lookup(AsyncFunction[int, str]):
    """Looks up a user's city. This simulated service is slow, fails twice for user 4 and hangs for user 7."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # Create clients and connections here, on the worker: they cannot be pickled.
        self.attempts: dict[int, int] = {}

    async def lookup(self, user: int) -> str:
        self.attempts[user] = self.attempts.get(user, 0) + 1
        await asyncio.sleep(60 if user == 7 else 0.2)
        if user == 4 and self.attempts[user] < 3:
            raise ConnectionError("try again")
        return CITIES[user % len(CITIES)]

    async def async_invoke(self, value: int) -> list[str]:
        city = await self.lookup(value)
        attempt = self.attempts[value]
        # A list, because a request may have any number of results.
        return [f"user {value} is from {city}" + (f" (attempt {attempt})" if attempt > 1 else "")]

    def timeout(self, value: int) -> list[str]:
        # Without this method a request that takes too long fails the job.
        return [f"user {value} did not answer in time"]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    again = AsyncRetryStrategy.exponential_backoff(
        max_attempts=3,
        initial_delay=50,
        max_retry_delay=500,
        multiplier=2,
        # Retry transient errors only: an error in the program must fail the job at once.
        exception_predicate=lambda error: isinstance(error, ConnectionError),
    )
    # The timeout covers all attempts of a record together.
    answers = AsyncDataStream.ordered_wait_with_retry(
        env.from_collection(range(10)), Lookup(), Time.seconds(2), again, CAPACITY
    )
    answers.print()
    env.execute("async lookup")


if __name__ == "__main__":
    main()
