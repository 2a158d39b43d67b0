"""Lookup joins: joins rows with an external system's current rows, one lookup per distinct key of a batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.aliases import Value
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.numpy_arrays import Mask, from_python, python_values
from millstream.sql.columns.value_conversion import to_python
from millstream.sql.connector_contract import LookupResult, LookupSource
from millstream.sql.expressions import Column, Expression
from millstream.sql.functions.evaluate import compiled, condition
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED
from millstream.sql.operators.base import EvaluatingOperator, KeyedBatchOperator
from millstream.sql.operators.query_context import Session
from millstream.sql.types import DataType

Rows = NDArray[np.int64]
log = logging.getLogger("millstream")

_CLEARED = (
    "The state is cleared because of state ttl. This will result in incorrect result. You can increase the state ttl "
    "to avoid this."
)
_Values = tuple[Value, ...]


class Retrying(LookupSource):
    """Retries lookups of keys without rows.

    Args:
        inner: the lookup source.
        attempts: the maximum number of retries.
        seconds: the delay before each retry.
        sleep: waits for some seconds.
    """

    def __init__(
        self, inner: LookupSource, attempts: int, seconds: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._inner, self._attempts, self._seconds, self._sleep = inner, attempts, seconds, sleep

    def find(self, keys: Sequence[tuple[Value, ...]]) -> LookupResult:
        result = self._inner.find(keys)
        for _ in range(self._attempts):
            missing = np.flatnonzero(result.counts == 0)
            if not len(missing):
                break
            self._sleep(self._seconds)
            more = self._inner.find([keys[i] for i in missing.tolist()])
            result = _merged(result, more, missing)
        return result

    def all_rows(self) -> tuple[list[tuple[Value, ...]], Batch]:
        return self._inner.all_rows()

    def close(self) -> None:
        self._inner.close()


def _merged(result: LookupResult, more: LookupResult, batch_rows: Rows) -> LookupResult:
    """Return both results; `more` has rows for the keys at `batch_rows`, which had none."""
    owners = np.concatenate(
        [np.repeat(np.arange(len(result.counts)), result.counts), np.repeat(batch_rows, more.counts)]
    )
    counts = result.counts.copy()
    counts[batch_rows] += more.counts
    both = Batch.concatenated([result.batch, more.batch])
    return LookupResult(both.take(np.argsort(owners, kind="stable")), counts)


class LookupJoinOperator(EvaluatingOperator):
    """Emits the input's columns, then expressions over the looked-up columns.

    Args:
        lookup: finds rows.
        keys: the input's key columns, with their types.
        expressions: over the looked-up columns.
        filter: a condition on looked-up columns; None for none.
        condition: a condition on all output columns; None for none.
        is_outer: whether unmatched rows are emitted (LEFT).
        session: the session settings.
    """

    def __init__(
        self,
        lookup: LookupSource,
        keys: Sequence[tuple[int, DataType]],
        expressions: Sequence[Expression],
        filter: Expression | None,
        condition: Expression | None,
        is_outer: bool,
        session: Session,
    ) -> None:
        self.lookup = lookup
        self.keys = list(keys)
        self.expressions = tuple(expressions)
        self.filter = filter
        self.condition = condition
        self.is_outer = is_outer
        self.session = session

    def open(self) -> None:
        self._outputs = [e.index if isinstance(e, Column) else compiled(e, self.context) for e in self.expressions]
        self._fits = None if self.filter is None else condition(self.filter, self.context)
        self._holds = None if self.condition is None else condition(self.condition, self.context)

    def close(self) -> None:
        self.lookup.close()
        super().close()

    def process(self, batch: Batch) -> Iterable[Batch]:
        columns, left, right = self.matched(batch)
        return (self._pairs(batch, columns, left, right),) if len(left) else ()

    def matched(self, batch: Batch) -> tuple[list[pa.Array], Rows, Rows]:
        """Return the looked-up columns and the matching pairs of row numbers; -1 for no match."""
        owners, keys = self._keys_of(batch)
        columns, key_of = self._looked_up(keys)
        counts = np.bincount(key_of, minlength=len(keys)) if len(keys) else np.zeros(0, np.int64)
        left, right = _matches(owners, counts)
        if self._holds is not None and len(left):
            holds = self._holds(self._pairs(batch, columns, left, right))
            left, right = left[holds], right[holds]
        if self.is_outer:
            alone = np.setdiff1d(np.arange(len(batch)), left)
            order = np.argsort(np.concatenate([left, alone]), kind="stable")
            left = np.concatenate([left, alone])[order]
            right = np.concatenate([right, np.full(len(alone), -1)])[order]
        return columns, left, right

    def _keys_of(self, batch: Batch) -> tuple[Rows, list[tuple[Value, ...]]]:
        """Return the key number of each row, -1 if it has a null, and the distinct keys."""
        columns = [batch.columns[k] for k, _ in self.keys]
        by_key = grouped(columns, len(batch))
        distinct = [c.take(pa.array(by_key.first)) for c in columns]
        has_null = np.zeros(by_key.count, np.bool_)
        for column in distinct:
            has_null |= column.is_null().to_numpy(zero_copy_only=False)
        numbers = np.where(has_null, -1, np.cumsum(~has_null) - 1)
        zone = self.session.time_zone
        values = [to_python(c, kind, zone) for c, (_, kind) in zip(distinct, self.keys, strict=True)]
        keys = [key for key, missing in zip(zip(*values, strict=True), has_null.tolist(), strict=True) if not missing]
        return numbers.take(by_key.codes), keys

    def _looked_up(self, keys: list[tuple[Value, ...]]) -> tuple[list[pa.Array], Rows]:
        """Return the looked-up columns, and the key number of each looked-up row."""
        if not keys:
            return [], np.zeros(0, np.int64)
        result = self.lookup.find(keys)
        rows, key_of = result.batch, np.repeat(np.arange(len(keys)), result.counts)
        if self._fits is not None and len(rows):
            fits = self._fits(rows)
            rows, key_of = rows.filter(fits), key_of[fits]
        return [rows.columns[m] if isinstance(m, int) else m(rows) for m in self._outputs], key_of

    def _pairs(self, batch: Batch, columns: list[pa.Array], left: Rows, right: Rows) -> Batch:
        is_whole = len(left) == len(batch) and bool((np.diff(left) == 1).all())
        taken = batch if is_whole else batch.take(left)
        if not columns:
            kinds = [arrow_type(e.type) for e in self.expressions]
            return taken.with_columns([*taken.columns, *(pa.nulls(len(left), kind) for kind in kinds)])
        positions = pa.array(right, mask=right < 0) if self.is_outer else pa.array(right)
        return taken.with_columns([*taken.columns, *(column.take(positions) for column in columns)])


def _matches(owners: Rows, counts: Rows) -> tuple[Rows, Rows]:
    """Return input rows, repeated per matching row, and the matching rows.

    Args:
        owners: the key number of each input row, -1 for none.
        counts: the number of rows of each key; rows are sorted by key number.
    """
    has_key = owners >= 0
    if has_key.all() and (counts == 1).all():
        return np.arange(len(owners)), owners
    starts = np.cumsum(counts) - counts
    own, first = np.zeros(len(owners), np.int64), np.zeros(len(owners), np.int64)
    own[has_key] = counts[owners[has_key]]
    first[has_key] = starts[owners[has_key]]
    left = np.repeat(np.arange(len(owners)), own)
    right = np.arange(len(left)) - np.repeat(np.cumsum(own) - own, own) + np.repeat(first, own)
    return left, right


class MaterializedLookupJoinOperator(LookupJoinOperator, KeyedBatchOperator):
    """Looks up added rows, and retracts with the stored result, like Flink's KeyedLookupJoinWrapper."""

    def __init__(
        self,
        lookup: LookupSource,
        keys: Sequence[tuple[int, DataType]],
        expressions: Sequence[Expression],
        filter: Expression | None,
        condition: Expression | None,
        is_outer: bool,
        session: Session,
        *,
        kinds: Sequence[pa.DataType],
        state_key: Sequence[int],
        replaces: bool,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            lookup, keys, expressions, filter, condition, is_outer, session: the arguments of `LookupJoinOperator`.
            kinds: the Arrow types of the input's columns.
            state_key: the input columns by which results are stored.
            replaces: whether an added row replaces the last one of its key; else results of equal rows accumulate.
            ttl: state TTL in milliseconds; 0 for none.
        """
        super().__init__(lookup, keys, expressions, filter, condition, is_outer, session)
        self.kinds = list(kinds)
        self.state_key = tuple(state_key)
        self.replaces = replaces
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.state_key]
        # The looked-up rows of each added row.
        columns = KeyedColumns(kinds, [StateColumn("found", object, list), StateColumn(TOUCHED, np.int64)])
        self._state: KeyedColumns = self.state_table("found", columns)

    def process(self, batch: Batch) -> Iterator[Batch]:
        state = self._state
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        adds = np.isin(batch.all_kinds(), (INSERT, UPDATE_AFTER))
        looked_up = self._rows_for(batch, np.flatnonzero(adds))
        key_ids, _ = state.find_or_add([batch.columns[k] for k in self.state_key], len(batch))
        lookups = state.column("found")
        rows: list[tuple[int, _Values]] = []
        for row, key_id in enumerate(key_ids.tolist()):
            step = self._add if adds[row] else self._retract
            rows += [(row, one) for one in step(lookups[key_id], looked_up.get(row, []))]
        state.column(TOUCHED)[key_ids[adds]] = self.setup.clock()
        changed = np.unique(key_ids)
        state.changed(changed)
        empty = np.fromiter((not lookups[s] for s in changed.tolist()), np.bool_, len(changed))
        state.remove(changed[empty])
        if rows:
            yield self._emitted(batch, adds, rows)

    def _rows_for(self, batch: Batch, added: Rows) -> dict[int, list[_Values]]:
        """Return the looked-up rows of each added row."""
        if not len(added):
            return {}
        columns, left, right = self.matched(batch.take(added))
        values = list(zip(*map(python_values, columns), strict=True))
        rows_by_row: dict[int, list[_Values]] = {}
        for row, position in zip(added[left].tolist(), right.tolist(), strict=True):
            if position >= 0:
                rows_by_row.setdefault(row, []).append(values[position])
        return rows_by_row

    def _add(self, lookups: list[list[_Values]], rows: list[_Values]) -> list[_Values]:
        if self.replaces:
            lookups.clear()
        lookups.append(rows)
        return self._padded(rows)

    def _retract(self, lookups: list[list[_Values]], rows: list[_Values]) -> list[_Values]:
        if not lookups:
            log.warning(_CLEARED)
            return self._padded([])
        return self._padded(lookups.pop())

    def _padded(self, rows: list[_Values]) -> list[_Values]:
        return rows if rows or not self.is_outer else [(None,) * len(self.expressions)]

    def _emitted(self, batch: Batch, adds: Mask, rows: list[tuple[int, _Values]]) -> Batch:
        batch_rows = np.array([row for row, _ in rows], np.int64)
        taken = batch.take(batch_rows)
        kinds = np.where(adds[batch_rows], taken.all_kinds(), DELETE).astype(np.int8)
        columns = [
            from_python([values[i] for _, values in rows], arrow_type(e.type)) for i, e in enumerate(self.expressions)
        ]
        return Batch([*taken.columns, *columns], kinds if kinds.any() else None, len(rows))
