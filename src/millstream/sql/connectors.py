"""The contract of table connectors: what reads and writes a table that is declared `WITH ('connector' = '...')`.

A connector is a class found by its name. It says which options it takes, and makes a `TableSource` or `TableSink` of a
declaration. Those make a source or sink of the DataStream API whose records are batches (`columns/batch.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from millstream.common.fast_dataclass import record
from millstream.operators.sink import Sink
from millstream.operators.source import Source
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Expression
from millstream.sql.schema import ALL_CHANGES, INSERTS, Changes
from millstream.sql.types import DataType


@record
class TableContext:
    """What a connector is told of a table.

    Attributes:
        name: its full name, in three parts.
        table: its declaration; `table.options` are those of WITH and of a hint together.
        settings: the configuration of the environment.
        batch: whether the job is one of batch.
    """

    name: tuple[str, ...]
    table: CatalogTable
    settings: Mapping[str, str]
    batch: bool


@record
class Found:
    """What a look-up found.

    Attributes:
        batch: the rows of all keys, in the order of those.
        counts: how many rows each key has.
    """

    batch: Batch
    counts: NDArray[np.int64]


@record
class TableStatistics:
    """Statistics of a table that cost nothing to have, for the order of joins.

    Attributes:
        rows: the number of rows.
        distinct: the maximum number of distinct values, by column; columns of unknown ranges are left out.
    """

    rows: int
    distinct: Mapping[str, int]


class LookupSource(ABC):
    """Finds the rows of keys. Made on the driver, used in a subtask, which closes it."""

    @abstractmethod
    def find(self, keys: Sequence[tuple[Any, ...]]) -> Found:
        """Return the rows of keys, which have no null in them and are all different."""

    @abstractmethod
    def all_rows(self) -> tuple[list[tuple[Any, ...]], Batch]:
        """Return all rows there are, and the key of each."""

    def close(self) -> None:
        """Nobody asks any more."""


class TableSource(ABC):
    """Reads a table."""

    # What its rows can say.
    changes: frozenset[Changes] = INSERTS
    # Whether each split of its source has a watermark of its own, and the slowest counts, as of Kafka's partitions.
    watermarks_by_split = False
    # Whether a watermark follows every row, as with Flink's 'scan.watermark.emit.strategy' = 'on-event'; then
    # SOURCE_WATERMARK() is the rowtime of the last row.
    watermarks_on_event = False

    @abstractmethod
    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Any]:
        """Return a source whose records are batches.

        Args:
            columns: the columns of a batch: names of physical columns, or keys of metadata.
            filters: conditions on those columns; rows that fail one may be left out, and need not be.
            limit: when so many rows have been given, more are not needed.
        """

    def metadata(self) -> Mapping[str, DataType]:
        """Return the metadata that it can give, by key."""
        return {}

    def lookup(self, keys: Sequence[str], columns: Sequence[str], at_once: int = 1) -> LookupSource | None:
        """Return what finds rows by columns; None where it cannot.

        Args:
            keys: the columns that keys are of.
            columns: those of the rows that are found.
            at_once: so many questions may be asked at the same time.
        """
        return None

    def parallelism(self) -> int | None:
        """Return in how many subtasks it wants to run; None for as many as the job has."""
        return None

    def statistics(self, columns: Sequence[str]) -> TableStatistics | None:
        """Return statistics of the table and of some of its columns; None where they would have to be computed."""
        return None

    @property
    def is_bounded(self) -> bool:
        """Whether it ends by itself."""
        return True


class TableSink(ABC):
    """Writes a table."""

    # What the rows that it takes can say.
    changes: frozenset[Changes] = ALL_CHANGES

    @abstractmethod
    def sink(self, columns: Sequence[str]) -> Sink:
        """Return a sink whose records are batches with these columns, physical first and then metadata."""

    def metadata(self) -> Mapping[str, DataType]:
        """Return the metadata that it can write, by key."""
        return {}

    def parallelism(self) -> int | None:
        """Return in how many subtasks it wants to run; None for as many as what it takes has."""
        return None

    def distribution(self) -> Sequence[str]:
        """Return columns: rows with the same values in them are written by one subtask."""
        return ()

    def overwriting(self) -> TableSink:
        """Return the sink of INSERT OVERWRITE; refuses where there is none."""
        raise NotImplementedError


class Connector(ABC):
    """Makes sources and sinks of declarations.

    Attributes:
        identifier: the name in `'connector' = '...'`.
        required, optional: the options it takes, beside `connector`; an option that ends in `.#` or `.*` is a prefix.
    """

    identifier: ClassVar[str]
    required: ClassVar[frozenset[str]] = frozenset()
    optional: ClassVar[frozenset[str]] = frozenset()

    def options(self, given: Mapping[str, str]) -> frozenset[str]:
        """Return the options that a table may have which is declared with these: not those of formats it has not."""
        return self.required | self.optional

    def table_source(self, context: TableContext) -> TableSource:
        """Return what reads a table."""
        raise NotImplementedError

    def table_sink(self, context: TableContext) -> TableSink:
        """Return what writes a table."""
        raise NotImplementedError
