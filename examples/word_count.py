"""Word count: the smallest stateful program.

Shows:    flat_map, key_by and a running sum. Every word emits its count so far; the last line for a word is its
          total.
Change:   LINES to your own text, or from_collection to an unbounded source. With set_runtime_mode(BATCH) only
          the totals are emitted.
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
    # One subtask, so that the order of lines is fixed. Without this line there is one subtask per core.
    env.set_parallelism(1)

    lines = env.from_collection(LINES)
    # All pairs with the same word go to one subtask, where sum() stores one number per word.
    counts = lines.flat_map(words).key_by(lambda pair: pair[0]).sum(1)
    counts.map(lambda pair: f"{pair[0]}: {pair[1]}").print()

    # Nothing has run so far: the calls above only build the job.
    env.execute("word count")


if __name__ == "__main__":
    main()
