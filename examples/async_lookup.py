"""Asynchronous lookup: a slow, unreliable service is asked about every record, many requests at once.

Shows:    AsyncDataStream with a retry strategy and a timeout. Ten requests of 0.2 s take 0.2 s together, not 2 s.
Change:   lookup() to a client of your service, made in open(); CAPACITY to the number of requests the service bears;
          ordered_ to unordered_ when the order of results does not matter, which is quicker.
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
    """Asks where a user is from. This service of ours is slow, fails twice for user 4 and hangs for user 7."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # The place for clients and connections: they cannot be sent to the worker, they are made there.
        self.attempts: dict[int, int] = {}

    async def lookup(self, user: int) -> str:
        self.attempts[user] = self.attempts.get(user, 0) + 1
        await asyncio.sleep(60 if user == 7 else 0.2)
        if user == 4 and self.attempts[user] < 3:
            raise ConnectionError("try again")
        return CITIES[user % len(CITIES)]

    async def async_invoke(self, value: int) -> list[str]:
        city = await self.lookup(value)
        tries = self.attempts[value]
        # A list, because there may be no result or several.
        return [f"user {value} is from {city}" + (f" (attempt {tries})" if tries > 1 else "")]

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
        # Only errors that may go away: one in the program itself must fail the job at once.
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
