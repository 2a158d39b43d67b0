"""Word count: the smallest program that has state.

Shows:    flat_map, key_by and a running sum. Every word yields its count so far, as a stream does; the last line for
          a word is its total.
Change:   LINES to your own text, or from_collection to a source that never ends. With set_runtime_mode(BATCH) only
          the totals come out.
Run:      python examples/word_count.py

Expected output:

    to: 1
    be: 1
    or: 1
    not: 1
    to: 2
    be: 2
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.datastream import StreamExecutionEnvironment

LINES = ["To be, or not", "to be"]


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word.strip(",.").lower(), 1


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    # One subtask, so that the lines come in one order. Without this line there is a subtask for each core.
    env.set_parallelism(1)

    lines = env.from_collection(LINES)
    # All pairs with the same word meet in one subtask, where sum() keeps one number for each word.
    counts = lines.flat_map(words).key_by(lambda pair: pair[0]).sum(1)
    counts.map(lambda pair: f"{pair[0]}: {pair[1]}").print()

    # Nothing has run so far: the calls above only describe the job.
    env.execute("word count")


if __name__ == "__main__":
    main()
