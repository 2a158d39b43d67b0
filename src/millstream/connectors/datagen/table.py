"""The connector `datagen`: rows that are made up, in sequence or at random, as fast as is wanted."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from millstream.common.display_text import did_you_mean
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator, split_interval
from millstream.connectors.datagen.generators import Block, Generator, Sequenced, generator_of
from millstream.formats.options import Options
from millstream.sql.columns.batch import Batch
from millstream.sql.connectors import Connector, TableContext, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression

# Rows are made in blocks whose values depend on nothing but the block's number: what is read again is the same.
BLOCK = 1 << 15
_ROWS_PER_SECOND = 10_000


class _Enumerator(SplitEnumerator):
    """Deals out rows by their numbers, no more than the rate allows by now. A share is (start, end)."""

    def __init__(self, count: int | None, rate: int, block: int, parallelism: int, at: int) -> None:
        self._count = count
        self._rate = rate
        self._block = block
        self._parallelism = parallelism
        self._at = at
        self._started: float | None = None

    def snapshot(self) -> int:
        return self._at

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self._started is None:
            # What was dealt out before a restart counts as if it had come at the rate.
            self._started = now - self._at / self._rate
        # Whole blocks, but at least one.
        most = self._at + -(-budget // self._block) * self._parallelism * self._block
        due = int((now - self._started) * self._rate) + 1
        if self._count is not None:
            due = min(due, self._count)
        to = max(min(due, most), self._at)
        shares = self._cut(self._at, to)
        self._at = to
        return SplitAssignment(shares, limited=to < due)

    def _cut(self, start: int, end: int) -> dict[int, list[Any]]:
        """Return who makes which rows; only the first and last block are not whole."""
        block = self._block
        cuts = split_interval(start // block, -(-end // block), self._parallelism)
        pieces = [(max(a * block, start), min(b * block, end)) for a, b in cuts]
        return {i: [(a, b)] for i, (a, b) in enumerate(pieces) if a < b}

    def is_finished(self) -> bool:
        return self._count is not None and self._at >= self._count

    def next_poll(self, now: float) -> float:
        if self._started is None:
            return now
        # When the next row is due, but not so often that a fast source is asked for each.
        return max(self._started + self._at / self._rate, now + 0.001)


class _Reader(SourceReader):
    def __init__(self, generators: Sequence[Generator], block: int) -> None:
        self._generators = generators
        self._block = block

    def read(self, share: Any) -> Iterator[Collection[Any]]:
        start, end = share
        while start < end:
            number = start // self._block
            to = min((number + 1) * self._block, end)
            block = Block(number * self._block, self._block, start, to)
            yield [Batch([g.column(block) for g in self._generators], None, to - start)]
            start = to

    def rest(self, share: Any, read: int) -> Iterator[Collection[Any]]:
        start, end = share
        return self.read(((start // self._block + read) * self._block if read else start, end))


class DataGenSource(Source[Batch]):
    """Makes up rows."""

    name = "datagen"

    def __init__(self, generators: Sequence[Generator], count: int | None, rate: int) -> None:
        self._generators = list(generators)
        self._count = count
        self._rate = rate
        # Where few rows come in a second, they do not come at once.
        self._block = max(min(BLOCK, rate // 20), 1)

    @property
    def is_bounded(self) -> bool:
        return self._count is not None

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Enumerator(self._count, self._rate, self._block, parallelism, restored or 0)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._generators, self._block)


class _Table(TableSource):
    def __init__(self, context: TableContext) -> None:
        options = Options(context.table.options)
        self._options = options
        self._rate = options.whole("rows-per-second", _ROWS_PER_SECOND)
        if self._rate <= 0:
            raise ValidationException(f"'rows-per-second' must be above 0, it is {self._rate}.")
        seed, now = random.getrandbits(62), time.time_ns() // 1_000_000
        columns = context.table.physical
        self._check(columns, options)
        self._generators = {
            c.name: generator_of(f"fields.{c.name}", c.type, options, (seed, i), (now, self._rate))
            for i, c in enumerate(columns)
        }
        counts = [options.whole_or_none("number-of-rows")]
        counts += [g.count for g in self._generators.values() if isinstance(g, Sequenced)]
        self._count = min((c for c in counts if c is not None), default=None)

    def _check(self, columns: Sequence[Any], options: Options) -> None:
        for column in columns:
            kind = options.text(f"fields.{column.name}.kind", "random")
            if kind not in ("random", "sequence"):
                raise ValidationException(f"Unsupported generator kind: {kind}")
        names = [column.name for column in columns]
        for key in options.under("fields."):
            if not key.startswith(tuple(f"{name}." for name in names)):
                hint = did_you_mean(key.partition(".")[0], names) or "."
                raise ValidationException(f"Option 'fields.{key}' of datagen names no column of the table{hint}")

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        return DataGenSource([self._generators[c] for c in columns], self._count, self._rate)

    def parallelism(self) -> int | None:
        return self._options.whole_or_none("scan.parallelism")

    @property
    def is_bounded(self) -> bool:
        return self._count is not None


class DataGenConnector(Connector):
    """Makes up rows: `fields.x.kind` is `random` or `sequence`."""

    identifier = "datagen"
    optional = frozenset(
        [
            "rows-per-second",
            "number-of-rows",
            "scan.parallelism",
            *(f"fields.#.{o}" for o in ("kind", "min", "max", "max-past", "length", "var-len", "start", "end")),
            "fields.#.null-rate",
        ]
    )

    def table_source(self, context: TableContext) -> TableSource:
        return _Table(context)
