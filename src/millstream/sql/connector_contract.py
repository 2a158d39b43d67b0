"""The contract of table connectors, which read and write tables declared `WITH ('connector' = '...')`.

A connector is registered by name. It declares its options and creates a `TableSource` or `TableSink` from a table's
declaration. Those create DataStream sources and sinks whose records are batches (`columns/batch.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from millstream.common.aliases import Key
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.sink import Sink
from millstream.operators.source import Source
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Expression
from millstream.sql.schema import ALL_CHANGES, INSERTS, Changes
from millstream.sql.types import DataType


@fast_dataclass
class TableContext:
    """A table as a connector sees it.

    Attributes:
        name: its full name in three parts.
        table: its declaration; `table.options` combines WITH and hints.
        settings: the environment's configuration.
        batch: whether the job runs in batch mode.
    """

    name: tuple[str, ...]
    table: CatalogTable
    settings: Mapping[str, str]
    batch: bool


@fast_dataclass
class LookupResult:
    """The result of a lookup.

    Attributes:
        batch: the rows of all keys, in key order.
        counts: the number of rows per key.
    """

    batch: Batch
    counts: NDArray[np.int64]


@fast_dataclass
class TableStatistics:
    """Statistics of a table that are available without a scan, for join ordering.

    Attributes:
        rows: the number of rows.
        distinct: the maximum number of distinct values by column; columns of unknown range are missing.
    """

    rows: int
    distinct: Mapping[str, int]


class LookupSource(ABC):
    """Looks up rows by key. Created on the driver, used and closed in a subtask."""

    @abstractmethod
    def find(self, keys: Sequence[tuple[Key, ...]]) -> LookupResult:
        """Return the rows of keys, which are distinct and not null."""

    @abstractmethod
    def all_rows(self) -> tuple[list[tuple[Key, ...]], Batch]:
        """Return all rows and the key of each."""

    def close(self) -> None:
        """Release resources."""


class TableSource(ABC):
    """Reads a table."""

    # The row kinds it emits.
    changes: frozenset[Changes] = INSERTS
    # Whether each split has its own watermark and the minimum counts, as with Kafka partitions.
    watermarks_by_split = False
    # Whether a watermark follows every row ('scan.watermark.emit.strategy' = 'on-event'); SOURCE_WATERMARK() is then
    # the rowtime of the last row.
    watermarks_on_event = False

    @abstractmethod
    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        """Return a source whose records are batches.

        Args:
            columns: the columns of a batch: names of physical columns or metadata keys.
            filters: conditions on those columns; the source may skip rows that fail one.
            limit: the number of rows after which no more are needed.
        """

    def metadata(self) -> Mapping[str, DataType]:
        """Return the readable metadata by key."""
        return {}

    def lookup(self, keys: Sequence[str], columns: Sequence[str], at_once: int = 1) -> LookupSource | None:
        """Return a lookup by columns, or None if unsupported.

        Args:
            keys: the key columns.
            columns: the columns of the result.
            at_once: the maximum number of concurrent lookups.
        """
        return None

    def parallelism(self) -> int | None:
        """Return the source's own parallelism, or None for the job's."""
        return None

    def statistics(self, columns: Sequence[str]) -> TableStatistics | None:
        """Return statistics of the table and some of its columns, or None if they would have to be computed."""
        return None

    @property
    def is_bounded(self) -> bool:
        """Whether the source is bounded."""
        return True


class TableSink(ABC):
    """Writes a table."""

    # The row kinds it accepts.
    changes: frozenset[Changes] = ALL_CHANGES

    @abstractmethod
    def sink(self, columns: Sequence[str]) -> Sink:
        """Return a sink whose records are batches with these columns, physical first and then metadata."""

    def metadata(self) -> Mapping[str, DataType]:
        """Return the writable metadata by key."""
        return {}

    def parallelism(self) -> int | None:
        """Return the sink's own parallelism, or None for that of its input."""
        return None

    def distribution(self) -> Sequence[str]:
        """Return the columns by which rows are partitioned among writers."""
        return ()

    def overwriting(self) -> TableSink:
        """Return the sink of INSERT OVERWRITE, or raise if unsupported."""
        raise NotImplementedError


class Connector(ABC):
    """Creates sources and sinks from declarations.

    Attributes:
        identifier: the name in `'connector' = '...'`.
        required, optional: its options besides `connector`; an option ending in `.#` or `.*` is a prefix.
    """

    identifier: ClassVar[str]
    required: ClassVar[frozenset[str]] = frozenset()
    optional: ClassVar[frozenset[str]] = frozenset()

    def options(self, declared: Mapping[str, str]) -> frozenset[str]:
        """Return the valid options of a table declared with these options, without those of formats it does not use."""
        return self.required | self.optional

    def table_source(self, context: TableContext) -> TableSource:
        """Return the source of a table."""
        raise NotImplementedError

    def table_sink(self, context: TableContext) -> TableSink:
        """Return the sink of a table."""
        raise NotImplementedError
